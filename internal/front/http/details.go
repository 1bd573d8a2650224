package http

import (
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// An object is a JSON object that is being written.
type object []byte

// raw appends a member whose value is JSON already.
func (o object) raw(name string, value []byte) object {
	if len(o) > 0 {
		o = append(o, ',')
	}
	o = append(strconv.AppendQuote(o, name), ':')
	return append(o, value...)
}

func (o object) number(name string, value int64) object {
	return o.raw(name, strconv.AppendInt(nil, value, 10))
}

func (o object) text(name, value string) object { return o.raw(name, encodeJSON(value)) }

// end closes the object.
func (o object) end() []byte {
	return append(append([]byte{'{'}, o...), '}')
}

// object is all there is to know about a decision. A grant and a refusal have the members that RESP's WITH
// DETAILS gives; every other outcome has a sentence alone.
func (r *reply) object(d *gatehouse.Decision) []byte {
	var o object
	o = o.text("outcome", d.Outcome.String())
	o = o.raw("granted", strconv.AppendBool(nil, d.Outcome == gatehouse.Granted))
	if d.Outcome <= gatehouse.Granted {
		o = r.appendDecision(o, d)
	}
	if d.Outcome != gatehouse.Granted {
		o = o.text("detail", r.sentence(d))
	}
	return o.end()
}

func (r *reply) appendDecision(o object, d *gatehouse.Decision) object {
	limiter := r.key.Kind.Limiter()
	if limiter || params.HasHolders(r.key.Kind) {
		o = o.number("limit", d.Limit).number("remaining", d.Remaining)
		o = o.number("retry_after", params.CeilMillis(d.RetryAfter))
	}
	if limiter {
		o = o.number("reset_after", params.CeilMillis(d.ResetAfter))
	}
	if len(d.Windows) > 0 {
		o = o.raw("windows", windowsJSON(d.Windows))
	}
	if r.op == gatehouse.OpAcquire && params.HasHolders(r.key.Kind) {
		o = o.text("key", r.holder)
	}
	if d.Fence != 0 {
		o = o.raw("fence", strconv.AppendUint(nil, d.Fence, 10))
		o = o.number("expires_after", params.FloorMillis(d.ExpiresAfter))
	}
	switch r.op {
	case gatehouse.OpDelay, gatehouse.OpReserve, gatehouse.OpCharge:
		o = o.number("delay", params.CeilMillis(d.Delay))
	case gatehouse.OpCount, gatehouse.OpValue:
		o = o.number("value", d.Value)
	case gatehouse.OpWait:
		if r.key.Kind == gatehouse.Event {
			o = o.text("message", d.Message)
		}
	case gatehouse.OpStats:
		o = o.raw("stats", encodeJSON(stats(d.Stats)))
	}
	return o
}

// windowsJSON tells about each of several limits. Those that refused have a retry_after.
func windowsJSON(windows []gatehouse.Window) []byte {
	out := []byte{'['}
	for i := range windows {
		if i > 0 {
			out = append(out, ',')
		}
		w := &windows[i]
		var o object
		o = o.text("limit", w.Limit.String()).number("remaining", w.Remaining)
		o = o.number("retry_after", params.CeilMillis(w.RetryAfter))
		o = o.number("reset_after", params.CeilMillis(w.ResetAfter))
		out = append(out, o.end()...)
	}
	return append(out, ']')
}
