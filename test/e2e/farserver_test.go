package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// These tests run two servers on one real Redis, one of which is 50 times as far from it as the other.
const (
	nearTrip = 200 * time.Microsecond
	farTrip  = 10 * time.Millisecond

	// loadClients is how many clients each server has, each of which asks again as soon as it is answered.
	loadClients = 64
	// loadTime is how long they do so.
	loadTime = time.Second
	// within is where a server stops waiting for its store: what takes longer is answered 503. A busy machine
	// may need the usual 500ms for a round trip; a server that loses all races does so however long.
	within = "3s"
)

// A pair is two servers of one store, one of which is far from it.
type pair struct{ near, far *server }

// startFar starts a near and a far server on a Redis of the test's own.
func startFar(t *testing.T) pair {
	t.Helper()
	return startApart(t, "redis://", redistest.Start(t).Address)
}

// startApart starts a near and a far server on a store, whose flag is the scheme and an address.
func startApart(t *testing.T, scheme, address string) pair {
	t.Helper()
	at := func(trip time.Duration) *server {
		proxy := redistest.StartProxy(t, address, 1)
		proxy.Delay(trip)
		return start(t, "--store", scheme+proxy.Address, "--store-timeout", within)
	}
	return pair{at(nearTrip), at(farTrip)}
}

// A wanted request has this status. A %d in it stands for the round it is asked in.
type wanted struct {
	request string
	status  int
}

// failures is how many requests are answered otherwise, of those that are asked one after the other in each
// round.
func (s *server) failures(t *testing.T, rounds int, requests []wanted) (failed int) {
	t.Helper()
	for round := range rounds {
		for _, r := range requests {
			request := strings.ReplaceAll(r.request, "%d", strconv.Itoa(round))
			if a := s.get(t, request); a.status != r.status {
				t.Logf("%s = %s", request, a)
				failed++
			}
		}
	}
	return failed
}

// A load is clients of one server that go on until it ends.
type load struct {
	end    context.CancelFunc
	work   sync.WaitGroup
	counts [600]atomic.Int64 // of answers, by their status
}

// begin has so many clients ask a server for the same again and again.
func (s *server) begin(t *testing.T, clients int, request string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{end: cancel}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport}
	for range clients {
		l.work.Go(func() {
			for ctx.Err() == nil {
				l.count(ctx, client, "http://"+s.address+request)
			}
		})
	}
	t.Cleanup(func() {
		l.stop()
		transport.CloseIdleConnections()
	})
	return l
}

// count counts one answer.
func (l *load) count(ctx context.Context, client *http.Client, url string) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	response, err := client.Do(ask)
	if err != nil {
		l.counts[0].Add(1) // it was cut off by the end, or something is wrong
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	l.counts[response.StatusCode].Add(1)
}

func (l *load) stop() {
	l.end()
	l.work.Wait()
}

// passed is how many requests took effect.
func (l *load) passed() int64 { return l.counts[200].Load() + l.counts[204].Load() }

// String is how many answers there were of each status.
func (l *load) String() string {
	var all []string
	for status := range l.counts {
		if n := l.counts[status].Load(); n > 0 {
			all = append(all, fmt.Sprintf("%d×%d", n, status))
		}
	}
	return strings.Join(all, " ")
}

// both loads two servers for the same time.
func (p pair) both(t *testing.T, request string, length time.Duration) (atNear, atFar *load) {
	t.Helper()
	atNear, atFar = p.near.begin(t, loadClients, request), p.far.begin(t, loadClients, request)
	shared().passes(t, length) // by a server that has no load
	atNear.stop()
	atFar.stop()
	return atNear, atFar
}

// alone loads one server.
func (s *server) alone(t *testing.T, request string, length time.Duration) *load {
	t.Helper()
	l := s.begin(t, loadClients, request)
	shared().passes(t, length) // by a server that has no load
	l.stop()
	return l
}

// wellConnected complains if a server thinks that its store is away, or ever thought so.
func (s *server) wellConnected(t *testing.T) {
	t.Helper()
	s.wantMetric(t, `gatehouse_store_reachable{store="redis"} 1`)
	if strings.Contains(s.journal.String(), "does not respond") {
		t.Errorf("the log says that the store does not respond, which it always did:\n%s", s.journal)
	}
}

// Of a limit that both servers exhaust the far one gets a tenth of an even share at least.
func TestFarServerOnAHotLimiter(t *testing.T) {
	servers := startFar(t)
	near, far := servers.near, servers.far
	for _, limiter := range []string{
		"gcra/%s/acquire?size=1000&interval=1000&burst=50", "pace/%s/acquire?size=1000&interval=1000",
		"slidinglog/%s/acquire?size=100&interval=100", "slidingwindow/%s/acquire?size=100&interval=100",
		"tokenbucket/%s/acquire?size=100&interval=100", "fixedwindow/%s/acquire?size=1000&interval=1000",
	} {
		kind, _, _ := strings.Cut(limiter, "/")
		request := fmt.Sprintf("/v1/"+limiter, "hot"+fmt.Sprint(len(limiter))) + "&maxwait=0"
		atNear, atFar := servers.both(t, request, loadTime)
		// On a busy machine a second is too little to tell: then it has more of them.
		for range 4 {
			if n, f := atNear.passed(), atFar.passed(); n+f >= 500 && f*20 >= n {
				break
			}
			atNear, atFar = servers.both(t, request, loadTime)
		}
		n, f := atNear.passed(), atFar.passed()
		t.Logf("%s: near %s, far %s", request, atNear, atFar)
		if even := (n + f) / 2; f < even/10 || f == 0 {
			t.Errorf("%s: the far server's clients got %d, the near one's %d; want a tenth of %d at least",
				kind, f, n, even)
		}
		if failed := atFar.counts[503].Load(); failed > 0 {
			t.Errorf("%s: the far server answered %d times 503", kind, failed)
		}
	}
	near.wellConnected(t)
	far.wellConnected(t)
}

// A comparison is how many requests two servers let through alone and together.
type comparison struct{ nearAlone, farAlone, near, far int64 }

// compare loads two servers by turns, alone and together, so that what else the machine does meets all alike.
func (p pair) compare(t *testing.T, request string) (c comparison) {
	t.Helper()
	const rounds = 4
	for range rounds {
		c.nearAlone += p.near.alone(t, request, loadTime/rounds).passed()
		c.farAlone += p.far.alone(t, request, loadTime/rounds).passed()
		atNear, atFar := p.both(t, request, loadTime/rounds)
		c.near, c.far = c.near+atNear.passed(), c.far+atFar.passed()
	}
	return c
}

// fair reports whether the far server gets a tenth of what it gets alone, and the near one a third.
func (c comparison) fair() bool { return c.far >= c.farAlone/10 && c.near >= c.nearAlone/3 }

// Where nothing is refused, the far server gets a tenth of what it gets alone, and the near one a third. On a
// machine whose load comes and goes one of some comparisons has to show that.
func TestFarServerWhereNoLimitBinds(t *testing.T) {
	servers := startFar(t)
	near, far := servers.near, servers.far
	const most = 4
	for _, request := range []string{
		"/v1/counter/hot/count", "/v1/fixedwindow/hot/acquire?size=999999999&interval=3600000&maxwait=0",
	} {
		var seen []comparison
		for len(seen) < most && (len(seen) == 0 || !seen[len(seen)-1].fair()) {
			seen = append(seen, servers.compare(t, request))
		}
		t.Logf("%s: %+v", request, seen)
		if !seen[len(seen)-1].fair() {
			t.Errorf("%s: %+v, want a tenth of farAlone for far, and a third of nearAlone for near",
				request, seen)
		}
	}
	near.wellConnected(t)
	far.wellConnected(t)
}

// While a near server's clients poll a lock, and others use a semaphore that has room, what is held at the
// far one can be renewed and released in time.
func TestFarServerRenewsAndReleases(t *testing.T) {
	servers := startFar(t)
	near, far := servers.near, servers.far
	far.want(t, "/v1/lock/hot/acquire?key=a&expires=600000", "200 a")
	near.begin(t, loadClients/2, "/v1/lock/hot/acquire?key=b&maxwait=0")
	near.begin(t, loadClients/2, "/v1/semaphore/hot/acquire?key=b&size=100&maxwait=0")
	const rounds = 25
	failed := far.failures(t, rounds, []wanted{
		{"/v1/lock/hot/renew?key=a", 204},
		{"/v1/semaphore/hot/acquire?key=a%d&size=100&maxwait=0", 200},
		{"/v1/semaphore/hot/renew?key=a%d", 204},
		{"/v1/semaphore/hot/release?key=a%d", 204},
		{"/v1/counter/other-%d/count", 200},
	})
	if failed > 5*rounds/100 {
		t.Errorf("%d of %d renews, releases and others failed, want at most one in a hundred",
			failed, 5*rounds)
	}
	far.wellConnected(t)
}

// Those who wait at a far server stand in line, and go by their age among those at the near one.
func TestFarServerWaiters(t *testing.T) {
	servers := startFar(t)
	near, far := servers.near, servers.far
	far.want(t, "/v1/lock/hot/acquire?key=holder&expires=600000", "200 holder")
	near.begin(t, loadClients, "/v1/lock/hot/acquire?key=poll&maxwait=0")
	var waiters []*conn
	for i := range 6 {
		at := far
		if i%2 == 1 {
			at = near
		}
		waiters = append(waiters, at.wait(t, fmt.Sprintf("/v1/lock/hot/acquire?key=w%d&maxwait=60000", i)))
	}
	key := "holder"
	for i, w := range waiters {
		far.want(t, "/v1/lock/hot/release?key="+key, "204")
		if key = fmt.Sprint("w", i); !w.answer().is("200 " + key) {
			t.Errorf("waiter %d was not the next", i)
		}
	}
	far.wellConnected(t)
}
