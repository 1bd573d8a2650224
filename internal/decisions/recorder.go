package decisions

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A Recorder implements gate.Observer. Make one with New.
type Recorder struct {
	*Log
	names  [numMeasures][gatehouse.Kinds]sketch[string]
	users  [numMeasures]sketch[string]
	byUser [numMeasures]sketch[UserAt]
	counts counts
	now    func() time.Time
}

var _ gate.Observer = (*Recorder)(nil)

// A Config says what a Recorder is to keep. The zero value keeps no refusals, and counts by kind alone.
type Config struct {
	// Kept is how many refusals are kept.
	Kept int
	// Rules are the rules of the configuration, by which decisions are counted, and RuleOf the index of the
	// one for a name, -1 for none. RuleOf is not called without Rules.
	Rules  []string
	RuleOf func(gatehouse.Key) int
	// Now is the clock at which TopNames and its like look.
	Now func() time.Time
}

// New returns a recorder.
func New(config Config) *Recorder {
	o := &Recorder{Log: NewLog(config.Kept), now: config.Now}
	o.counts.setRules(&config)
	return o
}

// ObserveRequests implements [gate.Observer].
func (o *Recorder) ObserveRequests(requests []*gate.Request, refused, waiting int) {
	// Refusals come first: their numbers are to be in the answers.
	if refused > 0 && o.Log != nil {
		w := o.begin(refused)
		w.keepRefused(requests, waiting)
		w.end()
	}
	// Mostly all are of one user, and of one instant: then they are counted together.
	var u uses
	for _, r := range requests {
		cmd, d := &r.Command, r.Decision
		// What only reads is no use of a name.
		if r.Err != nil || d.Outcome > gatehouse.Granted || cmd.Op.Reads() {
			continue
		}
		user, known := userOf(cmd.Owner, cmd.Origin)
		// All are about one name, so that only a change of user begins new uses.
		if u.key == nil || u.user != user || u.known != known {
			o.count(&u)
			u = uses{key: &r.Key, user: user, known: known}
		}
		u.at = &d.At
		u.add(d.Outcome, r.WaitedUntil(d.At), isNear(cmd.Op, d))
	}
	o.count(&u)
}

// keepRefused gives the refusals among some requests their numbers, and keeps them.
func (w *writer) keepRefused(requests []*gate.Request, waiting int) {
	for _, r := range requests {
		d := r.Decision
		if r.Err != nil || d.Outcome != gatehouse.Refused {
			continue
		}
		// It has a number even if its slot is lost to later refusals: the id then says that it is not kept.
		d.Number = w.number
		if s := w.next(); s != nil {
			s.setRequest(&r.Key, &r.Command, d)
			s.waiting = int32(waiting) // at most the waiters of a server
			s.setWaits(r.Command.MaxWait, r.WaitedUntil(d.At))
		}
	}
}

// ObserveGrant implements [gate.Observer].
func (o *Recorder) ObserveGrant(r *gate.GrantRequest, waiting int) {
	d, cmd := &r.Decision, &r.Command
	if r.Err != nil || d.Outcome > gatehouse.Granted {
		return
	}
	waited := r.WaitedUntil(d.At)
	if d.Outcome == gatehouse.Refused && o.Log != nil {
		w := o.begin(1)
		d.Number = w.number
		if s := w.next(); s != nil {
			s.setGrant(cmd, d)
			s.waiting = int32(waiting) // as above
			s.setWaits(cmd.MaxWait, waited)
		}
		w.end()
	}
	// Questions use up nothing, and are no use of a name.
	if cmd.IsLook() || cmd.Op == gatehouse.OpPeek {
		return
	}
	user, known := userOf(cmd.Owner, cmd.Origin)
	// Of a grant that was refused only the name that refused is counted: the others had room.
	for i := range d.Want {
		m := &d.Want[i]
		if d.Outcome == gatehouse.Refused && i != d.Binding {
			continue
		}
		u := uses{key: &m.Key, at: &d.At, user: user, known: known}
		u.add(d.Outcome, waited, d.Outcome == gatehouse.Granted && isNear(cmd.Op, &m.Decision))
		o.count(&u)
	}
}

// setGrant sets a refusal over several names: the figures are those of the one that refused.
func (s *slot) setGrant(cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision) {
	one := gatehouse.Command{
		Op: cmd.Op, Expires: cmd.Expires, MaxWait: cmd.MaxWait, Owner: cmd.Owner, Origin: cmd.Origin,
	}
	rest := &Explained{Binding: d.Binding, Members: make([]ExplainedName, len(d.Want))}
	binding := gatehouse.Decision{Message: d.Message}
	for i := range d.Want {
		m := &d.Want[i]
		rest.Members[i] = ExplainedName{
			Key: m.Key, Cost: m.Cost, Outcome: m.Outcome, Limit: m.Limit, Remaining: m.Remaining,
			RetryAfter: m.RetryAfter,
		}
		// Operations on a grant that is there want no names: the decision has those of the record.
		if i < len(cmd.Want) {
			rest.Members[i].Cost = cmd.Want[i].Cost
		}
		if i == d.Binding {
			binding = m.Decision
			if i < len(cmd.Want) {
				one.Rule, one.Cost = cmd.Want[i].Rule, cmd.Want[i].Cost
			}
		}
	}
	// Without an id there is no record to name, as for a limiter with parents, so the first name stands for
	// all.
	key := gatehouse.Key{Kind: gatehouse.Grant, Name: cmd.ID}
	if cmd.ID == "" && len(cmd.Want) > 0 {
		key = cmd.Want[0].Key
	}
	binding.At, binding.RetryAfter = d.At, d.RetryAfter
	s.setRequest(&key, &one, &binding)
	// setRequest has kept a rest of its own if there was cause to; this one has the members too.
	rest.Command, rest.Decision = one, binding
	rest.Decision.Windows = slices.Clone(binding.Windows)
	s.rest = rest
}

// minNear is the smallest limit that can be near: of a smaller one less than a tenth is nothing.
const minNear = 10

// isNear reports whether something was granted with less than a tenth of the limit left, which is at least
// minNear.
func isNear(op gatehouse.Op, d *gatehouse.Decision) bool {
	// Other operations give back, or only look: they do not bring a name near its limit.
	return d.Outcome == gatehouse.Granted && d.Limit >= minNear && 10*d.Remaining < d.Limit &&
		(op == gatehouse.OpAcquire || op == gatehouse.OpReserve || op == gatehouse.OpTopUp)
}

// uses are decisions about one name that are counted together.
type uses struct {
	key   *gatehouse.Key // nil if there are none
	at    *time.Time     // of the last one
	user  string         // for whom they are; empty if that is not known
	known bool           // the user was identified, and is no owner as the client tells it

	granted, refused, near int
	waits                  int // that came after a wait
	waited                 time.Duration
}

// add adds a decision.
func (u *uses) add(outcome gatehouse.Outcome, waited time.Duration, near bool) {
	if outcome == gatehouse.Granted {
		u.granted++
	} else {
		u.refused++
	}
	if near {
		u.near++
	}
	if waited > 0 {
		u.waits++
		u.waited += waited
	}
}

// userOf returns for whom a request is: its user, or else the owner as the client tells it; empty if neither
// is known.
func userOf(owner *gatehouse.Owner, origin *gatehouse.Origin) (user string, known bool) {
	switch {
	// A user was proved by a token or a certificate, an owner is only told.
	case origin != nil && origin.User != "":
		return origin.User, true
	case owner != nil:
		return owner.Name, false
	}
	return "", false
}

// count counts uses.
func (o *Recorder) count(u *uses) {
	if u.key == nil {
		return
	}
	o.counts.count(u)
	o.countMeasure(Granted, u.granted, u)
	o.countMeasure(Refused, u.refused, u)
	o.countMeasure(Waited, u.waits, u)
}
