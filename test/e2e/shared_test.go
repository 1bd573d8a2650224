package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// These tests run two or three servers on one real Redis.

// patient are the flags of servers whose store is there, but on a machine that may be busy.
var patient = []string{"--store-timeout", "20s"}

// startShared starts so many servers on a Redis.
func startShared(t *testing.T, redis *redistest.Server, count int, flags ...string) []*server {
	t.Helper()
	servers := make([]*server, count)
	for i := range servers {
		servers[i] = start(t, append([]string{"--store", "redis://" + redis.Address}, flags...)...)
	}
	return servers
}

func TestServersShareWhatIsInRedis(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 2, patient...)
	a, b := servers[0], servers[1]
	for n := 1; n < 10; n += 2 {
		a.want(t, "/v1/counter/visits/count", fmt.Sprintf("200 %d", n))
		b.want(t, "/v1/counter/visits/count", fmt.Sprintf("200 %d", n+1))
	}
	for range 3 {
		a.want(t, "/v1/gcra/api/acquire?size=1&interval=3600000&burst=5&maxwait=0", "204")
		b.want(t, "/v1/gcra/api/acquire?size=1&interval=3600000&burst=5&maxwait=0", "204")
	}
	b.want(t, "/v1/gcra/api/acquire?size=1&interval=3600000&burst=5&maxwait=0", "408")
	a.want(t, "/v1/semaphore/db/acquire?size=2&key=a", "200 a")
	b.want(t, "/v1/semaphore/db/acquire?size=2&key=b", "200 b")
	a.want(t, "/v1/semaphore/db/acquire?size=2&key=c&maxwait=0", "408")
	a.want(t, "/v1/semaphore/db/release?key=b", "204")
	b.want(t, "/v1/semaphore/db/acquire?size=2&key=c&maxwait=0", "200 c")
	b.want(t, "/v1/semaphore/db/renew?key=a", "204")
	a.want(t, "/v1/event/done/send?message=yes", "204")
	b.want(t, "/event/done/wait?maxwait=0", "200 yes")
	first := a.fence(t, "/v1/lock/l/acquire?key=a")
	b.want(t, "/v1/lock/l/release?key=a", "204")
	if second := b.fence(t, "/v1/lock/l/acquire?key=b"); second <= first {
		t.Errorf("the next fencing token, at another server = %d, want more than %d", second, first)
	}
	for _, s := range servers {
		s.want(t, "/v1/semaphore", `200 {"kind":"semaphore","names":["db"],"next":""}…`)
	}
}

// fence acquires, and returns the fencing token.
func (s *server) fence(t *testing.T, request string) (token uint64) {
	t.Helper()
	a := s.get(t, request)
	if _, err := fmt.Sscan(a.header.Get("Gatehouse-Fence"), &token); err != nil || a.status != 200 {
		t.Fatalf("%s = %s, want 200 and a fencing token", request, a)
	}
	return token
}

// Acquired at one server, released at another, a hold goes to who waits at a third, without polling: that
// server looks by itself only about once a second.
func TestReleaseAtOneServerWakesAtAnother(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 3, patient...)
	a, b, c := servers[0], servers[1], servers[2]
	fastest := patience
	for i := range 5 {
		name := fmt.Sprintf("/v1/lock/l%d/", i)
		a.want(t, name+"acquire?key=first", "200")
		waiter := c.wait(t, name+"acquire?key=second")
		released := time.Now()
		b.want(t, name+"release?key=first", "204")
		if answer := waiter.answer(); !answer.is("200 second") {
			t.Fatalf("who waits at the third server is answered %s, want 200 second", answer)
		}
		fastest = min(fastest, time.Since(released))
	}
	if fastest > 500*time.Millisecond {
		t.Errorf("the fastest of 5 wake-ups across servers took %s, want less than a second look", fastest)
	}
}

// With curl, as a person would.
func TestCurlAtThreeServers(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 3, patient...)
	at := func(i int, path string) string { return "http://" + servers[i].address + path }
	runCurl(t, "-f", at(0, "/v1/semaphore/s/acquire?key=a"))
	waiting := startCurl(t.Context(), t, "-f", at(2, "/v1/semaphore/s/acquire?key=b"))
	servers[2].inLine(t, "semaphore/s", 1)
	runCurl(t, "-f", at(1, "/v1/semaphore/s/release?key=a"))
	if out, err := waiting.end(); err != nil || out != "b" {
		t.Errorf("curl at the third server got %q, %v, want b", out, err)
	}
}

// What the rules say holds while Redis is away; nothing hangs; all is well again by itself.
func TestRedisAway(t *testing.T) {
	redis := redistest.Start(t)
	t.Cleanup(redis.Thaw)
	s := startShared(t, redis, 1, "--store-timeout", "2s", "--config", configFile(t, `
servers: 2
rules:
  - {match: tokenbucket/open, on-unreachable: allow}
  - {match: limiter/half, on-unreachable: local-share}
`))[0]
	health := func(want string) {
		t.Helper()
		s.want(t, "/healthz", "200 ok\nstore redis: "+want)
		s.want(t, "/readyz", "200 ready\nstore redis: "+want)
		s.want(t, "/.well-known/ready", "200 I'm ready!\n")
	}
	health("reachable\n")
	for i, away := range []func(){redis.Kill, redis.Freeze} {
		s.want(t, "/v1/lock/held/acquire?key=a&maxwait=0", "200")
		away()
		asked := time.Now()
		s.want(t, "/v1/lock/other/acquire?key=a&maxwait=0", "503 lock/other: the store …")
		if took := time.Since(asked); took > patience/2 {
			t.Errorf("the first request took %s, want 2 s, on a busy machine some more", took)
		}
		s.answersAtOnce(t)
		for n, want := range []string{"204", "204", "408"} {
			limiter := fmt.Sprintf("/v1/fixedwindow/half/acquire?size=4&interval=3600000&maxwait=0&id=%d", i)
			if i == 0 {
				s.want(t, limiter, want)
			} else if n == 0 {
				s.want(t, limiter, "408") // what it counted at the last outage is not forgotten
			}
		}
		s.want(t, "/v1/semaphore", "503")
		health("unreachable for …s\n")
		if i == 0 {
			redis.Restart(t)
		} else {
			redis.Thaw()
		}
		s.untilReachable(t)
		s.want(t, "/v1/lock/held/release?key=a", []string{"409", "204"}[i]) // a restarted Redis is empty
	}
	s.wantMetric(t, `gatehouse_store_reachable{store="redis"} 1`)
	s.wantMetric(t, `gatehouse_store_unreachable_commands_total{rule="allow",store="redis"} 40`)
	s.wantMetric(t, `gatehouse_store_unreachable_commands_total{rule="local-share",store="redis"} 4`)
	for _, said := range []string{"the store does not respond; ", "the store responds again"} {
		if n := strings.Count(s.journal.String(), said); n < 2 {
			t.Errorf("%q is on the log %d times, want at each outage", said, n)
		}
	}
}

// untilReachable waits until the server knows that its store answers.
func (s *server) untilReachable(t *testing.T) {
	t.Helper()
	until(t, "the store is reachable", func() bool { return s.get(t, "/readyz").is("200 …: reachable\n") })
}

// wantMetric looks for a line among the metrics.
func (s *server) wantMetric(t *testing.T, line string) {
	t.Helper()
	if a := s.get(t, "/metrics"); a.status != http.StatusOK || !strings.Contains(a.body, line+"\n") {
		t.Errorf("among the metrics there is no %s, but\n%s", line, linesWith(a.body, "gatehouse_store"))
	}
}

// Who stands in line when Redis goes away is told so soon.
func TestWaitersHearThatRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startShared(t, redis, 1, "--store-timeout", "5s")[0]
	s.want(t, "/v1/lock/l/acquire?key=a", "200")
	waiters := []*conn{
		s.wait(t, "/v1/lock/l/acquire?key=b"), s.wait(t, "/v1/event/e/wait"), s.wait(t, "/v1/lock/l/acquire"),
	}
	redis.Kill()
	for _, w := range waiters {
		if a := w.answer(); !a.is("503 …the store …") || a.header.Get("Retry-After") == "" {
			t.Errorf("who waits is answered %s, want 503, why, and when to try again", a)
		}
	}
}

// A server that starts while Redis is away serves, and uses it when it comes.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	s := startShared(t, redis, 1, "--store-timeout", "5s")[0]
	if said := s.journal.String(); !strings.Contains(said, "the store does not respond") {
		t.Errorf("it says\n%s\nwant that the store does not respond", said)
	}
	s.want(t, "/v1/counter/c/count", "503")
	redis.Restart(t)
	s.untilReachable(t)
	s.want(t, "/v1/counter/c/count", "200 1")
}

// A wrong password ends the server at its start; none is ever shown.
func TestRedisPassword(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "canary-right")
	for _, password := range []string{"", ":canary-wrong@"} {
		address := "redis://" + password + redis.Address
		status, out, said := gatehouse(t, nil, "serve", "--http", "localhost:0", "--store", address)
		if status != 1 || strings.Count(said, "\n") != 1 || strings.Contains(out+said, "canary") {
			t.Errorf("with %q it ended with %d and said %q, want 1 and a line without the password",
				password, status, said)
		}
	}
	s := startWith(t, settings{
		flags: []string{"--http", "localhost:0", "--log-level", "debug"},
		env:   []string{"GATEHOUSE_STORE=redis://:canary-right@" + redis.Address},
	})
	s.want(t, "/v1/counter/c/count", "200 1")
	redis.Kill()
	s.want(t, "/v1/counter/c/count", "503")
	for _, page := range []string{"/metrics", "/readyz", "/v1/counter/c/value"} {
		if a := s.get(t, page); strings.Contains(a.body, "canary") {
			t.Errorf("%s shows the password:\n%s", page, a.body)
		}
	}
	said := s.journal.String()
	if strings.Contains(said, "canary") || !strings.Contains(said, redis.Address) {
		t.Errorf("the log says\n%s\nwant where the store is, and no password", said)
	}
}

// Certificates that do not fit end the server at its start as well.
func TestRedisCertificate(t *testing.T) {
	certificate, key := makeCertificate(t)
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(address, ":")
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key,
		"--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
	status, _, said := gatehouse(t, nil, "serve", "--http", "localhost:0", "--store", "rediss://"+address,
		"--store-timeout", "20s")
	if status != 1 || !matches("…gatehouse: --store: redis: …x509: …", said) {
		t.Errorf("with an unknown authority it ended with %d and said %q, want 1 and why", status, said)
	}
	s := start(t, "--store", "rediss://"+address+"?ca="+certificate, "--store-timeout", "20s")
	s.want(t, "/v1/counter/c/count", "200 1")
}

// makeCertificate makes a certificate of 127.0.0.1, which is its own authority.
func makeCertificate(t *testing.T) (certificate, key string) {
	t.Helper()
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	out, err := exec.CommandContext(t.Context(), "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
		"ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=redis",
		"-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl makes no certificate: %v: %s", err, out)
	}
	return certificate, key
}

// Servers that die without a word leave nothing behind but what they granted, and that ends.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startShared(t, redis, 1, "--store-timeout", "5s")[0]
	dead, err := launch(context.WithoutCancel(t.Context()), settings{
		flags: append([]string{"--http", "localhost:0", "--store", "redis://" + redis.Address}, patient...),
	})
	if err != nil {
		t.Fatal(err)
	}
	dead.want(t, "/v1/lock/kept/acquire?key=granted", "200")
	dead.want(t, "/v1/lock/l/acquire?key=granted&expires=3000", "200")
	dead.wait(t, "/v1/lock/l/acquire?key=waiting")
	if err := dead.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-dead.ended
	s.want(t, "/v1/lock/kept/acquire?key=a&maxwait=0", "408")
	s.want(t, "/v1/lock/l/acquire?key=b", "200 b") // when the hold has expired, and nobody stands before it
}

// A lazy limit is counted in memory, soon known to the others, and answered by its rule when Redis is away.
func TestLazyRule(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	servers := startShared(t, redis, 2, append(patient, "--config", configFile(t, `
rules:
  - {match: fixedwindow/lazy, lazy: 1s, on-unreachable: allow}
`))...)
	const acquire = "/v1/fixedwindow/lazy/acquire?size=100&interval=3600000&maxwait=0"
	for range 100 {
		servers[0].want(t, acquire, "204")
	}
	servers[0].want(t, acquire, "408")
	until(t, "the other server knows", func() bool { return servers[1].get(t, acquire).is("408") })
	if trips := servers[0].metric(t, "gatehouse_store_swaps_total"); trips > 50 {
		t.Errorf("101 requests made %v changes in Redis, want far fewer", trips)
	}
	redis.Kill()
	until(t, "the rule holds", func() bool { return servers[0].get(t, acquire).is("204") })
}

// metric is one of the store's figures.
func (s *server) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	line := linesWith(s.get(t, "/metrics").body, name+"{")
	if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
		t.Fatalf("the metric %s is shown as %q: %v", name, line, err)
	}
	return value
}

// A store on disk counts what it writes.
func TestDiskMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, "--store", "disk:"+t.TempDir())
	for range 10 {
		s.want(t, "/v1/counter/c/count", "200")
	}
	commits := s.metric(t, "gatehouse_store_commits_total")
	records := s.metric(t, "gatehouse_store_records_total")
	if commits < 10 || records < commits {
		t.Errorf("10 counts one by one made %v commits of %v records, want 10 or more", commits, records)
	}
	s.wantMetric(t, `gatehouse_store_full{store="disk"} 0`)
	s.metric(t, "gatehouse_store_flush_seconds")
}

// answersAtOnce shows that requests do not wait for a store that is known to be away: it is not even asked.
func (s *server) answersAtOnce(t *testing.T) {
	t.Helper()
	const asked = "gatehouse_store_apply_seconds_count"
	before := s.metric(t, asked)
	for range 20 {
		s.want(t, "/v1/tokenbucket/open/acquire?size=1&interval=3600000&maxwait=0", "204")
		s.want(t, "/v1/lock/held/release?key=a", "503")
	}
	if n := s.metric(t, asked) - before; n > 1 {
		t.Errorf("by 40 requests the store was asked %v times, want none", n)
	}
}
