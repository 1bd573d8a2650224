//go:build linux || darwin

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A callOutcome is the result of a call, as far as its client knows it.
type callOutcome string

// The outcomes. Of the last three only unsent surely had no effect.
const (
	granted     callOutcome = "granted"
	refused     callOutcome = "refused"
	conflict    callOutcome = "conflict"
	unavailable callOutcome = "unavailable" // the server said that it failed
	cut         callOutcome = "cut"         // the connection ended, or nothing came in time
	unsent      callOutcome = "unsent"      // there was no connection
	faulty      callOutcome = "faulty"      // an answer that nothing here should get
)

// A recordedCall is one request, and what came of it. Times are since the beginning of the run.
type recordedCall struct {
	client     int
	server     string
	connOpened time.Duration // when its connection was opened

	key, op, holder, message string

	cost, size, amount int64
	meantFence         uint64 // the fencing token of the hold that is meant; 0 when none is named
	interval           time.Duration
	expires, maxWait   time.Duration
	hangsUpAfter       time.Duration // when its client hangs up; 0 when it is patient
	hasExpires, final  bool          // final: of the last look

	start, end time.Duration
	outcome    callOutcome
	fence      uint64
	value      int64
	text       string // an event's message, or why it failed
}

// isDecided reports whether the call was answered with a decision.
func (c *recordedCall) isDecided() bool {
	return c.outcome == granted || c.outcome == refused || c.outcome == conflict
}

// isUncertain reports whether the call may have taken effect without its client knowing.
func (c *recordedCall) isUncertain() bool { return c.outcome == unavailable || c.outcome == cut }

// forever is the expiry of a hold that has none.
const forever = time.Duration(1) << 60

// holdLength is how long what is acquired or renewed is held.
func (c *recordedCall) holdLength() time.Duration {
	if c.expires == 0 {
		return forever
	}
	return c.expires
}

// parameterList are those of the request, as names and values in turn.
func (c *recordedCall) parameterList() []string {
	var list []string
	// 0 stands for a parameter that is left out, except where 0 has a meaning of its own.
	number := func(name string, n int64) {
		if n != 0 {
			list = append(list, name, strconv.FormatInt(n, 10))
		}
	}
	number("size", c.size)
	number("cost", c.cost)
	number("amount", c.amount)
	number("interval", c.interval.Milliseconds())
	// 0 has a meaning here: a hold without an end.
	if c.hasExpires {
		list = append(list, "expires", strconv.FormatInt(c.expires.Milliseconds(), 10))
	}
	// A maxwait that is left out has no limit, so 0 is sent too.
	if c.op == "acquire" || c.op == "wait" {
		list = append(list, "maxwait", strconv.FormatInt(c.maxWait.Milliseconds(), 10))
	}
	if c.holder != "" {
		list = append(list, "key", c.holder)
	}
	if c.meantFence != 0 {
		list = append(list, "fence", strconv.FormatUint(c.meantFence, 10))
	}
	if c.message != "" {
		list = append(list, "message", c.message)
	}
	return list
}

// keyKind is what comes before the slash of the key.
func (c *recordedCall) keyKind() string {
	kind, _, _ := strings.Cut(c.key, "/")
	return kind
}

// String is the call as histories show it.
func (c *recordedCall) String() string {
	var b strings.Builder
	// The times have a fixed width: historyAround sorts lines of calls and faults as text.
	fmt.Fprintf(&b, "%9.3f to %9.3f  client %-3d %-10s %s %s", c.start.Seconds(), c.end.Seconds(),
		c.client, c.server, c.op, c.key)
	list := c.parameterList()
	for i := 0; i < len(list); i += 2 {
		fmt.Fprintf(&b, " %s=%s", list[i], list[i+1])
	}
	fmt.Fprintf(&b, ": %s", c.outcome)
	if c.fence != 0 {
		fmt.Fprintf(&b, " fence %d", c.fence)
	}
	// 0 is a value like any other, so the outcome decides whether there is one.
	if c.keyKind() == "counter" && c.outcome == granted {
		fmt.Fprintf(&b, " value %d", c.value)
	}
	if c.text != "" {
		fmt.Fprintf(&b, " %q", c.text)
	}
	return b.String()
}
