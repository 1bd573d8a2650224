package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These are defects that bouncer has, and we must not have. Others of them are lines of the tables in
// the other files, and the clients that hang up are in hangup_test.go.

// bouncer: a core per waiter at a token bucket or a watchdog.
func TestWaitingCostsNoProcessor(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.want(t, "/v1/tokenbucket/b/acquire?interval=3600000", "204")
	for range 50 {
		s.dial(t).ask("/v1/tokenbucket/b/acquire?interval=3600000")
	}
	for _, request := range []string{
		"/v1/tokenbucket/none/acquire?size=0&interval=1", "/v1/watchdog/w/wait",
		"/v1/semaphore/s/acquire?size=0", "/v1/event/e/wait", "/v1/barrier/b/wait?size=10",
	} {
		for range 5 {
			s.dial(t).ask(request)
		}
	}
	s.inLine(t, "tokenbucket/b", 50)
	s.inLine(t, "barrier/b", 5)
	before := s.processorTime(t)
	s.passes(t, 2*time.Second)
	if used := s.processorTime(t) - before; used > 100*time.Millisecond {
		t.Errorf("the server used %s of processor time in 2s while all waited, want less than 100ms", used)
	}
}

// processorTime is what the process has used, in steps of 10 ms.
func (s *server) processorTime(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatalf("%s has no times where they should be", stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is the most memory the process has used, in bytes.
func (s *server) memory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// bouncer: one GET with a huge size ends the process, or a panic ends the connection.
func TestHugeSizesDoNoHarm(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.want(t, "/v1/semaphore/old/acquire", "200")
	before := s.memory(t)
	for _, c := range []struct{ size, want string }{
		{"1000000000", "2.."},
		{"100000000000", "2.."},          // 10^11
		{"70368744177664", "2.."},        // 2^46
		{"4611686018427387904", "400"},   // 2^62
		{"9223372036854775807", "400"},   // 2^63 - 1
		{"9223372036854775808", "400"},   // 2^63
		{"18446744073709551615", "400"},  // 2^64 - 1
		{"170141183460469231731", "400"}, // more
	} {
		for _, request := range []string{
			"/v1/semaphore/" + c.size + "/acquire?key=a&maxwait=0&size=",
			"/v1/semaphore/old/acquire?maxwait=0&size=",
			"/v1/tokenbucket/" + c.size + "/acquire?maxwait=0&size=",
		} {
			a := s.get(t, request+c.size)
			if got := strconv.Itoa(a.status); got != c.want && (c.want != "2.." || got[0] != '2') {
				t.Errorf("%s%s = %s, want %s", request, c.size, a, c.want)
			}
		}
		a := s.get(t, "/v1/barrier/"+c.size+"/wait?maxwait=0&size="+c.size)
		if !a.is("400") && !a.is("408") {
			t.Errorf("barrier of size %s = %s, want 408 or 400", c.size, a)
		}
	}
	if grown := s.memory(t) - before; grown > 32<<20 {
		t.Errorf("the server grew by %d MiB, want nearly nothing", grown>>20)
	}
}

// bouncer: its write timeout of 30 s cuts every wait, although waiting for ever is the default. The
// waits begin before the parallel tests do, so that they cost no time of their own.
func TestWaitsOf31And40Seconds(t *testing.T) {
	s, name := shared(), fresh(t)
	s.want(t, "/v1/semaphore/"+name+"/acquire?key=a&expires=0", "200")
	slot := s.wait(t, "/v1/semaphore/"+name+"/acquire?key=b")
	token := s.wait(t, "/v1/tokenbucket/"+name+"/acquire?size=0&maxwait=31000")
	token.within(31*time.Second + patience)
	refused := make(chan time.Duration, 1)
	go func() {
		if a, err := token.read(); err != nil || !a.is("408") {
			t.Errorf("maxwait=31000 = %v, %v, want 408", a, err)
		}
		refused <- time.Since(token.asked)
	}()
	t.Parallel()
	if took := <-refused; took < 31*time.Second {
		t.Errorf("maxwait=31000 was refused after %s", took)
	}
	s.passes(t, 40*time.Second-time.Since(slot.asked))
	s.inLine(t, "semaphore/"+name, 1)
	s.want(t, "/v1/semaphore/"+name+"/release?key=a", "204")
	slot.within(patience)
	if a := slot.answer(); !a.is("200 b") {
		t.Errorf("acquire after 40s = %s, want 200 b", a)
	}
	s.want(t, "/v1/semaphore/"+name+"/release?key=b", "204")
}

// bouncer: what is granted after the write timeout is booked, but the client never learns of it.
func TestWaitsOutliveAllTimeouts(t *testing.T) {
	t.Parallel()
	playOn(t, start(t, "--read-timeout", "1s", "--write-timeout", "1s", "--idle-timeout", "1s"), `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		w2: event/{}/wait
		3s pass
		semaphore/{}/release?key=a -> 204
		w1 -> 200 b after 3s
		semaphore/{}/acquire?maxwait=0 -> 408
		semaphore/{}/release?key=b -> 204
		event/{}/send -> 204
		w2 -> 204 after 3s`)
}

// bouncer: maxwait=0 at a full new bucket is refused 298 times of 300.
func TestFreshBucketsGrantAtOnce(t *testing.T) {
	t.Parallel()
	kept, name := shared().dial(t), fresh(t)
	for i := range 300 {
		c := kept
		if i%2 == 0 {
			c = shared().dial(t)
		}
		c.ask(fmt.Sprintf("/v1/tokenbucket/%s-%d/acquire?interval=60000&maxwait=0", name, i))
		if a := c.answer(); !a.is("204") {
			t.Fatalf("maxwait=0 at fresh bucket %d = %s, want 204", i, a)
		}
	}
}

// bouncer: after an idle interval up to twice the size go out at once.
func TestAtMostSizeAfterIdleness(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 5} {
		granted := 0
		for granted == 0 { // until a burst lies within one interval, which it does on an idle machine
			granted = burstAfterIdleness(t, size)
		}
		if granted != size {
			t.Errorf("%d of 20 requests after 2.3 idle intervals were granted, want %d", granted, size)
		}
	}
}

// burstAfterIdleness is how many of a burst were granted, 0 when it is not sure that it was in time.
func burstAfterIdleness(t *testing.T, size int) (granted int) {
	t.Helper()
	c := shared().dial(t)
	request := fmt.Sprintf("/v1/tokenbucket/%s/acquire?size=%d&interval=1000&maxwait=0", fresh(t), size)
	c.ask(request)
	begun := c.asked
	c.answer()
	shared().passes(t, 2300*time.Millisecond)
	c.send(strings.Repeat(rawRequest(request), 20))
	for range 20 {
		if c.answer().is("204") {
			granted++
		}
	}
	if time.Since(begun) > 2900*time.Millisecond {
		return 0
	}
	return granted
}

// bouncer: a refill and a token taken at the same instant let more than the size through.
func TestNoIntervalGrantsMoreThanItsSize(t *testing.T) {
	t.Parallel()
	const size, interval, clients, each = 10, 200 * time.Millisecond, 8, 200
	place := "/v1/tokenbucket/" + fresh(t)
	request := rawRequest(place + "/acquire?size=10&interval=200&maxwait=0")
	begun, total := time.Now(), make(chan int)
	for range clients {
		c := shared().dial(t)
		go func() {
			granted := 0
			for range each {
				c.send(request)
				if a, err := c.read(); err == nil && a.status == 204 {
					granted++
				}
				c.quietUntil(time.Duration(rand.N(15)) * time.Millisecond)
			}
			total <- granted
		}()
	}
	granted := 0
	for range clients {
		granted += <-total
	}
	windows := int(time.Since(begun)/interval) + 1
	if granted > size*windows || granted < size*3 {
		t.Errorf("%d requests in %d intervals were granted, want at most %d", granted, windows, size*windows)
	}
}

// bouncer: a key or a message that looks like HTML is served as such.
func TestMarkupIsServedAsText(t *testing.T) {
	t.Parallel()
	for _, markup := range []string{
		"<html><script>alert(1)</script>", "<!DOCTYPE html>", "%PDF-1.4", "\x89PNG\r\n",
	} {
		name, text := fresh(t), url.QueryEscape(markup)
		shared().want(t, "/v1/event/"+name+"/send?message="+text, "204")
		for request, want := range map[string]string{
			"/v1/semaphore/" + name + "/acquire?key=" + text:          markup,
			"/event/" + name + "/wait":                                markup,
			"/v1/counter/" + name + "/count?" + text + "=1":           "…is unknown…",
			"/v1/event/" + name + "/wait?maxwait=" + text:             "maxwait is …",
			"/v1/" + url.PathEscape(markup) + "/" + name + "/wait":    "kind …",
			"/v1/event/" + url.PathEscape(markup) + "/wait?maxwait=0": "…",
		} {
			a := shared().get(t, request)
			if !matches(want, a.body) || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
				a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s = %s with %v, want %q as text/plain and nosniff", request, a, a.header, want)
			}
		}
	}
}

// bouncer: polling hands a slot on after 73 ms (at the median; the newest polls every 10 ms).
func TestHandOffIsQuick(t *testing.T) {
	var late, trip time.Duration
	for range 20 { // one quiet moment is enough
		if late, trip = handOff(t); late < 10*trip+2*time.Millisecond {
			return
		}
	}
	t.Errorf("a released slot is with who waits after %s at the median, a plain request takes %s, "+
		"want it about as quick", late, trip)
}

// handOff is the median time from a release to the answer of who waits, and that of a plain request.
func handOff(t *testing.T) (late, trip time.Duration) {
	t.Helper()
	s, name := shared(), fresh(t)
	holder, waiter := s.dial(t), s.dial(t)
	acquire, release := "/v1/semaphore/"+name+"/acquire?key=", "/v1/semaphore/"+name+"/release?key="
	holder.ask(acquire + "a")
	holder.answer()
	var lates, trips []time.Duration
	for range 21 {
		waiter.ask(acquire + "b")
		s.inLine(t, "semaphore/"+name, 1)
		holder.ask(release + "a")
		waiter.answer()
		lates = append(lates, time.Since(holder.asked))
		holder.answer()
		waiter.ask(release + "b")
		waiter.answer()
		trips = append(trips, time.Since(waiter.asked))
		holder.ask(acquire + "a")
		holder.answer()
	}
	slices.Sort(lates)
	slices.Sort(trips)
	return lates[len(lates)/2], trips[len(trips)/2]
}

// bouncer: a refusal comes up to 100 ms after its time.
func TestRefusalsArePunctual(t *testing.T) {
	var late, trip time.Duration
	for range 20 { // one quiet moment is enough
		if late, trip = lateRefusal(t); late < 10*trip+10*time.Millisecond {
			return
		}
	}
	t.Errorf("maxwait=15 is refused %s late at the median, a plain refusal takes %s, want it punctual",
		late, trip)
}

// lateRefusal is the median time by which a refusal comes late, and that of one that waits for nothing.
func lateRefusal(t *testing.T) (late, trip time.Duration) {
	t.Helper()
	c := shared().dial(t)
	var lates, trips []time.Duration
	for range 21 {
		c.ask("/v1/semaphore/" + fresh(t) + "/acquire?size=0&maxwait=0")
		c.answer()
		trips = append(trips, time.Since(c.asked))
		c.ask("/v1/semaphore/" + fresh(t) + "/acquire?size=0&maxwait=15")
		c.answer()
		lates = append(lates, time.Since(c.asked)-15*time.Millisecond)
	}
	slices.Sort(lates)
	slices.Sort(trips)
	if lates[0] < 0 {
		t.Errorf("maxwait=15 is refused %s early, want it not before its time", -lates[0])
	}
	return lates[len(lates)/2], trips[len(trips)/2]
}
