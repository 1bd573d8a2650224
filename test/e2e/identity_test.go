package e2e

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	"golang.org/x/sys/unix"
)

// These tests take things back that somebody else has by now: a reservation, a hold, or a part of a limit.
// What is meant is found by its identity, and nothing else is given back.

// longTime is an interval within which nothing comes back by itself, in ms: about 32 years.
const longTime = "1000000000000"

// identityKinds are the limiters, each with a limit of ten in a long time.
var identityKinds = map[string]string{
	"tokenbucket":   "size=10&interval=" + longTime,
	"gcra":          "size=10&interval=" + longTime + "&burst=9",
	"fixedwindow":   "size=10&interval=" + longTime,
	"slidingwindow": "size=10&interval=" + longTime,
	"slidinglog":    "size=10&interval=" + longTime,
	"pace":          "size=10&interval=" + longTime,
}

// A reserver is one limiter of which places are reserved by clients that leave.
type reserver struct {
	t     *testing.T
	s     *server
	door  string // the protocol of the clients that leave
	place string // such as gcra/a
	limit string
}

// ask makes a request over HTTP.
func (r *reserver) ask(call, params string) *answer {
	r.t.Helper()
	return r.s.get(r.t, "/v1/"+r.place+"/"+call+"?"+params)
}

func (r *reserver) want(call, params, pattern string) {
	r.t.Helper()
	r.s.want(r.t, "/v1/"+r.place+"/"+call+"?"+params, pattern)
}

// fill takes all that the limit lets through at once.
func (r *reserver) fill() {
	r.t.Helper()
	for range 10 {
		r.want("acquire", r.limit+"&maxwait=0", "204")
	}
	r.want("acquire", r.limit+"&maxwait=0", "408")
}

// reserveAndLeave reserves with a key, and hangs up before there can be an answer.
func (r *reserver) reserveAndLeave(key string) {
	r.t.Helper()
	params := r.limit + "&key=" + key
	if r.door == "HTTP" {
		c := r.s.dial(r.t)
		c.ask("/v1/" + r.place + "/reserve?" + params)
		c.hangUp()
		return
	}
	c := dialRedis(r.t, r.s.redisAddress(r.t))
	words := strings.NewReplacer("=", " ", "&", " ").Replace(params)
	_, _ = io.WriteString(c.TCPConn, redisCommand("GH.RESERVE "+r.place+" "+words))
	_ = c.Close()
}

// nothingLeft looks for something that was given back and had not been taken: now, or within the next second.
func (r *reserver) nothingLeft() {
	r.t.Helper()
	for range 4 {
		r.want("acquire", r.limit+"&maxwait=250", "408")
	}
}

// eachReserver runs a test with each store, protocol and limiter.
func eachReserver(t *testing.T, test func(r *reserver)) {
	t.Helper()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		for _, door := range []string{"HTTP", "RESP"} {
			for kind, limit := range identityKinds {
				t.Run(door+" "+kind, func(t *testing.T) {
					t.Parallel()
					test(&reserver{t, s, door, kind + "/" + fresh(t), limit})
				})
			}
		}
	})
}

// A client that reserves again with its key and hangs up, and then cancels, gives back its place and no more.
func TestPlaceOfClientsThatLeaveIsCancelled(t *testing.T) {
	t.Parallel()
	eachReserver(t, func(r *reserver) {
		r.fill()
		for range 2 {
			r.want("reserve", r.limit+"&key=a", "200")
			for range 4 {
				r.reserveAndLeave("a")
			}
			r.want("cancel", "key=a", "204")
			r.nothingLeft()
			for r.ask("cancel", "key=a").is("204") { // of a client that left behind the first cancel
				r.nothingLeft()
			}
		}
	})
}

// A client that asks again with its key, as after a broken connection, keeps its place, and so do those
// behind it.
func TestPlaceIsKeptByItsKey(t *testing.T) {
	t.Parallel()
	eachReserver(t, func(r *reserver) {
		r.fill()
		r.want("reserve", r.limit+"&key=a", "200")
		r.want("reserve", r.limit+"&key=b&cost=10", "200")
		for range 4 {
			r.reserveAndLeave("a")
			r.want("reserve", r.limit+"&key=a", "200")
		}
		r.nothingLeft()
		if n := r.s.stat(r.t, r.place, "reserved"); n != 2 && n != 11 {
			r.t.Errorf("%d are reserved, want the places of a and b", n)
		}
		r.want("cancel", "key=b", "204")
		r.want("cancel", "key=a", "204")
		r.want("cancel", "key=a", "409")
		r.nothingLeft()
	})
}

// pause stops the process, and returns when none of its threads runs any more.
func (s *server) pause(t *testing.T) {
	t.Helper()
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, s.process.Pid, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
}

// A release that is delivered when its hold is over leaves the newer hold of the same key alone.
func TestLateReleaseLeavesANewerHold(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 2, patient...)
	paused, other := servers[0], servers[1]
	for _, kind := range []string{"lock", "semaphore"} {
		name := kind + "/" + fresh(t)
		place := "/v1/" + name
		first := other.fence(t, place+"/acquire?key=a")
		overHTTP, overRESP := paused.dial(t), dialRedis(t, paused.redisAddress(t))
		overRESP.want("PING", "PONG")
		paused.pause(t)
		overHTTP.ask(fmt.Sprintf("%s/release?key=a&fence=%d", place, first))
		overRESP.send(fmt.Sprintf("GH.RELEASE %s KEY a FENCE %d", name, first))
		other.want(t, fmt.Sprintf("%s/release?key=a&fence=%d", place, first), "204")
		second := other.fence(t, place+"/acquire?key=a")
		if err := paused.process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if a := overHTTP.answer(); !a.is("409 …token…") {
			t.Errorf("%s: the late release = %s, want 409", name, a)
		}
		if a := overRESP.answer(); !matches("-CONFLICT …token…", a) {
			t.Errorf("%s: the late release over RESP = %s, want CONFLICT", name, a)
		}
		other.want(t, place+"/acquire?key=b&maxwait=0", "408")
		other.want(t, fmt.Sprintf("%s/renew?key=a&fence=%d", place, first), "409")
		other.want(t, fmt.Sprintf("%s/renew?key=a&fence=%d", place, second), "204")
		other.want(t, fmt.Sprintf("%s/release?fence=%d", place, second), "400")
		other.want(t, fmt.Sprintf("%s/release?key=a&fence=%d", place, second), "204")
	}
}

// A cutServer is one of two servers on a Redis: the answers it waits for get lost.
type cutServer struct {
	t        *testing.T
	s, other *server
	line     *redistest.Proxy
}

func startCut(t *testing.T) *cutServer {
	t.Helper()
	redis := redistest.Start(t)
	line := redistest.StartProxy(t, redis.Address, 1)
	s := start(t, "--store", "redis://"+line.Address, "--store-timeout", "5s")
	return &cutServer{t, s, startShared(t, redis, 1, patient...)[0], line}
}

// know has the server know a lock. It waits for its store for a short time only, so it is asked again.
func (c *cutServer) know(place string) {
	c.t.Helper()
	until(c.t, "the lock acquired", func() bool {
		return c.s.get(c.t, place+"/acquire?key=before").status == 200
	})
	until(c.t, "the lock released", func() bool {
		return c.s.get(c.t, place+"/release?key=before").status != 503
	})
}

// unknown makes a request of which the server does not learn what became of it: it is carried out, and
// answered 503. Should the server read the record first, that answer is lost, and it is not carried out: then
// another is made.
func (c *cutServer) unknown(prepare func(i int) (request string), made func(request string) bool) string {
	c.t.Helper()
	for i := range 20 {
		request := prepare(i)
		c.line.Lose(1)
		c.s.want(c.t, request, "503")
		if made(request) {
			return request
		}
		c.join()
	}
	c.t.Fatal("of 20 requests whose answers were lost none was carried out")
	return ""
}

// join has the server reach its store again.
func (c *cutServer) join() {
	c.t.Helper()
	c.line.Lose(0)
	c.s.untilReachable(c.t)
}

// tookBack waits until the server has taken back what it may have been granted.
func (c *cutServer) tookBack() {
	c.t.Helper()
	const none = `gatehouse_store_amended_total{store="redis"} 0`
	until(c.t, "the server has looked at what it may have been granted", func() bool {
		return !strings.Contains(c.s.get(c.t, "/metrics").body, none+"\n")
	})
}

// The hold of an acquire that was answered 503 is taken back later, unless it was renewed meanwhile: then its
// holder knows of it.
func TestHoldOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, renewed := range map[string]bool{"renewed": true, "not renewed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCut(t)
			request := c.unknown(func(i int) string {
				place := fmt.Sprintf("/v1/lock/l%d", i)
				c.know(place)
				return place + "/acquire?key=a&expires=0"
			}, func(request string) bool { return c.other.stat(t, placeOf(request), "held") == 1 })
			place := "/v1/" + placeOf(request)
			if renewed {
				c.other.want(t, place+"/renew?key=a&expires=0", "204")
			}
			c.join()
			c.tookBack()
			if renewed {
				c.other.want(t, place+"/acquire?key=b&maxwait=0", "408")
				c.other.want(t, place+"/release?key=a", "204")
			}
			c.other.want(t, place+"/acquire?key=b", "200")
		})
	}
}

// The place of a reserve that was answered 503 is taken back later, and bars nobody any more.
func TestPlaceOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for kind, limit := range identityKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := startCut(t)
			request := c.unknown(func(i int) string {
				place := fmt.Sprintf("/v1/%s/l%d", kind, i)
				c.s.want(t, place+"/acquire?"+limit, "204")
				return place + "/reserve?key=a&cost=10&" + limit
			}, func(request string) bool { return c.other.stat(t, placeOf(request), "acquired") == 2 })
			place := "/v1/" + placeOf(request)
			c.other.want(t, place+"/acquire?maxwait=0&"+limit, "408")
			c.join()
			c.tookBack()
			for range 9 {
				c.other.want(t, place+"/acquire?maxwait=0&"+limit, "204")
			}
			c.other.want(t, place+"/acquire?maxwait=0&"+limit, "408")
		})
	}
}
