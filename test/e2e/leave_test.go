package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"golang.org/x/sys/unix"
)

// These tests are a matrix: doors by stores by ways in which clients leave. In each cell many clients leave
// at varied instants. Every client that is answered holds what its answer says. What is not answered is free:
// at once where the server can see that the client has left, otherwise when the hold expires.

// storeDelay is how long the answers of Redis and etcd take: less than HTTP keeps a goroutine for, and more.
var storeDelays = [...]time.Duration{5 * time.Millisecond, 40 * time.Millisecond}

// matrixStores start servers by the names of their stores. The answers of shared ones take a while.
var matrixStores = map[string]func(t *testing.T, flags ...string) *server{
	"memory": start,
	"disk": func(t *testing.T, flags ...string) *server {
		t.Helper()
		return start(t, append(flags, "--store", "disk:"+t.TempDir())...)
	},
	"Redis": func(t *testing.T, flags ...string) *server {
		t.Helper()
		proxy := redistest.StartProxy(t, redistest.Start(t).Address, 1)
		s := start(t, append(append(flags, patient...), "--store", "redis://"+proxy.Address)...)
		proxy.Delay(storeDelays[rand.IntN(len(storeDelays))])
		return s
	},
	"etcd": func(t *testing.T, flags ...string) *server {
		t.Helper()
		proxy := redistest.StartProxy(t, etcdtest.Start(t, 1).Endpoints()[0], 1)
		s := start(t, append(append(flags, patient...), "--store", "etcd://"+proxy.Address+"/matrix/")...)
		proxy.Delay(storeDelays[rand.IntN(len(storeDelays))])
		return s
	},
}

// eachStore runs a test with a server on each of the stores.
func eachStore(t *testing.T, flags func(t *testing.T) []string, test func(t *testing.T, s *server)) {
	t.Helper()
	for name, begin := range matrixStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, begin(t, flags(t)...))
		})
	}
}

func noFlags(*testing.T) []string { return nil }

// A way is how a client leaves.
type way string

const (
	halfClosed way = "half-closed" // it ends its sending half, and reads on
	hungUp     way = "closed"
	wasReset   way = "reset"
)

// do leaves a connection.
func (w way) do(conn *net.TCPConn) error {
	switch w {
	case halfClosed:
		return conn.CloseWrite()
	case wasReset:
		return errors.Join(conn.SetLinger(0), conn.Close())
	default:
		return conn.Close()
	}
}

// A matrixDoor is a protocol in which holds are acquired.
type matrixDoor interface {
	address(t *testing.T, s *server) string
	// acquire is a request for a place such as lock/a, in bytes.
	acquire(place string, a ask) string
	// read reads the next answer. granted is false for all that is no grant.
	read(from *bufio.Reader) (token uint64, granted bool, err error)
}

// An ask is what a client acquires.
type ask struct {
	key           string
	size          int
	expires, most time.Duration // 0 never expires; most is the longest wait, below 0 without end
}

func (a ask) params() []string {
	maxWait := "-1"
	if a.most >= 0 {
		maxWait = fmt.Sprint(a.most.Milliseconds())
	}
	return []string{
		"key", a.key, "size", fmt.Sprint(max(1, a.size)), "expires", fmt.Sprint(a.expires.Milliseconds()),
		"maxwait", maxWait,
	}
}

// An instant is when a client of the matrix leaves.
type instant int

const (
	beforeItsEnd    instant = iota // of the request
	withItsEnd                     // in the same packet, where the way allows it
	behindIt                       // at once
	whileAnswered                  // somewhere in the time that the store takes
	inLine                         // when it certainly stands there
	inLineAtAGrant                 // while the hold is released that it waits for
	afterPipelining                // two requests at once
	sharingAHold                   // it asks with the key of a hold that somebody else has
)

// instants are all of them, by name.
var instants = map[string]instant{
	"before its end": beforeItsEnd, "with its end": withItsEnd, "behind it": behindIt,
	"while it is answered": whileAnswered, "in line": inLine, "in line at a grant": inLineAtAGrant,
	"after pipelining": afterPipelining, "sharing a hold": sharingAHold,
}

// A cell is one of the matrix.
type cell struct {
	t    *testing.T
	s    *server
	door matrixDoor
	way  way
	to   string // the address
}

// A leaver is a client that leaves.
type leaver struct {
	*net.TCPConn
	cell   *cell
	reader *bufio.Reader
	asked  time.Time
	ask    ask
	token  uint64 // of the answer that it has read; 0 without
	over   bool   // it will read no more
}

// roundsOfACell is how often clients leave at each instant.
const roundsOfACell = 3

func TestNoAnswerWithoutItsEffect(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		for name, door := range map[string]matrixDoor{"HTTP": httpDoor{}, "RESP": respDoor{}} {
			for _, w := range []way{halfClosed, hungUp, wasReset} {
				t.Run(name+" "+string(w), func(t *testing.T) {
					t.Parallel()
					tryCell(t, cell{t, s, door, w, door.address(t, s)})
				})
			}
		}
	})
}

// tryCell has clients leave at all instants.
func tryCell(t *testing.T, c cell) {
	t.Helper()
	run := func(name string, try func(c *cell, name string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c
			c.t = t
			try(&c, fresh(t))
		})
	}
	for name, at := range instants {
		rounds := roundsOfACell
		if at == inLineAtAGrant { // which is the shortest of them
			rounds *= 4
		}
		for range rounds {
			run(name, func(c *cell, name string) { c.leaveOnce(name, at) })
		}
	}
	run("slots", (*cell).slots)
	run("tokens", (*cell).tokens)
}

// dial connects a client that is about to leave.
func (c *cell) dial() *leaver {
	tcp, err := new(net.Dialer).DialContext(c.t.Context(), "tcp", c.to)
	if err != nil {
		c.t.Fatal(err)
	}
	conn := tcp.(*net.TCPConn)
	c.t.Cleanup(func() { _ = conn.Close() })
	return &leaver{TCPConn: conn, cell: c, reader: bufio.NewReader(conn)}
}

// request sends what a client asks.
func (l *leaver) request(place string, a ask) {
	l.asked, l.ask = time.Now(), a
	_, _ = io.WriteString(l.TCPConn, l.cell.door.acquire(place, a)) // that nobody reads it is no failure
}

// cork holds back what is sent until the client leaves, so that both arrive together.
func (l *leaver) cork() {
	raw, err := l.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1)
		})
	}
	if err != nil {
		l.cell.t.Error(err)
	}
}

// leave leaves. A client that has only ended its sending half reads the first answer that comes.
func (l *leaver) leave() {
	_ = l.cell.way.do(l.TCPConn)
	if l.cell.way != halfClosed {
		l.over = true
		return
	}
	_ = l.SetReadDeadline(time.Now().Add(patience))
	l.read()
}

// read reads answers up to a grant.
func (l *leaver) read() {
	for !l.over && l.token == 0 {
		token, granted, err := l.cell.door.read(l.reader)
		if l.over = err != nil; granted && err == nil {
			l.token = token
		}
		if errors.Is(err, unix.ETIMEDOUT) || isTimeout(err) {
			l.over = false
			return
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// expires is how long a hold of a client lasts: without end where the server can see that it has left, for
// then it is free without that.
func (c *cell) expires(at instant) time.Duration {
	seen := c.way == halfClosed || at == beforeItsEnd || at == inLine || at == withItsEnd && c.way == hungUp
	switch {
	case seen:
		return 0
	case at == whileAnswered: // the answer may be read, and then the hold has to be there for a while
		return 3 * time.Second
	default:
		return 500 * time.Millisecond
	}
}

// leaveOnce has a client leave at an instant, and judges what became of that.
func (c *cell) leaveOnce(name string, at instant) {
	place := "lock/" + name
	l := c.dial()
	a := ask{key: "leaver", expires: c.expires(at), most: -1}
	if rand.IntN(2) == 0 && at != inLine && at != inLineAtAGrant {
		a.most = 0
	}
	switch at {
	case beforeItsEnd:
		raw := c.door.acquire(place, a)
		_, _ = io.WriteString(l.TCPConn, raw[:1+rand.IntN(len(raw)-1)])
		l.leave()
	case withItsEnd:
		l.cork()
		l.request(place, a)
		l.leave()
	case whileAnswered:
		l.request(place, a)
		_ = l.SetReadDeadline(time.Now().Add(rand.N(2 * storeDelays[1])))
		l.read()
		l.leave()
	case inLine, inLineAtAGrant:
		c.leaveTheLine(l, place, a, at)
	case afterPipelining:
		c.pipeline(l, name, a)
		return
	case sharingAHold:
		c.share(l, place, a)
		return
	default:
		l.request(place, a)
		l.leave()
	}
	c.judge(l, place, at)
}

// leaveTheLine has a client leave that waits for a hold.
func (c *cell) leaveTheLine(l *leaver, place string, a ask, at instant) {
	c.want("/v1/"+place+"/acquire?key=first&expires=0", "200")
	l.request(place, a)
	c.untilWaiting(place, 1)
	if at == inLine {
		l.leave()
		c.untilWaiting(place, 0)
		c.want("/v1/"+place+"/release?key=first", "204")
		return
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		c.want("/v1/"+place+"/release?key=first", "204")
	}()
	l.leave()
	<-released
}

// pipeline has a client leave that has sent two requests at once.
func (c *cell) pipeline(l *leaver, name string, a ask) {
	first, second := "lock/"+name+"-1", "lock/"+name+"-2"
	raw := c.door.acquire(first, a) + c.door.acquire(second, a)
	_, _ = io.WriteString(l.TCPConn, raw)
	l.asked, l.ask = time.Now(), a
	l.leave()
	next := *l
	if next.token = 0; l.token != 0 {
		next.read()
	}
	c.judge(l, first, afterPipelining)
	c.judge(&next, second, afterPipelining)
}

// share has a client leave that asked with the key of a hold that is there: which stays.
func (c *cell) share(l *leaver, place string, a ask) {
	token := c.s.fence(c.t, "/v1/"+place+"/acquire?key=leaver&expires=0")
	l.request(place, a)
	l.leave()
	if l.token != 0 && l.token != token {
		c.t.Errorf("%s: a second answer for one key has the token %d, want %d", place, l.token, token)
	}
	if got := c.s.fence(c.t, "/v1/"+place+"/acquire?key=leaver&expires=0"); got != token {
		c.t.Errorf("%s: after somebody left who asked with its key, a hold has the token %d, want %d still",
			place, got, token)
	}
	c.refused("/v1/" + place + "/acquire?key=other&maxwait=0")
}

// judge compares what a client was answered with what is held.
func (c *cell) judge(l *leaver, place string, at instant) {
	c.t.Helper()
	acquire := "/v1/" + place + "/acquire?key=next"
	if l.token == 0 {
		a := c.s.get(c.t, acquire+fmt.Sprintf("&maxwait=%d", patience.Milliseconds()))
		if !a.is("200 next") {
			c.t.Errorf("%s: the client that left (instant %d) has read no grant; the next one = %s, want 200",
				place, at, a)
		}
		return
	}
	next := c.s.get(c.t, acquire+"&maxwait=0")
	renew := c.s.get(c.t, "/v1/"+place+"/renew?key=leaver")
	if l.ask.expires > 0 && time.Since(l.asked) >= l.ask.expires {
		return // it may be over by now
	}
	if !next.is("408") || !renew.is("204") || renew.header.Get("Gatehouse-Fence") != fmt.Sprint(l.token) {
		c.t.Errorf("%s: the client that left (instant %d) has read the token %d; the next one = %s, "+
			"and a renew = %s with token %q, want 408, and 204 with that token",
			place, at, l.token, next, renew, renew.header.Get("Gatehouse-Fence"))
	}
}

// want makes a request, as server.want does.
func (c *cell) want(request, pattern string) { c.s.want(c.t, request, pattern) }

// refused wants a request to be refused.
func (c *cell) refused(request string) { c.want(request, "408") }

func (c *cell) untilWaiting(place string, count int) { c.s.inLine(c.t, place, count) }

// acquirePath is an acquire over HTTP.
func acquirePath(place string, a ask) string {
	var query []string
	for params := a.params(); len(params) > 0; params = params[2:] {
		query = append(query, params[0]+"="+params[1])
	}
	return "/v1/" + place + "/acquire?" + strings.Join(query, "&")
}
