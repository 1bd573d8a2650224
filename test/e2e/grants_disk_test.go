package e2e

import (
	"testing"
)

// A grant on disk survives kill -9, with what it holds and what it has taken, and can be settled afterwards.
func TestGrantsSurviveAKill(t *testing.T) {
	t.Parallel()
	store := "disk:" + t.TempDir()
	const want = `{"id":"x","expires":3600000,"want":[` +
		`{"slidinglog":"t","size":10,"interval":3600000,"cost":6},{"lock":"l"},{"semaphore":"s","size":2}]}`
	how := settings{flags: []string{"--http", "localhost:0", "--store", store}}
	s := launched(t, how)
	first := s.wantPost(t, "/v1/grants", want, "200 …")
	s.wantPost(t, "/v1/grants/x/settle", `{"slidinglog/t":4}`, `200 …"remaining":6,…`)
	s.kill(t)
	s = launched(t, how)
	again := s.wantPost(t, "/v1/grants", want, "200 …")
	if one, two := first.header.Get("Gatehouse-Fence"), again.header.Get("Gatehouse-Fence"); one != two {
		t.Errorf("after a kill the grant has fence %s, want %s", two, one)
	}
	s.want(t, "/v1/lock/l/acquire?key=k&maxwait=0", "408")
	s.want(t, "/v1/slidinglog/t/peek?cost=7", "408")
	s.wantPost(t, "/v1/grants/x/settle", `{"slidinglog/t":1}`, `200 …"cost":1,…"remaining":9,…`)
	s.kill(t)
	s = launched(t, how)
	s.wantPost(t, "/v1/grants/x/release", "", "200 …")
	s.kill(t)
	s = launched(t, how)
	s.want(t, "/v1/grants/x", `200 …"ended":true…`)
	s.want(t, "/v1/lock/l/acquire?key=k&maxwait=0", "200 k")
	s.want(t, "/v1/slidinglog/t/peek?cost=9", "204")
	s.want(t, "/v1/slidinglog/t/peek?cost=10", "408")
}
