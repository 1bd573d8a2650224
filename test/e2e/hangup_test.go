package e2e

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bouncer does not notice a client that goes away while it waits: later it takes a token or a slot all
// the same, or counts at a barrier.
var hangUps = []script{
	{"a slot goes to the next in line", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b&expires=0
		w2: semaphore/{}/acquire?key=c
		w1 hangs up
		semaphore/{}/release?key=a -> 204
		w2 -> 200 c
		semaphore/{}/release?key=b -> 409  # it never got one
		semaphore/{}/stats -> 200 …"acquired":2,…"held":1,"holders":1,"waiting":0}`},
	{"a slot stays free when nobody is next", `
		lock/{}/acquire?key=a -> 200
		w1: lock/{}/acquire?key=b&expires=0
		w1 hangs up
		lock/{}/release?key=a -> 204
		lock/{}/stats -> 200 …"acquired":1,…"held":0,…
		lock/{}/acquire?key=c&maxwait=0 -> 200 c`},
	{"a token goes to the next in line", `
		tokenbucket/{}/acquire?size=1&interval=60000 -> 204
		w1: tokenbucket/{}/acquire?size=1&interval=60000
		w2: tokenbucket/{}/acquire?size=1&interval=60000
		w1 hangs up
		tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 408  # but it raises the size
		w2 -> 204
		tokenbucket/{}/stats -> 200 {"acquired":2,…"available":0,"waiting":0}`},
	{"a token stays in the bucket when nobody is next", `
		w1: tokenbucket/{}/acquire?size=0&interval=60000
		w1 hangs up
		2x tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 408`},
	{"who stood in the way of others does no more", `
		tokenbucket/{}/acquire?size=5&interval=60000&cost=3 -> 204
		w1: tokenbucket/{}/acquire?size=5&interval=60000&cost=4
		w2: tokenbucket/{}/acquire?size=5&interval=60000&cost=2
		w1 leaves
		w2 -> 204`},
	{"a dead client does not count at a barrier", `
		w1: barrier/{}/wait?size=2
		w1 hangs up
		barrier/{}/wait?size=2&maxwait=200 -> 408 after 200ms
		w2: barrier/{}/wait?size=2
		barrier/{}/wait?size=2 -> 204
		w2 -> 204`},
	{"of two who wait with one key, the one left gets the hold", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		w2: semaphore/{}/acquire?key=b
		w1 hangs up
		semaphore/{}/release?key=a -> 204
		w2 -> 200 b
		semaphore/{}/release?key=b -> 204`},
	{"a client that goes away changes nothing for those who hold", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		w1 hangs up
		semaphore/{}/acquire?key=a&maxwait=0 -> 200 a
		semaphore/{}/release?key=a -> 204`},
	{"an event and a watchdog forget who left", `
		w1: event/{}/wait
		w2: watchdog/{}/wait
		w1 hangs up
		w2 hangs up
		event/{}/send -> 204
		event/{}/wait -> 204
		watchdog/{}/kick?expires=0 -> 204
		watchdog/{}/wait -> 204`},
}

func TestHangUps(t *testing.T) {
	t.Parallel()
	play(t, hangUps)
}

// stayOnOneProcessor keeps the order of what the test sends on several connections: packets that are sent
// by different processors may overtake one another. It is for the rest of the test's goroutine, whose
// thread ends with it.
func stayOnOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		t.Fatal(err)
	}
}

// The dangerous instant: the slot is released when the client is gone already, but the server has not
// looked yet. What was granted to it is taken back, and the next in line gets it.
func TestGrantToAClientThatJustLeft(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	keeper := s.dial(t)
	stayOnOneProcessor(t)
	for round := range 100 {
		place := fmt.Sprintf("/v1/semaphore/%s-%d", name, round)
		keeper.ask(place + "/acquire?key=a&expires=0")
		keeper.answer()
		gone := s.wait(t, place+"/acquire?key=b&expires=0")
		gone.hangUp()
		keeper.send(rawRequest(place+"/release?key=a") + rawRequest(place+"/acquire?key=c&maxwait=10000"))
		keeper.answer()
		if a := keeper.answer(); !a.is("200 c") {
			t.Fatalf("round %d: next in line behind a client that left = %s, want 200 c", round, a)
		}
		if held := s.stat(t, placeOf(place+"/acquire"), "held"); held != 1 {
			t.Fatalf("round %d: %d slots are held, want 1: none for the client that left", round, held)
		}
	}
}

// The same for tokens: the client that is gone used none up.
func TestTokenToAClientThatJustLeft(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	keeper := s.dial(t)
	stayOnOneProcessor(t)
	for round := range 50 {
		place := fmt.Sprintf("/v1/tokenbucket/%s-%d", name, round)
		gone := s.wait(t, place+"/acquire?size=0&interval=60000")
		gone.hangUp()
		keeper.ask(place + "/acquire?size=1&interval=60000&maxwait=10000")
		if a := keeper.answer(); !a.is("204") {
			t.Fatalf("round %d: next in line behind a client that left = %s, want 204", round, a)
		}
	}
}

// Many hang up at once, in the middle of everything; the line goes on.
func TestManyHangUpAtOnce(t *testing.T) {
	t.Parallel()
	s, name := start(t), fresh(t)
	place := "/v1/semaphore/" + name
	s.want(t, place+"/acquire?key=a", "200")
	var stay, leave []*conn
	for i := range 300 {
		c := s.dial(t)
		c.ask(fmt.Sprintf("%s/acquire?key=k%d&expires=0", place, i))
		if i%10 == 0 {
			stay = append(stay, c)
		} else {
			leave = append(leave, c)
		}
	}
	s.inLine(t, "semaphore/"+name, 300)
	for i, c := range leave {
		if i%2 == 0 {
			_ = c.SetLinger(0) // a reset instead of an orderly end
		}
		_ = c.Close()
	}
	s.inLine(t, "semaphore/"+name, 30)
	s.want(t, place+"/release?key=a", "204")
	served := make(chan string)
	for _, c := range stay {
		go func() {
			a, err := c.read()
			if err != nil {
				a = &answer{line: err.Error()}
			}
			served <- a.body
		}()
	}
	for range stay {
		select {
		case key := <-served:
			s.want(t, place+"/release?key="+key, "204")
		case <-time.After(patience):
			t.Fatalf("after %s not all who stayed got a slot: %v", patience, s.stats(t, "semaphore/"+name))
		}
	}
	if got := s.stats(t, "semaphore/"+name); fmt.Sprintf("%s %s", got["held"], got["waiting"]) != "0 0" {
		t.Errorf("in the end stats are %v, want nothing held and nobody waiting", got)
	}
}

// What a client has sent behind a request that waits is not looked at when it goes away.
func TestHangUpWithMoreToCome(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	s.want(t, "/v1/semaphore/"+name+"/acquire?key=a", "200")
	c := s.dial(t)
	c.send(rawRequest("/v1/semaphore/"+name+"/acquire?key=b") + rawRequest("/v1/counter/"+name+"/count"))
	s.inLine(t, "semaphore/"+name, 1)
	c.hangUp()
	s.inLine(t, "semaphore/"+name, 0)
	s.want(t, "/v1/semaphore/"+name+"/release?key=a", "204")
	s.want(t, "/v1/semaphore/"+name+"/acquire?key=c&maxwait=0", "200 c")
	s.want(t, "/v1/counter/"+name+"/value", "200 0")
}

// A client that sends no more, as nc does at the end of its input, gets its answer, but does not wait.
func TestClientsThatSendNoMore(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	c := s.dial(t)
	c.send(rawRequest("/v1/counter/"+name+"/count") + rawRequest("/v1/counter/"+name+"/count"))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if a := c.answer(); !a.is(fmt.Sprintf("200 %d", i+1)) {
			t.Errorf("count %d of a client that sends no more = %s, want 200 %d", i+1, a, i+1)
		}
	}
	w := s.wait(t, "/v1/event/"+name+"/wait")
	if err := w.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s.inLine(t, "event/"+name, 0)
	if a, err := w.read(); err == nil {
		t.Errorf("a waiter that sends no more got %s, want the end: it counts as gone", a)
	}
}
