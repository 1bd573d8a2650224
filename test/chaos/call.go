//go:build linux || darwin

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An outcome is what came of a call, as its client knows it.
type outcome string

// The outcomes. Of the last three only unsent surely had no effect.
const (
	granted     outcome = "granted"
	refused     outcome = "refused"
	conflict    outcome = "conflict"
	unavailable outcome = "unavailable" // the server said that it failed
	cut         outcome = "cut"         // the connection ended, or nothing came in time
	unsent      outcome = "unsent"      // there was no connection
	faulty      outcome = "faulty"      // an answer that nothing here should get
)

// A call is one request, and what came of it. Times are since the beginning of the run.
type call struct {
	client int
	server string
	linked time.Duration // when its connection was opened

	key, op, holder, message string

	cost, size, amount int64
	means              uint64 // the fencing token of the hold that is meant; 0 when none is named
	interval           time.Duration
	expires, maxWait   time.Duration
	hasty              time.Duration // when its client hangs up; 0 when it is patient
	hasExpires, final  bool          // final: of the last look

	start, end time.Duration
	outcome    outcome
	fence      uint64
	value      int64
	text       string // an event's message, or why it failed
}

// decided reports whether the call was answered with a decision.
func (c *call) decided() bool {
	return c.outcome == granted || c.outcome == refused || c.outcome == conflict
}

// maybe reports whether the call may have taken effect without its client knowing.
func (c *call) maybe() bool { return c.outcome == unavailable || c.outcome == cut }

// forever is the expiry of a hold that has none.
const forever = time.Duration(1) << 60

// lasts is how long what is acquired or renewed is held.
func (c *call) lasts() time.Duration {
	if c.expires == 0 {
		return forever
	}
	return c.expires
}

// parameters are those of the request, as names and values in turn.
func (c *call) parameters() []string {
	var list []string
	number := func(name string, n int64) {
		if n != 0 {
			list = append(list, name, strconv.FormatInt(n, 10))
		}
	}
	number("size", c.size)
	number("cost", c.cost)
	number("amount", c.amount)
	number("interval", c.interval.Milliseconds())
	if c.hasExpires {
		list = append(list, "expires", strconv.FormatInt(c.expires.Milliseconds(), 10))
	}
	if c.op == "acquire" || c.op == "wait" {
		list = append(list, "maxwait", strconv.FormatInt(c.maxWait.Milliseconds(), 10))
	}
	if c.holder != "" {
		list = append(list, "key", c.holder)
	}
	if c.means != 0 {
		list = append(list, "fence", strconv.FormatUint(c.means, 10))
	}
	if c.message != "" {
		list = append(list, "message", c.message)
	}
	return list
}

// kind is what comes before the slash of the key.
func (c *call) kind() string {
	kind, _, _ := strings.Cut(c.key, "/")
	return kind
}

// String is the call as histories show it.
func (c *call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3f to %9.3f  client %-3d %-10s %s %s", c.start.Seconds(), c.end.Seconds(),
		c.client, c.server, c.op, c.key)
	list := c.parameters()
	for i := 0; i < len(list); i += 2 {
		fmt.Fprintf(&b, " %s=%s", list[i], list[i+1])
	}
	fmt.Fprintf(&b, ": %s", c.outcome)
	if c.fence != 0 {
		fmt.Fprintf(&b, " fence %d", c.fence)
	}
	if c.kind() == "counter" && c.outcome == granted {
		fmt.Fprintf(&b, " value %d", c.value)
	}
	if c.text != "" {
		fmt.Fprintf(&b, " %q", c.text)
	}
	return b.String()
}
