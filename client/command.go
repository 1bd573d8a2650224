package client

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// longestQuery is the longest text of parameters that goes into the request line, in bytes. A server reads 8
// KiB of that and all headers; what is longer, such as a message, is sent as a form.
const longestQuery = 4 << 10

// usualQuery is room for the parameters of most commands, in bytes.
const usualQuery = 128

// formType is the type of parameters in a body.
const formType = "application/x-www-form-urlencoded"

// commandMessage is the request for a command.
func commandMessage(key gatehouse.Key, cmd *gatehouse.Command, wait time.Duration) message {
	m := message{method: http.MethodPost}
	p := make(parameters, 0, usualQuery)
	op := ""
	if cmd.Op == gatehouse.OpDelete {
		m.method = http.MethodDelete
	} else {
		op = "/" + cmd.Op.String()
		p.addCommand(key.Kind, cmd, wait)
	}
	m.path = "/v1/" + key.Kind.String() + "/" + key.Name + op
	// Most names are encoded as they are, and then package url needs no other path.
	if encoded := url.PathEscape(key.Name); encoded != key.Name {
		m.rawPath = "/v1/" + key.Kind.String() + "/" + encoded + op
	}
	// Only with details is the answer JSON with all figures.
	p.addText("details", "true")
	m.query = string(p)
	if len(m.query) > longestQuery {
		m.query, m.body, m.contentType = "", p, formType
	}
	return m
}

// parameters are the parameters of a request, encoded.
type parameters []byte

func (p *parameters) addText(name, value string) {
	if len(*p) > 0 {
		*p = append(*p, '&')
	}
	*p = append(append(append(*p, name...), '='), url.QueryEscape(value)...)
}

func (p *parameters) addNumber(name string, value int64) {
	p.addText(name, strconv.FormatInt(value, 10))
}

// addMillis adds a length of time, rounded up so that nothing ends earlier than it was asked for.
func (p *parameters) addMillis(name string, d time.Duration) { p.addNumber(name, upMillis(d)) }

// addIfAny adds a text, unless it is empty.
func (p *parameters) addIfAny(name, value string) {
	if value != "" {
		p.addText(name, value)
	}
}

// upMillis is a length of time in milliseconds, rounded up; Forever is -1.
func upMillis(d time.Duration) int64 {
	if d == gatehouse.Forever {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// addCommand adds what a command says beyond its name and operation.
func (p *parameters) addCommand(kind gatehouse.Kind, cmd *gatehouse.Command, wait time.Duration) {
	// Always told: without it a server lets a request wait forever, and a zero MaxWait means not at all.
	if cmd.Op.Waits() {
		p.addMillis("maxwait", wait)
	}
	p.addOwner(cmd)
	p.addIfAny("key", cmd.Holder)
	switch cmd.Op {
	case gatehouse.OpRelease, gatehouse.OpRenew:
		if cmd.Fence != 0 {
			p.addText("fence", strconv.FormatUint(cmd.Fence, 10))
		}
	case gatehouse.OpSend:
		p.addIfAny("message", cmd.Message)
	case gatehouse.OpCount:
		p.addNumber("amount", cmd.Amount)
	// A limiter is reset as a whole, and has no value.
	case gatehouse.OpReset:
		if kind == gatehouse.Counter {
			p.addNumber("value", cmd.Amount)
		}
	case gatehouse.OpKick:
		p.addMillis("expires", cmd.Expires)
	case gatehouse.OpFeedback:
		p.addFeedback(cmd.Feedback)
	// None of these has a cost, a limit or an end.
	case gatehouse.OpEvict, gatehouse.OpBump, gatehouse.OpClose, gatehouse.OpHolders, gatehouse.OpWaiters:
		p.addOperator(cmd)
		return
	}
	switch {
	case kind.Limiter():
		if takesCost(cmd.Op) {
			p.addNumber("cost", cmd.Cost)
		}
		p.addRule(kind, &cmd.Rule)
	case cmd.Op == gatehouse.OpAcquire:
		p.addNumber("cost", cmd.Cost)
		if kind == gatehouse.Semaphore && cmd.Size != gatehouse.InForce {
			p.addNumber("size", cmd.Size)
		}
		if cmd.Extend {
			p.addText("extend", "true")
		}
		p.addExpires(cmd.Expires)
	case cmd.Op == gatehouse.OpRenew:
		p.addExpires(cmd.Expires)
	case kind == gatehouse.Barrier && cmd.Op == gatehouse.OpWait:
		p.addNumber("size", cmd.Size)
	}
}

// takesCost reports whether an operation of a limiter has a cost.
func takesCost(op gatehouse.Op) bool {
	return op.Yields() || op == gatehouse.OpRefund || op == gatehouse.OpCharge
}

// addExpires adds the length of a hold, unless it stays as it was acquired.
func (p *parameters) addExpires(d time.Duration) {
	if d != gatehouse.AsAcquired {
		p.addMillis("expires", d)
	}
}

// addOwner adds for whom the command is.
func (p *parameters) addOwner(cmd *gatehouse.Command) {
	if cmd.Owner == nil {
		return
	}
	p.addIfAny("owner", cmd.Owner.Name)
	p.addIfAny("host", cmd.Owner.Host)
	p.addIfAny("purpose", cmd.Owner.Purpose)
}

// addOperator adds the parameters of operators and of lists.
func (p *parameters) addOperator(cmd *gatehouse.Command) {
	switch cmd.Op {
	case gatehouse.OpEvict:
		p.addText("id", gatehouse.HolderID(cmd.Fence))
		p.addIfAny("reason", cmd.Message)
		if cmd.Now {
			p.addText("now", "true")
		}
	case gatehouse.OpBump:
		p.addText("id", gatehouse.WaiterID(cmd.Fence))
	case gatehouse.OpClose:
		p.addIfAny("reason", cmd.Message)
	default: // a list
		if cmd.Fence != 0 && cmd.Op == gatehouse.OpHolders {
			p.addText("after", gatehouse.HolderID(cmd.Fence))
		} else if cmd.Fence != 0 {
			p.addText("after", gatehouse.WaiterID(cmd.Fence))
		}
		// With any other amount a gate lists as many as it does by
		// itself, which a server does without a limit.
		if cmd.Amount >= 1 && cmd.Amount <= gatehouse.MaxListed {
			p.addNumber("limit", cmd.Amount)
		}
	}
}

// addFeedback adds what a third party answered.
func (p *parameters) addFeedback(f *gatehouse.Feedback) {
	p.addNumber("status", int64(f.Status))
	if f.RetryAfter > 0 {
		p.addMillis("retry-after", f.RetryAfter)
	}
	// What remains says something only together with the time at which that ends.
	if f.Reset > 0 {
		p.addNumber("remaining", f.Remaining)
		p.addMillis("reset", f.Reset)
	}
}

// addRule adds a limit. Without one the limit in force stays.
func (p *parameters) addRule(kind gatehouse.Kind, r *gatehouse.Rule) {
	var room [mostRuleParts]rulePart
	for _, part := range appendRuleParts(room[:0], kind, r) {
		p.addText(part.name, part.text())
	}
}

// A rulePart is one parameter of a limit: a text, or a number.
type rulePart struct {
	name    string
	word    string // empty for a number
	numeral int64
}

func (r *rulePart) text() string {
	if r.word != "" {
		return r.word
	}
	return strconv.FormatInt(r.numeral, 10)
}

// mostRuleParts is how many parameters a limit has at most.
const mostRuleParts = 6

// appendRuleParts appends the parameters of a limit; none if the rule has no limit.
func appendRuleParts(parts []rulePart, kind gatehouse.Kind, r *gatehouse.Rule) []rulePart {
	if !r.HasLimit() {
		return parts
	}
	switch {
	// The list has the sizes and the intervals, and a server refuses a second way to say them.
	case r.Limits.Len() > 0:
		parts = append(parts, rulePart{name: "limits", word: r.Limits.String()})
	case r.Calendar != gatehouse.NoCalendar:
		parts = append(parts, rulePart{name: "size", numeral: r.Size},
			rulePart{name: "interval", word: r.Calendar.String()})
	default:
		parts = append(parts, rulePart{name: "size", numeral: r.Size},
			rulePart{name: "interval", numeral: upMillis(r.Interval)})
	}
	// Without a burst a server takes one less than the size.
	if kind == gatehouse.GCRA && r.Limits.Len() == 0 && r.Burst != max(0, r.Size-1) {
		parts = append(parts, rulePart{name: "burst", numeral: r.Burst})
	}
	if r.Mode != gatehouse.ModeDefault {
		parts = append(parts, rulePart{name: "mode", word: r.Mode.String()})
	}
	if r.Guard != 0 && kind == gatehouse.Pace {
		parts = append(parts, rulePart{name: "guard", numeral: upMillis(r.Guard)})
	}
	if r.Zone != "" {
		parts = append(parts, rulePart{name: "zone", word: r.Zone})
	}
	return parts
}
