package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/digits"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A jsonObject holds the members of a JSON object that is being written. What is before the object may be in
// front of them, with the brace that begins it.
type jsonObject []byte

// addName adds the name of a member, which is plain.
func (o jsonObject) addName(name string) jsonObject {
	if len(o) > 0 && o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), '"', ':')
}

// addRaw adds a member whose value is JSON already.
func (o jsonObject) addRaw(name string, value []byte) jsonObject {
	return append(o.addName(name), value...)
}

func (o jsonObject) addNumber(name string, value int64) jsonObject {
	return digits.AppendInteger(o.addName(name), value)
}

func (o jsonObject) addText(name, value string) jsonObject {
	// Most texts have nothing to escape.
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return o.addRaw(name, encodeJSON(value))
		}
	}
	return append(append(append(o.addName(name), '"'), value...), '"')
}

// closeObject returns the object with its braces.
func (o jsonObject) closeObject() []byte {
	return append(append(append(make([]byte, 0, len(o)+2), '{'), o...), '}')
}

// decisionJSON returns all about a decision. A grant and a refusal have the members that RESP's WITH DETAILS
// gives; every other outcome has only a sentence.
func (r *responder) decisionJSON(d *gatehouse.Decision) []byte {
	var o jsonObject
	o = o.addText("outcome", d.Outcome.String())
	o = o.addRaw("granted", strconv.AppendBool(nil, d.Outcome == gatehouse.Granted))
	// Other outcomes are about the state as it is, of which the figures tell nothing.
	if d.Outcome <= gatehouse.Granted {
		o = r.appendDecision(o, d)
	}
	if d.Number != 0 {
		o = o.addText("decision", gatehouse.DecisionID(d.Number))
	}
	if d.Outcome != gatehouse.Granted {
		o = o.addText("detail", r.denialText(d))
	}
	return o.closeObject()
}

// appendDecision adds the members of a grant or a refusal, in the order that docs/protocols/http.md lists.
func (r *responder) appendDecision(o jsonObject, d *gatehouse.Decision) jsonObject {
	o = o.addFigures(r.levels.decisiveKey(r.key).Kind, d)
	if r.op == gatehouse.OpAcquire && params.HasHolders(r.key.Kind) {
		o = o.addText("key", r.holder)
	}
	// A time left is rounded down and a time to wait up: a client never relies on more than it has.
	if d.Fence != 0 {
		o = o.addRaw("fence", strconv.AppendUint(nil, d.Fence, 10))
		o = o.addNumber("expires_after", params.FloorMillis(d.ExpiresAfter))
	}
	switch r.op {
	case gatehouse.OpDelay, gatehouse.OpReserve, gatehouse.OpCharge:
		o = o.addNumber("delay", params.CeilMillis(d.Delay))
	case gatehouse.OpCount, gatehouse.OpValue:
		o = o.addNumber("value", d.Value)
	case gatehouse.OpWait:
		if r.key.Kind == gatehouse.Event {
			o = o.addText("message", d.Message)
		}
	case gatehouse.OpStats:
		o = o.addRaw("stats", encodeJSON(statsJSON(d.Stats)))
	}
	return append(o, r.levels.detailsJSON()...)
}

// addFigures adds how many there are of what has a limit, and when there are more.
func (o jsonObject) addFigures(kind gatehouse.Kind, d *gatehouse.Decision) jsonObject {
	limiter := kind.Limiter()
	if limiter || params.HasHolders(kind) {
		o = o.addNumber("limit", d.Limit).addNumber("remaining", d.Remaining)
		o = o.addNumber("retry_after", params.CeilMillis(d.RetryAfter))
	}
	if limiter {
		o = o.addNumber("reset_after", params.CeilMillis(d.ResetAfter))
	}
	if len(d.Windows) > 0 {
		o = o.addRaw("windows", windowsJSON(d.Windows))
	}
	if d.Reported != nil {
		o = o.appendReported(d.Reported)
	}
	return o
}

// windowsJSON returns an array with each of several limits. Those that refused have a retry_after.
func windowsJSON(windows []gatehouse.Window) []byte {
	out := []byte{'['}
	for i := range windows {
		if i > 0 {
			out = append(out, ',')
		}
		w := &windows[i]
		var o jsonObject
		o = o.addText("limit", w.Limit.String()).addNumber("remaining", w.Remaining)
		o = o.addNumber("retry_after", params.CeilMillis(w.RetryAfter))
		o = o.addNumber("reset_after", params.CeilMillis(w.ResetAfter))
		out = append(out, o.closeObject()...)
	}
	return append(out, ']')
}

func writeJSON(resp *fasthttp.Response, value any) {
	writeRawJSON(resp, "application/json", encodeJSON(value))
}

// writeRawJSON answers with JSON that is made already. It is not copied, so nothing may change it any more.
func writeRawJSON(resp *fasthttp.Response, contentType string, body []byte) {
	describeJSON(resp, contentType)
	resp.SetBodyRaw(body)
}

// describeJSON sets the headers of an answer in JSON.
func describeJSON(resp *fasthttp.Response, contentType string) {
	resp.Header.SetContentType(contentType)
	// As in writeText: names from requests are part of the body.
	setTextHeader(resp, headerNoSniff, "nosniff")
}

// encodeJSON encodes a value without escaping <, > and &: the type and nosniff keep it from being taken for
// HTML, and each escape would be six bytes.
func encodeJSON(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("bouncer: %T does not marshal: %v", value, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
