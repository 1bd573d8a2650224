package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// An answered is what a request got.
type answered struct {
	status int
	text   string
}

// askLater sends a request that waits, and returns where its answer comes.
func (s *server) askLater(t *testing.T, a asked) <-chan answered {
	t.Helper()
	came := make(chan answered, 1)
	go func() { // ends with the answer, or with the test
		status, text := s.ask(t, a)
		came <- answered{status, text}
	}()
	return came
}

// awaitWaiters waits until so many requests wait for a name.
func (s *server) awaitWaiters(t *testing.T, name string, n int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d wait for %s", n, name), func() bool {
		_, text := s.ask(t, asked{method: "GET", path: "/v1/" + name + "/waiters", token: canary + "ops"})
		return strings.Contains(text, fmt.Sprintf(`"total":%d,`, n))
	})
}

// postAs is askLater of a POST by a user.
func (s *server) postAs(t *testing.T, user, path, body string) <-chan answered {
	t.Helper()
	return s.askLater(t, asked{method: "POST", path: "/v1/" + path, body: body, token: canary + user})
}

// TestReloadEndsWhatIsNotAllowed takes rights away from users who wait and watch, and leaves others what they
// have.
func TestReloadEndsWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	const all = `may: [{on: "*", do: use}]`
	const watch = `may: [{on: "server/activity", do: read}]`
	ops := [2]string{"ops", `may: [{on: "*", do: manage}]`}
	writeUsers(t, file, ops, [2]string{"stays", all}, [2]string{"loses", all},
		[2]string{"moves", "prefix: old/\n    " + all}, [2]string{"child", all}, [2]string{"watches", watch})
	s := start(t, "--users", file)
	for _, name := range []string{"a", "b", "old%2Fc"} {
		<-s.postAs(t, "ops", "lock/"+name+"/acquire?key=k&maxwait=0&expires=0", "")
	}
	<-s.postAs(t, "ops", "gcra/par/acquire?limits=1/1h", "")
	grant := `{"id":"g","expires":60000,"want":[{"lock":"a"},{"lock":"b"}]}`
	stays := s.postAs(t, "stays", "grants", grant)
	waits := map[string]<-chan answered{
		"lock/b":   s.postAs(t, "loses", "grants", grant),
		"lock/c":   s.postAs(t, "moves", "lock/c/acquire?key=k", ""),
		"gcra/par": s.postAs(t, "child", "gcra/kid/acquire?limits=1/1h&parents=gcra/par:1/1h", ""),
	}
	redis := make(map[string]*redisConn)
	for _, user := range []string{"stays", "loses"} {
		redis[user] = dialRedis(t, s.redisAddress(t))
		redis[user].want("AUTH "+canary+user, "OK")
		// It may come before those over HTTP, which wait for its end then.
		redis[user].send("GH.GRANT EXPIRES 1000 WANT lock/a WANT lock/b")
	}
	stream := s.beginStream(t, "watches")
	s.awaitWaiters(t, "lock/b", 4)
	s.awaitWaiters(t, "lock/old%2Fc", 1)
	s.awaitWaiters(t, "gcra/par", 1)
	writeUsers(t, file, ops, [2]string{"stays", all}, [2]string{"more", all},
		[2]string{"loses", `may: [{on: "lock/a", do: use}]`}, [2]string{"moves", "prefix: new/\n    " + all},
		[2]string{"child", `may: [{on: "gcra/kid", do: use}]`},
		[2]string{"watches", `may: [{on: "server/top", do: read}]`})
	awaitLine(t, s.journal, `"users":7`)
	for name, came := range waits {
		if got := <-came; got.status != 403 || !strings.Contains(got.text, "waiting for "+name) {
			t.Errorf("who waits for %s without the right to = %d %s, want 403", name, got.status, got.text)
		}
	}
	if got := redis["loses"].answer(); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("GH.GRANT without the right to one of its names = %s, want -NOPERM", got)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the stream of who may not see it any more ends with %v, want its end", err)
	}
	// Whoever has the right still is not disturbed.
	<-s.postAs(t, "ops", "lock/a/release?key=k", "")
	<-s.postAs(t, "ops", "lock/b/release?key=k", "")
	if got := <-stays; got.status != 200 {
		t.Errorf("the grant of who still may = %d %s, want 200", got.status, got.text)
	}
	<-s.postAs(t, "stays", "grants/g/release", "")
	if got := redis["stays"].answer(); strings.HasPrefix(got, "-") || got == "null" {
		t.Errorf("GH.GRANT of who still may = %s, want a grant", got)
	}
}

// TestGrantsNeedTheRightStill takes away the right to a name of a grant that is held: it can be given back,
// and not be kept for longer.
func TestGrantsNeedTheRightStill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]`})
	s := start(t, "--users", file)
	redis := dialRedis(t, s.redisAddress(t))
	redis.want("AUTH "+canary+"ci", "OK")
	body := `{"id":"g","expires":60000,"want":[{"lock":"a"},{"gcra":"r","limits":"9/1m"}]}`
	if got := <-s.postAs(t, "ci", "grants", body); got.status != 200 {
		t.Fatalf("the grant = %d %s, want 200", got.status, got.text)
	}
	writeUsers(t, file, [2]string{"ci", `may: [{on: "gcra/*", do: use}]`}, [2]string{"more", "may: []"})
	awaitLine(t, s.journal, `"users":2`)
	for _, op := range []string{"RENEW", "PEEK"} {
		redis.send("GH." + op + " grant/g")
		if got := redis.answer(); !strings.HasPrefix(got, "-NOPERM") || !strings.Contains(got, "lock/a") {
			t.Errorf("%s without the right to lock/a = %s, want -NOPERM", op, got)
		}
	}
	if got := <-s.postAs(t, "ci", "grants/g/renew", ""); got.status != 403 {
		t.Errorf("renew without the right to lock/a = %d %s, want 403", got.status, got.text)
	}
	if got := <-s.postAs(t, "ci", "grants/g/release", ""); got.status != 200 {
		t.Errorf("release without the right to lock/a = %d %s, want 200", got.status, got.text)
	}
}

// beginStream begins the stream of what goes on, and returns what follows its first event.
func (s *server) beginStream(t *testing.T, user string) io.Reader {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintf(conn, "GET /v1/activity HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n",
		s.address, canary+user)
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("no stream: %v", err)
		}
		if strings.HasPrefix(line, "event: hello") {
			return reader
		}
	}
}
