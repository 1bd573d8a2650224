package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var events = []script{
	{"who waits goes when it is sent, all together", `
		w1: event/{}/wait
		w2: event/{}/wait?maxwait=60000
		w3: /event/{}/wait
		event/{}/send?message=go -> 204
		w1 -> 204 [X-Bouncer-Message: go]
		w2 -> 204 [X-Bouncer-Message: go]
		w3 -> 200 go [X-Bouncer-Message: -]`},
	{"who comes later goes at once", `
		event/{}/send -> 204
		event/{}/wait -> 204
		event/{}/wait?maxwait=0 -> 204
		/event/{}/wait?maxwait=0 -> 200 ""`},
	{"it is sent once, and the first message stays", `
		event/{}/send?message=first -> 204
		event/{}/send?message=second -> 409 event/{} was sent before; an event is sent once
		event/{}/send -> 409
		/event/{}/wait -> 200 first`},
	{"without a message there is none", `
		event/{}/send -> 204
		event/{}/wait -> 204 [X-Bouncer-Message: -]
		/event/{}/wait -> 200 "" [Content-Type: text/plain; charset=utf-8]`},
	{"under v1 the message is percent-encoded, in a header", `
		event/{}/send?message=a+b%25%0D%0AX-Evil:1%E2%82%AC -> 204
		event/{}/wait -> 204 [X-Bouncer-Message: a%20b%25%0D%0AX-Evil…1%E2%82%AC] [X-Evil: -]
		/event/{}/wait -> 200 a b%…X-Evil:1€`},
	{"a refusal says so in its body", `
		event/{}/wait?maxwait=0 -> 408 event/{}: wait not granted at once; …
		event/{}/wait?maxwait=100 -> 408 event/{}: wait not granted within maxwait=100 ms; … after 100ms
		/event/{}/wait?maxwait=100 -> 408 event/{}: wait not granted within maxwait=100 ms; … after 100ms`},
	{"it can be sent again after a DELETE", `
		event/{}/send?message=first -> 204
		DELETE event/{} -> 204
		event/{}/wait?maxwait=0 -> 408
		event/{}/send?message=second -> 204
		/event/{}/wait -> 200 second`},
}

func TestEvent(t *testing.T) {
	t.Parallel()
	play(t, events)
}

var watchdogs = []script{
	{"a kick is always answered 204", `
		watchdog/{}/kick -> 204
		watchdog/{}/kick?expires=0 -> 204
		watchdog/{}/kick?expires=0 -> 204  # after it fired, too
		watchdog/{}/kick?expires=60000 -> 204`},
	{"while kicks come, a wait is refused", `
		watchdog/{}/kick -> 204
		watchdog/{}/wait?maxwait=0 -> 408 watchdog/{}: wait not granted …try again in … ms [Retry-After: ~60]
		watchdog/{}/wait?maxwait=200 -> 408 after 200ms`},
	{"without a kick the waiters are told", `
		watchdog/{}/kick?expires=3000 -> 204
		w1: watchdog/{}/wait
		w2: /watchdog/{}/wait
		w1 -> 204
		w2 -> 204`},
	{"once expired, every wait returns at once, until the next kick", `
		watchdog/{}/kick?expires=100 -> 204
		watchdog/{}/wait -> 204 after 0s
		watchdog/{}/wait -> 204 after 0s
		watchdog/{}/wait?maxwait=0 -> 204
		watchdog/{}/kick -> 204
		watchdog/{}/wait?maxwait=0 -> 408
		watchdog/{}/wait?maxwait=200 -> 408 after 200ms`},
	{"a kick may shorten", `
		watchdog/{}/kick?expires=60000 -> 204
		w1: watchdog/{}/wait
		watchdog/{}/kick?expires=200 -> 204
		w1 -> 204 after 0s`},
	{"a kick may lengthen", `
		watchdog/{}/kick?expires=2000 -> 204
		w1: watchdog/{}/wait?maxwait=4000
		watchdog/{}/kick?expires=60000 -> 204
		w1 -> 408 after 4s`},
	{"expires=0 fires now", `
		watchdog/{}/kick -> 204
		w1: watchdog/{}/wait
		watchdog/{}/kick?expires=0 -> 204
		w1 -> 204
		watchdog/{}/wait?maxwait=0 -> 204`},
	{"who waits before the first kick goes by that kick", `
		w1: watchdog/{}/wait
		watchdog/{}/kick?expires=200 -> 204
		w1 -> 204 after 0s`},
	{"one that was never kicked gives a minute, whatever the wait says", `
		watchdog/{}/wait?expires=100&maxwait=400 -> 408 after 400ms
		watchdog/{}/wait?expires=100&maxwait=0 -> 408 [Retry-After: ~60]`},
}

func TestWatchdog(t *testing.T) {
	t.Parallel()
	play(t, watchdogs)
}

// The signal comes when the time of the last kick is over, no earlier and to everybody.
func TestWatchdogIsPunctual(t *testing.T) {
	t.Parallel()
	s, place := shared(), "/v1/watchdog/"+fresh(t)
	s.want(t, place+"/kick?expires=60000", "204")
	var waiters []*conn
	for range 10 {
		waiters = append(waiters, s.wait(t, place+"/wait"))
	}
	kick := s.dial(t)
	kick.ask(place + "/kick?expires=500")
	kick.answer()
	for i, w := range waiters {
		if a := w.answer(); !a.is("204") {
			t.Errorf("waiter %d = %s, want 204", i+1, a)
		}
		if took := time.Since(kick.asked); took < 500*time.Millisecond || took > patience/2 {
			t.Errorf("waiter %d got the signal %s after the kick, want 500ms", i+1, took)
		}
	}
}

var counters = []script{
	{"it counts, one by one or by an amount", `
		counter/{}/count -> 200 1
		counter/{}/count?amount=5 -> 200 6
		counter/{}/count?amount=-10 -> 200 -4
		counter/{}/count?amount=0 -> 200 -4
		counter/{}/value -> 200 -4`},
	{"a value is 0 when nothing was counted", `
		counter/{}/value -> 200 0
		/counter/{}/value -> 200 0`},
	{"reset sets it, to 0 if not told otherwise", `
		counter/{}/count?amount=5 -> 200 5
		counter/{}/reset -> 204
		counter/{}/value -> 200 0
		counter/{}/reset?value=-7 -> 204
		counter/{}/count -> 200 -6`},
	{"a reset may be the first", `
		counter/{}/reset?value=3 -> 204
		counter/{}/value -> 200 3`},
	{"it goes up to the last number of 64 bits, and does not wrap", `
		counter/{}/count?amount=9223372036854775807 -> 200 9223372036854775807
		counter/{}/count -> 409 counter/{} stands at 9223372036854775807, and 1 more would overflow 64 bits
		counter/{}/count?amount=9223372036854775807 -> 409
		counter/{}/value -> 200 9223372036854775807
		counter/{}/count?amount=0 -> 200 9223372036854775807
		counter/{}/count?amount=-1 -> 200 9223372036854775806
		counter/{}/count -> 200 9223372036854775807
		counter/{}/stats -> 200 {"value":9223372036854775807,"increments":4,…`},
	{"and down to the first", `
		counter/{}/count?amount=-9223372036854775808 -> 200 -9223372036854775808
		counter/{}/count?amount=-1 -> 409
		counter/{}/count?amount=-9223372036854775808 -> 409
		counter/{}/value -> 200 -9223372036854775808
		counter/{}/count?amount=9223372036854775807 -> 200 -1
		counter/{}/count?amount=-9223372036854775808 -> 409
		counter/{}/value -> 200 -1`},
}

func TestCounter(t *testing.T) {
	t.Parallel()
	play(t, counters)
}

// Every one of many counts at once is a step of its own.
func TestCountsAreNotLost(t *testing.T) {
	t.Parallel()
	s, place := shared(), "/v1/counter/"+fresh(t)
	conns := make([]*conn, 20)
	for i := range conns {
		conns[i] = s.dial(t)
		conns[i].send(strings.Repeat(rawRequest(place+"/count"), 50))
	}
	seen := map[string]bool{}
	for _, c := range conns {
		for range 50 {
			seen[c.answer().body] = true
		}
	}
	for i := 1; i <= 1000; i++ {
		if !seen[fmt.Sprint(i)] {
			t.Fatalf("1000 counts gave %d different values without %d, want 1 to 1000", len(seen), i)
		}
	}
}

var barriers = []script{
	{"the last that it waits for lets all go", `
		w1: barrier/{}/wait?size=3
		w2: /barrier/{}/wait?size=3
		barrier/{}/wait?size=3 -> 204
		w1 -> 204
		w2 -> 204`},
	{"it takes two if not told otherwise", `
		w1: barrier/{}/wait
		barrier/{}/wait -> 204
		w1 -> 204`},
	{"once open it is a conflict, until a DELETE", `
		barrier/{}/wait?size=1 -> 204
		barrier/{}/wait?size=1 -> 409 barrier/{} has opened already
		barrier/{}/wait?size=5 -> 409
		barrier/{}/wait?maxwait=0 -> 409
		DELETE barrier/{} -> 204
		barrier/{}/wait?size=1 -> 204`},
	{"the size of the first stays", `
		w1: barrier/{}/wait?size=3
		w2: barrier/{}/wait?size=2
		barrier/{}/wait?size=9 -> 204
		w1 -> 204
		w2 -> 204`},
	{"who gave up counts no more", `
		w1: barrier/{}/wait?size=2
		w1 hangs up
		barrier/{}/wait?size=2&maxwait=100 -> 408 after 100ms
		barrier/{}/wait?size=2&maxwait=100 -> 408 after 100ms
		w2: barrier/{}/wait?size=2
		barrier/{}/wait?size=2 -> 204
		w2 -> 204`},
	{"maxwait=0 is refused unless it is the last", `
		barrier/{}/wait?size=2&maxwait=0 -> 408
		barrier/{}/wait?size=2&maxwait=0 -> 408  # the first of these did not stay
		w1: barrier/{}/wait?size=2
		barrier/{}/wait?size=2&maxwait=0 -> 204
		w1 -> 204`},
	{"size 1 is open at once", `
		barrier/{}/wait?size=1&maxwait=0 -> 204`},
	{"size 0 never opens", `
		w1: barrier/{}/wait?size=0
		w2: barrier/{}/wait?size=0
		barrier/{}/wait?size=0&maxwait=200 -> 408 after 200ms
		barrier/{}/wait?size=1&maxwait=0 -> 408
		barrier/{}/stats -> 200 …"waiting":2}`},
}

func TestBarrier(t *testing.T) {
	t.Parallel()
	play(t, barriers)
}
