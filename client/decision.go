package client

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// figuresJSON are what an answer tells of a name that has a limit.
type figuresJSON struct {
	Limit      int64        `json:"limit"`
	Remaining  int64        `json:"remaining"`
	RetryAfter int64        `json:"retry_after"`
	ResetAfter int64        `json:"reset_after"`
	Windows    []windowJSON `json:"windows"`
	PausedWith int          `json:"paused_with"`
	PausedBy   string       `json:"paused_by"`
	PausedFor  int64        `json:"paused_for"`
	RampFor    int64        `json:"ramp_for"`
	Adopted    int64        `json:"adopted"`
	AdoptedFor int64        `json:"adopted_for"`
}

type windowJSON struct {
	Limit      string `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after"`
	ResetAfter int64  `json:"reset_after"`
}

// decisionJSON is the answer that details=true asks for.
type decisionJSON struct {
	Outcome string `json:"outcome"`
	figuresJSON
	Fence        uint64          `json:"fence"`
	ExpiresAfter int64           `json:"expires_after"`
	Delay        int64           `json:"delay"`
	Value        int64           `json:"value"`
	Message      string          `json:"message"`
	Stats        json.RawMessage `json:"stats"`
	Detail       string          `json:"detail"`
}

// outcomes are the outcomes by their names.
var outcomes = map[string]gatehouse.Outcome{
	"refused": gatehouse.Refused, "granted": gatehouse.Granted, "conflict": gatehouse.Conflict,
	"deleted": gatehouse.Deleted, "missing": gatehouse.Missing, "invalid": gatehouse.Invalid,
	"exhausted": gatehouse.Exhausted, "forbidden": gatehouse.Forbidden,
}

// fromMillis is a length of time that an answer tells; -1 is Forever.
func fromMillis(ms int64) time.Duration {
	if ms < 0 {
		return gatehouse.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// readDecision reads the answer to a command.
func readDecision(key gatehouse.Key, cmd *gatehouse.Command, a *reply, d *gatehouse.Decision) error {
	if a.status/100 != 2 {
		return problemOf(key.String(), a)
	}
	if cmd.Op == gatehouse.OpHolders || cmd.Op == gatehouse.OpWaiters {
		report, err := readReport(key, a.body)
		d.Outcome, d.Report = gatehouse.Granted, report
		return err
	}
	if len(a.body) == 0 { // an older server, or one in between, has left the details out
		d.Outcome = gatehouse.Granted
		return nil
	}
	var told decisionJSON
	told.RetryAfter = -1 // a kind without a limit does not tell when
	if !scanDecision(a.body, &told) {
		// scanDecision may have set some of it before it met what it does not read.
		told = decisionJSON{}
		told.RetryAfter = -1
		if err := json.Unmarshal(a.body, &told); err != nil {
			return notUnderstood(key.String(), a.body, err)
		}
	}
	outcome, known := outcomes[told.Outcome]
	if !known {
		return gatehouse.Errorf(gatehouse.CodeInternal, "%s: the server's answer is %q, which is no outcome",
			key, told.Outcome)
	}
	d.Outcome = outcome
	d.Message = told.messageOf(key, cmd)
	// Such an answer is about the command, and has no figures.
	if outcome > gatehouse.Granted {
		return nil
	}
	told.fill(d)
	if key.Kind.Limiter() && len(d.Windows) == 0 {
		// The canonical form of RateLimit-Policy: Get would make any other canonical first, which allocates.
		d.Interval = policyWindow(a.header.Get("Ratelimit-Policy"))
	}
	// It is not told with a grant, and was read as Forever.
	if outcome == gatehouse.Granted {
		d.RetryAfter = 0
	}
	d.Fence, d.Value = told.Fence, told.Value
	d.Delay = fromMillis(told.Delay)
	d.ExpiresAfter = fromMillis(told.ExpiresAfter)
	if told.Stats != nil {
		var err error
		d.Stats, err = readStats(told.Stats)
		return err
	}
	return nil
}

// notUnderstood is the error about an answer that is no JSON, or another one.
func notUnderstood(subject string, body []byte, err error) error {
	return gatehouse.Errorf(gatehouse.CodeInternal, "%s: the server's answer is %q: %w", subject,
		textOf(body), err)
}

// messageOf is the sentence without its subject, and of a refusal without when to try again.
func (j *decisionJSON) messageOf(key gatehouse.Key, cmd *gatehouse.Command) string {
	switch j.Outcome {
	case gatehouse.Granted.String():
		return j.Message
	// A gate says nothing beyond the outcome.
	case gatehouse.Missing.String():
		return ""
	}
	// With a colon behind the name there is no reason: another request was faster.
	text, found := strings.CutPrefix(j.Detail, key.String()+" ")
	switch {
	case !found && strings.HasPrefix(j.Detail, key.String()+":"):
		return ""
	case j.Outcome != gatehouse.Refused.String():
		return text
	}
	if end := strings.LastIndex(text, "; "+cmd.Op.String()+" not granted"); end >= 0 {
		text = text[:end]
	}
	return text
}

// policyWindow is the window in a policy such as "gcra";q=16;w=32. It is there if it has whole seconds.
func policyWindow(policy string) time.Duration {
	_, text, _ := strings.Cut(policy, ";w=")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || seconds > int64(gatehouse.MaxDuration/time.Second) {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// fill puts the figures into a decision.
func (j *figuresJSON) fill(d *gatehouse.Decision) {
	d.Limit, d.Remaining = j.Limit, j.Remaining
	d.RetryAfter, d.ResetAfter = fromMillis(j.RetryAfter), fromMillis(j.ResetAfter)
	for _, w := range j.Windows {
		window := gatehouse.Window{
			Remaining: w.Remaining, RetryAfter: fromMillis(w.RetryAfter),
			ResetAfter: fromMillis(w.ResetAfter),
		}
		// A limit that is not understood has its figures still.
		if limits, err := gatehouse.ParseLimits(w.Limit); err == nil && limits.Len() == 1 {
			window.Limit = limits.At(0)
		}
		d.Windows = append(d.Windows, window)
	}
	// A gate has none while no feedback is in force.
	if j.PausedWith != 0 || j.AdoptedFor != 0 {
		d.Reported = &gatehouse.Reported{
			Status: j.PausedWith, By: j.PausedBy,
			PausedFor: fromMillis(j.PausedFor), RampFor: fromMillis(j.RampFor),
			Adopted: j.Adopted, AdoptedFor: fromMillis(j.AdoptedFor),
		}
	}
}

// readStats reads statistics in their order. A number is an int64, null the zero time, and all else a text.
func readStats(text []byte) (stats []gatehouse.Stat, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	// A float64 would lose digits of a number above 2^53.
	d.UseNumber()
	if _, err = d.Token(); err != nil { // the brace
		return nil, err
	}
	// Token by token, since a map would lose the order.
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.Token()
		if err != nil {
			return nil, err
		}
		stat := gatehouse.Stat{Name: name.(string), Value: value}
		switch v := value.(type) {
		case json.Number:
			stat.Value, err = v.Int64()
		case nil:
			stat.Value = time.Time{}
		}
		if err != nil {
			return nil, err
		}
		stats = append(stats, stat)
	}
	return stats, nil
}

// problemJSON is an answer that is no success.
type problemJSON struct {
	Detail  string      `json:"detail"`
	Code    string      `json:"code"`
	Retry   int64       `json:"retry_after_ms"`
	Binding *memberJSON `json:"binding"`
	Want    wantedJSON  `json:"want"`
}

// problemCodes are the codes of errors by what an answer calls them. All others are faults of ours.
var problemCodes = map[string]gatehouse.Code{
	"invalid": gatehouse.CodeInvalid, "exhausted": gatehouse.CodeExhausted,
	"unavailable": gatehouse.CodeUnavailable, "timeout": gatehouse.CodeTimeout,
	"internal": gatehouse.CodeInternal, "too_large": gatehouse.CodeInvalid,
	"forbidden": gatehouse.CodeForbidden, "unauthenticated": gatehouse.CodeUnauthenticated,
	"quota": gatehouse.CodeQuota, "misdirected": gatehouse.CodeUnavailable,
	"request_timeout": gatehouse.CodeUnavailable,
}

// gatewayCodes are those of answers that do not come from Gatehouse, but from what is in between.
var gatewayCodes = map[int]gatehouse.Code{
	429: gatehouse.CodeExhausted, 502: gatehouse.CodeUnavailable, 503: gatehouse.CodeUnavailable,
	504: gatehouse.CodeUnavailable,
}

// problemOf is the error that an answer is.
func problemOf(subject string, a *reply) error {
	var told problemJSON
	if json.Unmarshal(a.body, &told) == nil && told.Code != "" {
		return told.failure()
	}
	// A proxy in between, say, has a page of its own.
	return gatehouse.Errorf(gatewayCodes[a.status], "%s: the server answered status %d: %s", subject,
		a.status, textOf(a.body))
}

// failure is the error that a problem is. The sentence has its subject.
func (j *problemJSON) failure() error {
	return gatehouse.Errorf(problemCodes[j.Code], "%s", j.Detail)
}
