package bouncer

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/form"
	"github.com/valyala/fasthttp"
)

// A reply is how one request wants to be answered. It outlives the request while that waits.
type reply struct {
	key     gatehouse.Key
	op      gatehouse.Op
	maxWait time.Duration
	holder  string
	holds   bool // a grant is held until it is released or expires
	v1      bool
	json    bool   // refusals as application/problem+json
	origin  string // of a web page that may read the answer
	close   bool   // the connection ends with the answer
	http10  bool
	scratch []byte // to put headers together in; nil will do
}

// reply notes how the request that ctx is about wants to be answered.
func (s *Server) reply(ctx *fasthttp.RequestCtx, r *request, from *sender) reply {
	header := &ctx.Request.Header
	return reply{
		key: r.key, op: r.cmd.Op, maxWait: r.cmd.MaxWait, holder: r.cmd.Holder, v1: r.v1,
		holds: r.holds(), json: from.json, origin: s.origin(from),
		close: header.ConnectionClose(), http10: !header.IsHTTP11(),
	}
}

// statuses says how outcomes that are no grants are answered.
var statuses = [...]int{
	gatehouse.Refused:   fasthttp.StatusRequestTimeout,
	gatehouse.Conflict:  fasthttp.StatusConflict,
	gatehouse.Deleted:   fasthttp.StatusConflict,
	gatehouse.Missing:   fasthttp.StatusNotFound,
	gatehouse.Invalid:   fasthttp.StatusBadRequest,
	gatehouse.Exhausted: fasthttp.StatusTooManyRequests,
}

// codes says how errors are answered.
var codes = [...]int{
	gatehouse.CodeInternal:    fasthttp.StatusInternalServerError,
	gatehouse.CodeInvalid:     fasthttp.StatusBadRequest,
	gatehouse.CodeExhausted:   fasthttp.StatusTooManyRequests,
	gatehouse.CodeUnavailable: fasthttp.StatusServiceUnavailable,
	gatehouse.CodeTimeout:     fasthttp.StatusServiceUnavailable,
}

// answer writes a decision, or the error that took its place, as a response.
func (r *reply) answer(resp *fasthttp.Response, d *gatehouse.Decision, err error) {
	allowOrigin(resp, r.origin)
	if err != nil {
		status := codes[gatehouse.CodeOf(err)]
		if status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable {
			resp.Header.Set(fasthttp.HeaderRetryAfter, "1")
		}
		refuse(resp, status, err.Error(), r.json)
		return
	}
	if d.Outcome <= gatehouse.Granted && r.tellsLimits() {
		writeLimits(resp, r, d)
	}
	if d.Outcome != gatehouse.Granted {
		r.deny(resp, d)
		return
	}
	if d.Fence != 0 {
		setUint(resp, headerFence, d.Fence)
	}
	r.value(resp, d)
}

// deny answers what was not granted.
func (r *reply) deny(resp *fasthttp.Response, d *gatehouse.Decision) {
	f := fault{status: statuses[d.Outcome]}
	switch d.Outcome {
	case gatehouse.Refused:
		f.policies = r.refusing(d)
		f.detail = r.refusal(d)
		if d.RetryAfter != gatehouse.Forever {
			setUint(resp, fasthttp.HeaderRetryAfter, seconds(d.RetryAfter))
		}
	case gatehouse.Missing:
		f.detail = r.key.String() + " does not exist"
	case gatehouse.Exhausted:
		resp.Header.Set(fasthttp.HeaderRetryAfter, "1")
		f.detail = r.key.String() + " " + d.Message
	default:
		f.detail = r.key.String() + " " + d.Message
	}
	f.write(resp, r.json)
}

// refusal is the sentence of a 408.
func (r *reply) refusal(d *gatehouse.Decision) string {
	when := "only another request can change that"
	if d.RetryAfter != gatehouse.Forever {
		when = fmt.Sprintf("try again in %d ms", ceil(d.RetryAfter, time.Millisecond))
	}
	which := ""
	switch names := r.refusing(d); {
	case len(d.Windows) == 0:
	case len(names) == 1:
		which = ": " + names[0] + " allows no more"
	default:
		which = ": " + strings.Join(names, " and ") + " allow no more"
	}
	if !r.op.Waits() {
		return fmt.Sprintf("%s: %s not granted%s; %s", r.key, r.op, which, when)
	}
	return fmt.Sprintf("%s: %s not granted within maxwait=%d ms%s; %s",
		r.key, r.op, r.maxWait.Milliseconds(), which, when)
}

// value answers a grant: 204, or 200 where there is something to tell.
func (r *reply) value(resp *fasthttp.Response, d *gatehouse.Decision) {
	switch r.op {
	case gatehouse.OpAcquire:
		if form.HasHolders(r.key.Kind) {
			text(resp, r.holder)
			return
		}
	case gatehouse.OpDelay, gatehouse.OpReserve:
		text(resp, strconv.FormatInt(roundUp(d.Delay, time.Millisecond), 10))
		return
	case gatehouse.OpWait:
		if r.key.Kind == gatehouse.Event {
			r.message(resp, d.Message)
			return
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		text(resp, strconv.FormatInt(d.Value, 10))
		return
	case gatehouse.OpStats:
		writeJSON(resp, "application/json", stats(d.Stats))
		return
	}
	resp.SetStatusCode(fasthttp.StatusNoContent)
}

// message answers an event: in the body, or under /v1/ in a header beside a 204.
func (r *reply) message(resp *fasthttp.Response, message string) {
	if !r.v1 {
		text(resp, message)
		return
	}
	resp.SetStatusCode(fasthttp.StatusNoContent)
	if message != "" {
		resp.Header.Set(headerMessage, url.PathEscape(message))
	}
}

// The headers of ours.
const (
	headerFence   = "Gatehouse-Fence"
	headerMessage = "X-Bouncer-Message"
	headerNoSniff = "X-Content-Type-Options"
)

const plain = "text/plain; charset=utf-8"

// text answers 200 with a bare value. It is never sniffed: a key or a message may look like HTML.
func text(resp *fasthttp.Response, value string) {
	resp.Header.SetContentType(plain)
	resp.Header.Set(headerNoSniff, "nosniff")
	resp.SetBodyString(value)
}

// refuse answers with a status and one sentence.
func refuse(resp *fasthttp.Response, status int, detail string, asJSON bool) {
	f := fault{status: status, detail: detail}
	f.write(resp, asJSON)
}

// A fault is an answer that is no success.
type fault struct {
	status   int
	detail   string   // one sentence
	policies []string // the names of those that refused
}

// What a refusal by a limit is called in the registry of problem types.
const (
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	quotaTitle    = "Request cannot be satisfied as assigned quota has been exceeded"
)

func (f *fault) write(resp *fasthttp.Response, asJSON bool) {
	resp.SetStatusCode(f.status)
	if !asJSON {
		text(resp, f.detail)
		return
	}
	kind, title := "about:blank", fasthttp.StatusMessage(f.status)
	if f.policies != nil {
		kind, title = quotaExceeded, quotaTitle
	}
	writeJSON(resp, "application/problem+json", struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Violated []string `json:"violated-policies,omitempty"`
	}{kind, title, f.status, f.detail, f.policies})
}

func writeJSON(resp *fasthttp.Response, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("bouncer: %T does not marshal: %v", value, err))
	}
	resp.Header.SetContentType(contentType)
	resp.Header.Set(headerNoSniff, "nosniff")
	resp.SetBody(body)
}

// stats are a controller's figures as a JSON object, in their order. Times are RFC 3339, lengths of
// time are milliseconds.
type stats []gatehouse.Stat

// MarshalJSON implements [json.Marshaler].
func (s stats) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, stat := range s {
		value := stat.Value
		switch v := value.(type) {
		case time.Duration:
			value = v.Milliseconds()
		case time.Time:
			value = nil
			if !v.IsZero() {
				value = v.UTC().Format(time.RFC3339)
			}
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("stat %s: %w", stat.Name, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, stat.Name)
		out = append(append(out, ':'), text...)
	}
	return append(out, '}'), nil
}
