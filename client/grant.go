package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// DoGrant is Do for a command over several names, or about such a grant. Of a command that was neither
// granted nor refused only the outcome, the name that binds and the sentence are told. A peek or a delay
// that is not about a grant is not part of the protocol, and has the code [gatehouse.CodeInvalid].
func (c *Client) DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	return c.askGrant(ctx, cmd, nil)
}

// askGrant asks, and has tell called with the places of a grant that waits; nil asks for the outcome alone.
func (c *Client) askGrant(
	ctx context.Context, cmd gatehouse.GrantCommand, tell func(LinePlace),
) (gatehouse.GrantDecision, error) {
	var d gatehouse.GrantDecision
	if err := ctx.Err(); err != nil {
		return d, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", cmd.String(), err)
	}
	if err := checkGrant(&cmd); err != nil {
		return d, err
	}
	r := exchange{subject: cmd.String(), op: cmd.Op}
	switch cmd.Op {
	case gatehouse.OpAcquire:
		r.repeatable, r.maxWait = cmd.ID != "", cmd.MaxWait
	case gatehouse.OpTopUp:
		r.maxWait = cmd.MaxWait // sent twice it might be taken twice
	case gatehouse.OpRelease:
		r.urgent = true
	// A renew, a settle and a peek: sent twice they do what they do once.
	default:
		r.repeatable, r.urgent = true, true
	}
	err := c.sendExchange(ctx, &r, func(wait time.Duration) message {
		m := grantMessage(&cmd, wait)
		m.tell = tell
		return m
	}, func(a *reply) error {
		d = gatehouse.GrantDecision{Binding: -1}
		return readGrant(&cmd, a, &d)
	})
	switch {
	case err != nil:
		return gatehouse.GrantDecision{}, err
	case d.Outcome == gatehouse.Refused && r.cut:
		return gatehouse.GrantDecision{}, r.timedOut(context.DeadlineExceeded)
	}
	return d, nil
}

// checkGrant returns an error of CodeInvalid if a command makes no sense, or cannot be said over HTTP.
func checkGrant(cmd *gatehouse.GrantCommand) error {
	if err := cmd.Check(); err != nil {
		return err
	}
	if cmd.IsLook() {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: over HTTP there is no %s of several names", cmd,
			cmd.Op)
	}
	// Rounded to milliseconds it would be another limit than the program goes by.
	for i := range cmd.Want {
		if m := &cmd.Want[i]; m.Key.Kind.Limiter() && !isWholeMillis(&m.Rule) {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: over HTTP Interval and Guard have whole "+
				"milliseconds", m.Key)
		}
	}
	return nil
}

// grantMessage is the request for a command about a grant.
func grantMessage(cmd *gatehouse.GrantCommand, wait time.Duration) message {
	path := "/v1/grants"
	if cmd.Op != gatehouse.OpAcquire {
		path += "/" + cmd.ID // it needs no encoding
	}
	if cmd.Op == gatehouse.OpPeek {
		return message{method: http.MethodGet, path: path, rawPath: path}
	}
	var o object
	if cmd.Op == gatehouse.OpAcquire {
		o.addAcquire(cmd)
	} else {
		path += "/" + cmd.Op.String()
	}
	// Only these wait. It may be less than MaxWait, as the context may end before.
	if cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpTopUp {
		o.addNumber("maxwait", upMillis(wait))
	}
	// Without a length a renew is for as long as the grant was acquired for.
	if (cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpRenew) && cmd.Expires > 0 {
		o.addNumber("expires", upMillis(cmd.Expires))
	}
	if cmd.Fence != 0 {
		o.addRaw("fence", strconv.AppendUint(nil, cmd.Fence, 10))
	}
	// Here names are members of the object themselves, as in {"gcra/api":5}.
	for _, cost := range cmd.Costs {
		o.addNumber(cost.Key.String(), cost.Cost)
	}
	return message{
		method: http.MethodPost, path: path, rawPath: path, body: o.closed(), contentType: "application/json",
	}
}

// An object is a JSON object that is being written.
type object []byte

func (o *object) addRaw(name string, value []byte) {
	if len(*o) > 0 {
		*o = append(*o, ',')
	}
	*o = append(append(append(*o, quoteJSON(name)...), ':'), value...)
}

func (o *object) addText(name, value string) { o.addRaw(name, quoteJSON(value)) }

func (o *object) addNumber(name string, value int64) {
	o.addRaw(name, strconv.AppendInt(nil, value, 10))
}

func (o *object) closed() []byte { return append(append([]byte{'{'}, *o...), '}') }

// quoteJSON is a text in JSON.
func quoteJSON(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // every text can be written
	}
	return quoted
}

// addAcquire adds what only an acquire has.
func (o *object) addAcquire(cmd *gatehouse.GrantCommand) {
	want := []byte{'['}
	for i := range cmd.Want {
		if i > 0 {
			want = append(want, ',')
		}
		want = append(want, memberText(&cmd.Want[i])...)
	}
	o.addRaw("want", append(want, ']'))
	if cmd.ID != "" {
		o.addText("id", cmd.ID)
	}
	if cmd.Overrun != gatehouse.OverrunDebt {
		o.addText("overrun", cmd.Overrun.String())
	}
	if cmd.OnExpiry != gatehouse.ExpiryEstimate {
		o.addText("on-expiry", cmd.OnExpiry.String())
	}
	if cmd.Owner != nil {
		var owner object
		owner.addText("name", cmd.Owner.Name)
		owner.addText("host", cmd.Owner.Host)
		owner.addText("purpose", cmd.Owner.Purpose)
		o.addRaw("owner", owner.closed())
	}
}

// memberText is one name that a grant wants.
func memberText(m *gatehouse.Member) []byte {
	var o object
	o.addText(m.Key.Kind.String(), m.Key.Name)
	o.addNumber("cost", m.Cost)
	switch {
	case m.Key.Kind.Limiter():
		var room [mostRuleParts]rulePart
		for _, part := range appendRuleParts(room[:0], m.Key.Kind, &m.Rule) {
			// The server tells numbers from texts, as JSON does.
			if part.word != "" {
				o.addText(part.name, part.word)
			} else {
				o.addNumber(part.name, part.numeral)
			}
		}
	case m.Key.Kind == gatehouse.Semaphore && m.Size != gatehouse.InForce:
		o.addNumber("size", m.Size)
	}
	if m.Clip {
		o.addText("fit", "clip")
	}
	return o.closed()
}

// grantJSON is the answer about a grant.
type grantJSON struct {
	ID        string     `json:"id"`
	Fence     uint64     `json:"fence"`
	ExpiresIn int64      `json:"expires_in"`
	Ended     bool       `json:"ended"`
	Want      wantedJSON `json:"want"`
}

// wantedJSON is what an answer says about each name.
type wantedJSON []memberJSON

// memberJSON is what an answer says about one name. Its kind is the name of a member of its own.
type memberJSON struct {
	key     gatehouse.Key
	Cost    int64  `json:"cost"`
	Booked  int64  `json:"booked"`
	Capped  int64  `json:"capped"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
	figuresJSON
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *memberJSON) UnmarshalJSON(text []byte) error {
	type plain memberJSON // without this method
	var kinds map[string]json.RawMessage
	if err := json.Unmarshal(text, &kinds); err != nil {
		return err
	}
	if err := json.Unmarshal(text, (*plain)(m)); err != nil {
		return err
	}
	for name, value := range kinds {
		// A place in a line has the id of the grant too, as "grant", which is a kind but never a member.
		if kind, ok := gatehouse.ParseKind(name); ok && kind != gatehouse.Grant {
			m.key.Kind = kind
			return json.Unmarshal(value, &m.key.Name)
		}
	}
	return nil
}

// readGrant reads the answer to a command about a grant.
func readGrant(cmd *gatehouse.GrantCommand, a *reply, d *gatehouse.GrantDecision) error {
	if a.status/100 != 2 {
		return readGrantProblem(cmd, a, d)
	}
	var told grantJSON
	if err := json.Unmarshal(a.body, &told); err != nil {
		return notUnderstood(cmd.String(), a.body, err)
	}
	d.Outcome, d.ID, d.Fence = gatehouse.Granted, told.ID, told.Fence
	// A release that was granted has ended it, also where the answer does not say so.
	d.Ended = told.Ended || cmd.Op == gatehouse.OpRelease
	d.ExpiresAfter = fromMillis(told.ExpiresIn)
	d.Want = told.Want.decisions(gatehouse.Granted)
	return nil
}

// readGrantProblem reads an answer that is no success: a decision against the command, or an error.
func readGrantProblem(cmd *gatehouse.GrantCommand, a *reply, d *gatehouse.GrantDecision) error {
	var told problemJSON
	if json.Unmarshal(a.body, &told) != nil || told.Code == "" {
		return problemOf(cmd.String(), a)
	}
	switch outcome := outcomes[told.Code]; {
	// The zero outcome. Why it was refused is said by its names.
	case told.Code == gatehouse.Refused.String():
	case outcome == gatehouse.Conflict, outcome == gatehouse.Deleted, outcome == gatehouse.Missing,
		outcome == gatehouse.Invalid:
		d.Outcome, d.Message = outcome, told.Detail
	default:
		return told.failure()
	}
	d.Want = told.Want.decisions(gatehouse.Granted)
	// An answer may tell only of the name that decided it.
	if told.Binding != nil && d.Want == nil {
		d.Want = wantedJSON{*told.Binding}.decisions(gatehouse.Granted)
	}
	for i := range d.Want {
		if told.Binding != nil && d.Want[i].Key == told.Binding.key {
			d.Binding = i
		}
	}
	// It is not known when to try again, unless the answer says so.
	if d.Outcome == gatehouse.Refused {
		d.RetryAfter = gatehouse.Forever
	}
	if told.Retry > 0 {
		d.RetryAfter = fromMillis(told.Retry)
	}
	return nil
}

// decisions are what is told of each name; otherwise is the outcome where none is told.
func (w wantedJSON) decisions(otherwise gatehouse.Outcome) (all []gatehouse.MemberDecision) {
	for i := range w {
		m := &w[i]
		d := gatehouse.MemberDecision{Key: m.key, Cost: m.Cost, Capped: m.Capped}
		m.fill(&d.Decision)
		d.Booked, d.Message = m.Booked, m.Detail
		d.Outcome = otherwise
		if outcome, known := outcomes[m.Outcome]; known {
			d.Outcome = outcome
		}
		all = append(all, d)
	}
	return all
}
