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

// reads are the operations that change nothing. They are no use of a name.
var reads = [gatehouse.OpUndo + 1]bool{
	gatehouse.OpPeek: true, gatehouse.OpDelay: true, gatehouse.OpValue: true, gatehouse.OpStats: true,
	gatehouse.OpHolders: true, gatehouse.OpWaiters: true,
}

// ObserveRequest implements [gate.Observer].
func (o *Recorder) ObserveRequest(r *gate.Request, d *gatehouse.Decision, waiting int) {
	cmd := &r.Command
	if r.Err != nil || d.Outcome > gatehouse.Granted {
		return
	}
	waited := r.WaitedUntil(d.At)
	if d.Outcome == gatehouse.Refused && o.Log != nil {
		number, s := o.begin()
		if s != nil {
			s.setRequest(r.Key, cmd, d)
			s.waited, s.waiting = waited, int32(waiting) // at most the waiters of a server
			s.mu.Unlock()
		}
		d.Number = number
	}
	if !reads[cmd.Op] {
		o.observe(&use{
			key: r.Key, outcome: d.Outcome, at: d.At, waited: waited, near: isNear(cmd.Op, d),
			owner: cmd.Owner, origin: cmd.Origin,
		})
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
		number, s := o.begin()
		if s != nil {
			s.setGrant(cmd, d)
			s.waited, s.waiting = waited, int32(waiting) // as above
			s.mu.Unlock()
		}
		d.Number = number
	}
	if cmd.IsLook() || cmd.Op == gatehouse.OpPeek {
		return
	}
	// Of a grant that was refused only the name that refused is counted: the others had room.
	for i := range d.Want {
		m := &d.Want[i]
		if d.Outcome == gatehouse.Refused && i != d.Binding {
			continue
		}
		o.observe(&use{
			key: m.Key, outcome: d.Outcome, at: d.At, waited: waited,
			near:  d.Outcome == gatehouse.Granted && isNear(cmd.Op, &m.Decision),
			owner: cmd.Owner, origin: cmd.Origin,
		})
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
	key := gatehouse.Key{Kind: gatehouse.Grant, Name: cmd.ID}
	if cmd.ID == "" && len(cmd.Want) > 0 {
		key = cmd.Want[0].Key
	}
	binding.At, binding.RetryAfter = d.At, d.RetryAfter
	s.setRequest(key, &one, &binding)
	rest.Command, rest.Decision = one, binding
	rest.Decision.Windows = slices.Clone(binding.Windows)
	s.rest = rest
}

// minNear is the smallest limit that can be near: of a smaller one less than a tenth is nothing.
const minNear = 10

// isNear reports whether something was granted with less than a tenth of the limit left, which is at least
// minNear.
func isNear(op gatehouse.Op, d *gatehouse.Decision) bool {
	return d.Outcome == gatehouse.Granted && d.Limit >= minNear && 10*d.Remaining < d.Limit &&
		(op == gatehouse.OpAcquire || op == gatehouse.OpReserve || op == gatehouse.OpTopUp)
}

// A use is one decision about one name.
type use struct {
	key     gatehouse.Key
	outcome gatehouse.Outcome // Granted or Refused
	at      time.Time
	waited  time.Duration
	near    bool
	owner   *gatehouse.Owner
	origin  *gatehouse.Origin
}

// user returns for whom a use is: the user of the request, or else the owner as the client tells it; empty if
// neither is known.
func (u *use) user() string {
	switch {
	case u.origin != nil && u.origin.User != "":
		return u.origin.User
	case u.owner != nil:
		return u.owner.Name
	}
	return ""
}

// observe counts a use.
func (o *Recorder) observe(u *use) {
	o.counts.count(u)
	measure := Granted
	if u.outcome == gatehouse.Refused {
		measure = Refused
	}
	o.countMeasure(measure, u)
	if u.waited > 0 {
		o.countMeasure(Waited, u)
	}
}
