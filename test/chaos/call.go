//go:build linux || darwin

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
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

// mayHaveEffect reports whether the call reached a server, as far as is known, and was answered with sense.
func (c *recordedCall) mayHaveEffect() bool { return c.isDecided() || c.isUncertain() }

// toOracle is the call as the oracle knows calls.
func (c *recordedCall) toOracle() *oracle.Call {
	_, name, _ := strings.Cut(c.key, "/")
	kind, _ := gatehouse.ParseKind(c.keyKind())
	op, _ := gatehouse.ParseOp(c.op)
	return &oracle.Call{
		Client: fmt.Sprintf("client %d", c.client), Key: gatehouse.Key{Kind: kind, Name: name},
		Command: gatehouse.Command{
			Op: op, Holder: c.holder, Message: c.message, Cost: c.cost,
			Rule: gatehouse.Rule{Size: c.size}, Amount: c.amount,
			Fence: c.meantFence, Expires: c.expires, MaxWait: c.maxWait,
		},
		Begin: c.start, End: c.end, Answered: c.isDecided(),
		Decision: gatehouse.Decision{
			Outcome: outcomes[c.outcome], Fence: c.fence, Value: c.value, Message: c.text,
		},
	}
}

// outcomes are those of decisions.
var outcomes = map[callOutcome]gatehouse.Outcome{
	granted: gatehouse.Granted, refused: gatehouse.Refused, conflict: gatehouse.Conflict,
}

// isUncertain reports whether the call may have taken effect without its client knowing.
func (c *recordedCall) isUncertain() bool { return c.outcome == unavailable || c.outcome == cut }

// forever is when a process is back that is not back yet.
const forever = time.Duration(1) << 60

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
