package http

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
	"github.com/valyala/fasthttp"
)

// A responder turns the decision on one request into its response, in the form that the request asked for. It
// is a copy of all that this takes: a request that waits is gone by the time of its answer.
type responder struct {
	key       gatehouse.Key
	maxWait   time.Duration
	holder    string
	origin    string  // of a web page that may read the answer
	requestID string  // empty if it has none
	levels    *levels // of a request with parents; nil for all others
	began     time.Duration

	// What is small is together, as each waiter has a responder.
	answerOptions
	op         gatehouse.Op
	v1         bool
	stream     bool // the outcome is an event
	wantsJSON  bool // refusals as application/problem+json
	closeAfter bool // the connection ends with the answer
	http10     bool
}

// newResponder returns a responder to the sender of a request.
func (s *Server) newResponder(ctx *fasthttp.RequestCtx, from *sender) responder {
	header := &ctx.Request.Header
	return responder{
		wantsJSON: from.wantsJSON, origin: s.allowedOrigin(from),
		closeAfter: header.ConnectionClose(), http10: !header.IsHTTP11(), began: from.began,
		requestID: string(from.requestID),
	}
}

// answersTo makes the responder that of a request for one command.
func (r *responder) answersTo(request *httpRequest, refusal int) {
	r.key, r.v1, r.stream = request.Key, request.v1, request.stream
	cmd := &request.Command
	r.op, r.maxWait, r.holder = cmd.Op, cmd.MaxWait, cmd.Holder
	r.answerOptions = request.answerOptions
	r.refusalStatus = cmp.Or(r.refusalStatus, int16(refusal)) // one of two
}

// outcomeStatuses are the statuses of outcomes other than a grant. A request or the configuration may ask for
// another one for a refusal.
var outcomeStatuses = [...]int{
	gatehouse.Refused:   fasthttp.StatusRequestTimeout,
	gatehouse.Conflict:  fasthttp.StatusConflict,
	gatehouse.Deleted:   fasthttp.StatusConflict,
	gatehouse.Missing:   fasthttp.StatusNotFound,
	gatehouse.Invalid:   fasthttp.StatusBadRequest,
	gatehouse.Exhausted: fasthttp.StatusServiceUnavailable,
	gatehouse.Forbidden: fasthttp.StatusForbidden,
}

// errorStatuses are the statuses of errors, by their codes.
var errorStatuses = [...]int{
	gatehouse.CodeInternal:    fasthttp.StatusInternalServerError,
	gatehouse.CodeInvalid:     fasthttp.StatusBadRequest,
	gatehouse.CodeExhausted:   fasthttp.StatusServiceUnavailable,
	gatehouse.CodeUnavailable: fasthttp.StatusServiceUnavailable,
	gatehouse.CodeTimeout:     fasthttp.StatusServiceUnavailable,

	gatehouse.CodeUnauthenticated: fasthttp.StatusUnauthorized,
	gatehouse.CodeForbidden:       fasthttp.StatusForbidden,
	gatehouse.CodeQuota:           fasthttp.StatusTooManyRequests,
}

// mayWait reports whether the request waits in line when it is refused.
func (r *responder) mayWait() bool {
	return (r.op.Waits() || r.op == gatehouse.OpTopUp) && r.maxWait != 0
}

// writeDecision writes a decision, or the error that took its place, as a response.
func (r *responder) writeDecision(resp *fasthttp.Response, d *gatehouse.Decision, err error) {
	allowOrigin(resp, r.origin)
	if err != nil {
		f := errorRejection(err)
		f.writeTo(resp, r.wantsJSON)
		return
	}
	setDecisionHeader(resp, d.Number)
	// The headers come with details too. Only a grant and a refusal are about a limit.
	if d.Outcome <= gatehouse.Granted && r.hasLimitHeaders() {
		writeLimitHeaders(resp, r, d)
	}
	if d.Outcome == gatehouse.Granted && d.Fence != 0 {
		setUintHeader(resp, headerFence, d.Fence)
		if d.ExpiresAfter >= 0 {
			setUintHeader(resp, headerExpires, uint64(d.ExpiresAfter.Milliseconds())) // from 0
		}
	}
	switch {
	case r.stream:
		resp.Header.SetContentType(eventStreamType)
		setTextHeader(resp, headerNoSniff, "nosniff")
		resp.SetBodyRaw(r.outcomeEvent(d, nil))
	case d.Report != nil:
		r.writeReport(resp, d.Report)
	case r.details:
		writeRawJSON(resp, "application/json", r.decisionJSON(d))
	case d.Outcome == gatehouse.Granted:
		r.writeGrant(resp, d)
	default:
		f := r.denialOf(d)
		f.writeTo(resp, r.wantsJSON)
	}
}

// denialOf returns the answer to any outcome other than a grant.
func (r *responder) denialOf(d *gatehouse.Decision) rejection {
	f := rejection{status: outcomeStatuses[d.Outcome], detail: r.denialText(d), code: d.Outcome.String()}
	// Only a refusal is a matter of time or of configuration. Other outcomes keep their status.
	if d.Outcome == gatehouse.Refused {
		f.status = cmp.Or(int(r.refusalStatus), f.status)
		f.violated, f.number = r.refusedPolicies(d), d.Number
		f.more = r.levels.moreJSON()
		if d.RetryAfter != gatehouse.Forever {
			// 0 would leave the header out, and would promise a grant at this very instant.
			f.retryAfter = max(1, d.RetryAfter)
		}
	}
	return f
}

// denialText returns the sentence that says why something was not granted.
func (r *responder) denialText(d *gatehouse.Decision) string {
	key := r.levels.decisiveKey(r.key)
	switch d.Outcome {
	case gatehouse.Refused:
		return r.refusalText(d)
	case gatehouse.Missing:
		return key.String() + " does not exist"
	}
	return key.String() + " " + d.Message
}

// refusalText returns the sentence that says which limit refused, and when to try again.
func (r *responder) refusalText(d *gatehouse.Decision) string {
	// A semaphore is free again when its holder releases it, which no clock can tell.
	when := "only another request can change that"
	if d.RetryAfter != gatehouse.Forever {
		when = fmt.Sprintf("try again in %d ms", ratelimit.CeilUnits(d.RetryAfter, time.Millisecond))
	}
	which := ""
	parent := r.levels.decisiveKey(r.key)
	switch names := ratelimit.RefusedNames(r.key.Kind, d); {
	case parent != r.key && d.Message != "":
		which = ": its parent " + parent.String() + " " + d.Message
	case parent != r.key:
		which = ": its parent " + parent.String() + " allows no more"
	case d.Message == "" && len(d.Windows) == 0 && r.levels != nil:
		which = ": it allows no more itself"
	case d.Message != "" || len(d.Windows) == 0:
	case len(names) == 1:
		which = ": " + names[0] + " allows no more"
	default:
		which = ": " + strings.Join(names, " and ") + " allow no more"
	}
	// Why comes first, where there is something to say: that the name is closed or paused, or who holds.
	key := r.key.String() + ":"
	if d.Message != "" && parent == r.key {
		key = r.key.String() + " " + d.Message + ";"
	}
	switch {
	case !r.op.Waits():
		return fmt.Sprintf("%s %s not granted%s; %s", key, r.op, which, when)
	case r.maxWait == 0:
		return fmt.Sprintf("%s %s not granted at once%s; %s", key, r.op, which, when)
	}
	return fmt.Sprintf("%s %s not granted within maxwait=%d ms%s; %s",
		key, r.op, r.maxWait.Milliseconds(), which, when)
}

// writeGrant answers a grant: with 200 and a bare value if the operation has one, with 204 otherwise.
func (r *responder) writeGrant(resp *fasthttp.Response, d *gatehouse.Decision) {
	// These values are bouncer's, so that its clients and curl read them as they are.
	switch r.op {
	case gatehouse.OpAcquire:
		if params.HasHolders(r.key.Kind) {
			writeText(resp, r.holder)
			return
		}
	case gatehouse.OpDelay, gatehouse.OpReserve:
		writeText(resp, strconv.FormatInt(params.CeilMillis(d.Delay), 10))
		return
	case gatehouse.OpWait:
		if r.key.Kind == gatehouse.Event {
			r.writeMessage(resp, d.Message)
			return
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		writeText(resp, strconv.FormatInt(d.Value, 10))
		return
	case gatehouse.OpStats:
		writeJSON(resp, statsJSON(d.Stats))
		return
	}
	resp.SetStatusCode(fasthttp.StatusNoContent)
}

// maxHeaderMessage is the longest value, in bytes, of the header with an event's message. Proxies have 4 or 8
// KB for all headers of an answer, and give 502 for more.
const maxHeaderMessage = 2 << 10

// writeMessage answers the wait for an event with its message: in the body or, under /v1/ and if it is short
// enough, in a header of a 204.
func (r *responder) writeMessage(resp *fasthttp.Response, message string) {
	escaped := ""
	if r.v1 {
		escaped = url.PathEscape(message)
	}
	if !r.v1 || len(escaped) > maxHeaderMessage {
		writeText(resp, message)
		return
	}
	resp.SetStatusCode(fasthttp.StatusNoContent)
	// An event without a message has no header, instead of an empty one.
	if message != "" {
		resp.Header.Set(headerMessage, escaped)
	}
}

// The headers of ours.
const (
	headerFence   = "Gatehouse-Fence"
	headerExpires = "Gatehouse-Expires"
	headerMessage = "X-Bouncer-Message"
	headerNoSniff = "X-Content-Type-Options"
)

const plainText = "text/plain; charset=utf-8"

// writeText answers 200 with a bare value. Browsers must not guess its type: a key or a message may look like
// HTML.
func writeText(resp *fasthttp.Response, value string) {
	resp.Header.SetContentType(plainText)
	setTextHeader(resp, headerNoSniff, "nosniff")
	resp.SetBodyString(value)
}

// writeProblem answers with a status and one sentence, as text or as application/problem+json.
func writeProblem(resp *fasthttp.Response, status int, detail string, asJSON bool) {
	f := rejection{status: status, detail: detail}
	f.writeTo(resp, asJSON)
}

// A rejection is an answer that is no success, as in RFC 9457.
type rejection struct {
	status     int
	code       string        // in one word; "" is that of the status
	detail     string        // one sentence
	violated   []string      // the names of those that refused
	more       []byte        // further members of the JSON object
	number     uint64        // of a refusal that is kept
	retryAfter time.Duration // before which a new try is pointless; 0 when that is not known

	allow    string // the methods there are, with 405 and OPTIONS
	location string // with 301 and 308
	accept   string // the type of body that is read, with 415

	authenticate string // how to say who one is, with 401
}

// errorRejection returns the answer to an error.
func errorRejection(err error) rejection {
	code := gatehouse.CodeOf(err)
	return rejection{status: errorStatuses[code], code: code.String(), detail: err.Error()}
}

// statusCodes are the codes of answers that come from neither a decision nor an error.
var statusCodes = map[int]string{
	fasthttp.StatusBadRequest:                  "invalid",
	fasthttp.StatusUnauthorized:                "unauthenticated",
	fasthttp.StatusForbidden:                   "forbidden",
	fasthttp.StatusNotFound:                    "not_found",
	fasthttp.StatusNotAcceptable:               "not_acceptable",
	fasthttp.StatusMethodNotAllowed:            "method_not_allowed",
	fasthttp.StatusRequestTimeout:              "request_timeout",
	fasthttp.StatusRequestEntityTooLarge:       "too_large",
	fasthttp.StatusUnsupportedMediaType:        "unsupported_media_type",
	fasthttp.StatusMisdirectedRequest:          "misdirected",
	fasthttp.StatusRequestHeaderFieldsTooLarge: "too_large",
	fasthttp.StatusInternalServerError:         "internal",
	fasthttp.StatusServiceUnavailable:          "unavailable",
}

// retryWhenFull is when to try again what the server cannot do at present: such states are short.
const retryWhenFull = time.Second

func (f *rejection) writeTo(resp *fasthttp.Response, asJSON bool) {
	resp.SetStatusCode(f.status)
	// Every 503 says when to come back, also one that knows no better time.
	if f.status == fasthttp.StatusServiceUnavailable {
		f.retryAfter = cmp.Or(f.retryAfter, retryWhenFull)
	}
	if f.retryAfter > 0 {
		seconds := ratelimit.CeilUnits(f.retryAfter, time.Second)
		setUintHeader(resp, fasthttp.HeaderRetryAfter, uint64(seconds)) // from 1
	}
	// Text is the default, as in bouncer. A client has to ask for JSON.
	if !asJSON {
		writeText(resp, f.detail)
		return
	}
	writeRawJSON(resp, "application/problem+json", f.problemJSON())
}

// problemJSON returns the answer as a problem of RFC 9457.
func (f *rejection) problemJSON() []byte {
	// RFC 9457 wants the title of about:blank to be the phrase of the status.
	kind := "about:blank"
	title := fasthttp.StatusMessage(f.status)
	if f.violated != nil {
		kind = ratelimit.QuotaExceededType
		title = ratelimit.QuotaExceededTitle
	}
	body := encodeJSON(struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Code     string   `json:"code"`
		Retry    int64    `json:"retry_after_ms,omitempty"`
		Violated []string `json:"violated-policies,omitempty"`
		Decision string   `json:"decision,omitempty"`
	}{
		kind, title, f.status, f.detail, cmp.Or(f.code, statusCodes[f.status]),
		params.CeilMillis(f.retryAfter), f.violated, decisionIDIfAny(f.number),
	})
	if f.more != nil {
		body = append(append(body[:len(body)-1], ','), f.more...)
		body = append(body, '}')
	}
	return body
}

// forbidStoring keeps caches from storing an answer. A GET has effects here, and its answer is true only for
// a moment.
func forbidStoring(resp *fasthttp.Response) {
	setTextHeader(resp, fasthttp.HeaderCacheControl, "no-store")
}

// statsJSON are a controller's statistics as a JSON object, in their order. A time is RFC 3339, or null if it
// is zero; a duration is in milliseconds.
type statsJSON []gatehouse.Stat

// MarshalJSON implements [json.Marshaler].
func (s statsJSON) MarshalJSON() ([]byte, error) {
	// A map would lose the order, which puts related statistics next to each other.
	var out jsonObject
	for _, stat := range s {
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
		out = out.addRaw(stat.Name, encodeJSON(value))
	}
	return out.closeObject(), nil
}
