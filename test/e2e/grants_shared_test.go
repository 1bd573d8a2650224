package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// eachShared runs a test with two servers on each store that servers share.
func eachShared(t *testing.T, test func(t *testing.T, a, b *server)) {
	t.Helper()
	for name, address := range map[string]func(t *testing.T) string{
		"Redis": func(t *testing.T) string {
			t.Helper()
			return "redis://" + redistest.Start(t).Address
		},
		"etcd": func(t *testing.T) string {
			t.Helper()
			return "etcd://" + etcdtest.Start(t, 1).Endpoints()[0] + "/grants/"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"--store", address(t)}, patient...)
			test(t, start(t, flags...), start(t, flags...))
		})
	}
}

// What one server grants any other renews, settles and releases, and who waits at one is woken by the other.
func TestGrantsOfSharedStores(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, a, b *server) {
		const want = `{"id":"x","want":[` +
			`{"slidinglog":"t","size":10,"interval":3600000,"cost":6},{"lock":"l"}]}`
		first := a.wantPost(t, "/v1/grants", want, "200 …")
		again := b.wantPost(t, "/v1/grants", want, "200 …")
		if one, two := first.header.Get("Gatehouse-Fence"), again.header.Get("Gatehouse-Fence"); one != two {
			t.Errorf("a retry at another server has fence %s, want %s", two, one)
		}
		b.wantPost(t, "/v1/grants/x/settle", `{"slidinglog/t":2}`, `200 …"cost":2,…"remaining":8,…`)
		a.want(t, "/v1/slidinglog/t/peek?cost=8", "204")
		a.wantPost(t, "/v1/grants/x/topup", `{"slidinglog/t":3}`, `200 …"cost":5,…"remaining":5,…`)
		b.wantPost(t, "/v1/grants/x/renew", `{"expires":600000}`, "200 …")
		waits := b.dial(t)
		waits.send(postJSON("/v1/grants", `{"id":"y","want":[{"lock":"l"},{"slidinglog":"t","cost":9}]}`))
		b.allWaiting(t, 1)
		a.wantPost(t, "/v1/grants/x/release", `{"slidinglog/t":1}`, "200 …")
		if got := waits.answer(); !got.is(`200 {"id":"y",…`) {
			t.Errorf("who waited at another server = %s, want 200", got)
		}
		a.wantPost(t, "/v1/grants/x/settle", `{"slidinglog/t":1}`, "409 …")
		a.want(t, "/v1/grants/y", `200 …"ended":false…`)
		b.wantPost(t, "/v1/grants/y/release", `{"slidinglog/t":0}`, "200 …")
		a.want(t, "/v1/slidinglog/t/peek?cost=9", "204")
	})
}

// Many clients at two servers take and settle grants over the same names at once. Nothing is left in the end
// but what was spent.
func TestGrantsAtTwoServersAtOnce(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, a, b *server) {
		const clients, rounds = 8, 5
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				s := []*server{a, b}[i%2]
				for round := range rounds {
					id := fmt.Sprintf("c%d-%d", i, round)
					got := s.post(t, "/v1/grants", fmt.Sprintf(`{"id":%q,"want":[{"semaphore":"s","size":2},`+
						`{"slidinglog":"t","size":1000,"interval":3600000,"cost":20}]}`, id))
					if got.status != 200 {
						t.Errorf("grant %s = %s, want 200", id, got)
						return
					}
					other := []*server{b, a}[i%2]
					other.wantPost(t, "/v1/grants/"+id+"/release", `{"slidinglog/t":3}`, "200 …")
				}
			})
		}
		all.Wait()
		if got := a.stat(t, "slidinglog/t", "available"); got != 1000-3*clients*rounds {
			t.Errorf("%d are left of 1000, want %d", got, 1000-3*clients*rounds)
		}
		if got := b.stat(t, "semaphore/s", "held"); got != 0 {
			t.Errorf("%d slots are held, want none", got)
		}
	})
}

// While the store is away a grant is 503, whatever the rules say, and afterwards it is given again.
func TestGrantsWithoutTheirStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startShared(t, redis, 1, "--store-timeout", "2s", "--config", configFile(t, `
rules:
  - {match: limiter/*, on-unreachable: allow}
`))[0]
	const body = `{"maxwait":0,"want":[{"gcra":"g","size":1000,"interval":1000}]}`
	s.wantPost(t, "/v1/grants", body, "200 …")
	redis.Kill()
	for range 3 {
		a := s.wantPost(t, "/v1/grants", body, "503 …")
		if !strings.Contains(a.body, `"code":"unavailable"`) && !strings.Contains(a.body,
			`"code":"timeout"`) {
			t.Errorf("a grant without the store = %s, want unavailable", a)
		}
		s.want(t, "/v1/gcra/g/acquire?maxwait=0", "204")
	}
	redis.Restart(t)
	s.untilReachable(t)
	s.wantPost(t, "/v1/grants", body, "200 …")
}
