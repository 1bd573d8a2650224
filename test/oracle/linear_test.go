package oracle

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A tell is one call of a history that is told, not lived. Those with overlaps begin before the one before
// them has ended.
type tell struct {
	key      gatehouse.Key
	cmd      gatehouse.Command
	d        gatehouse.Decision
	lost     bool
	overlaps bool
}

func of(kind gatehouse.Kind) gatehouse.Key { return gatehouse.Key{Kind: kind, Name: "a"} }

func acquire(holder string, fence uint64) tell {
	outcome := gatehouse.Refused
	if fence != 0 {
		outcome = gatehouse.Granted
	}
	return tell{
		key: of(gatehouse.Lock), d: gatehouse.Decision{Outcome: outcome, Fence: fence},
		cmd: gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: 1}, Cost: 1,
		},
	}
}

func release(holder string, outcome gatehouse.Outcome) tell {
	return tell{
		key: of(gatehouse.Lock), d: gatehouse.Decision{Outcome: outcome},
		cmd: gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder},
	}
}

func renew(holder string, fence uint64) tell {
	t := acquire(holder, fence)
	if t.cmd.Op = gatehouse.OpRenew; fence == 0 {
		t.d.Outcome = gatehouse.Conflict
	}
	return t
}

// ofFive is a release or a renewal that names the hold with fencing token 5.
func ofFive(t tell) tell {
	t.cmd.Fence = 5
	return t
}

// pool is a call on a semaphore of two.
func pool(t tell) tell {
	t.key, t.cmd.Size = of(gatehouse.Semaphore), 2
	return t
}

func count(amount, value int64) tell {
	return tell{
		key: of(gatehouse.Counter), d: gatehouse.Decision{Outcome: gatehouse.Granted, Value: value},
		cmd: gatehouse.Command{Op: gatehouse.OpCount, Amount: amount},
	}
}

func event(op gatehouse.Op, outcome gatehouse.Outcome, message string) tell {
	t := tell{key: of(gatehouse.Event), d: gatehouse.Decision{Outcome: outcome}}
	t.cmd = gatehouse.Command{Op: op}
	if op == gatehouse.OpSend {
		t.cmd.Message = message
	} else {
		t.d.Message = message
	}
	return t
}

func lost(t tell) tell {
	t.lost = true
	return t
}

func overlapping(t tell) tell {
	t.overlaps = true
	return t
}

const (
	granted  = gatehouse.Granted
	refused  = gatehouse.Refused
	conflict = gatehouse.Conflict
	send     = gatehouse.OpSend
	wait     = gatehouse.OpWait
)

// histories are right or wrong.
var histories = []struct {
	name  string
	right bool
	told  []tell
}{
	{"one after the other", true, []tell{acquire("a", 5), release("a", granted), acquire("b", 6)}},
	{"two holders", false, []tell{acquire("a", 5), acquire("b", 6)}},
	{"the token goes back", false, []tell{acquire("a", 5), release("a", granted), acquire("b", 4)}},
	{"refused though free", false, []tell{acquire("a", 0)}},
	{"released during another's acquire", true, []tell{
		acquire("a", 5), release("a", granted), overlapping(acquire("b", 6)),
	}},
	{"two at once", false, []tell{acquire("a", 5), overlapping(acquire("b", 6))}},
	{"a foreign release", false, []tell{acquire("a", 5), release("b", granted)}},
	{"a release that went astray", false, []tell{acquire("a", 5), release("a", conflict)}},
	{"a release with a lost answer", true, []tell{
		acquire("a", 5), lost(release("a", 0)), acquire("b", 6),
	}},
	{"the same without effect", true, []tell{acquire("a", 5), lost(release("a", 0)), acquire("b", 0)}},
	{"an acquire with a lost answer", true, []tell{lost(acquire("a", 1)), acquire("b", 0)}},
	{"the same, taken back", true, []tell{lost(acquire("a", 1)), acquire("b", 0), acquire("c", 9)}},
	{"taken back only once", false, []tell{
		lost(acquire("a", 1)), acquire("b", 0), acquire("c", 9), acquire("d", 10),
	}},
	{"acquired again, which is no longer taken back", false, []tell{
		lost(acquire("a", 0)), acquire("a", 5), acquire("b", 6),
	}},
	{"acquired again after it was taken back", true, []tell{
		lost(acquire("a", 0)), acquire("b", 5), release("b", granted), acquire("a", 6), acquire("b", 0),
	}},
	{"released, and held once more", false, []tell{
		lost(acquire("a", 0)), acquire("a", 5), release("a", granted), acquire("a", 6), acquire("b", 7),
	}},
	{"the lost one comes after a release", true, []tell{
		lost(acquire("a", 0)), acquire("a", 5), release("a", granted), acquire("b", 0), acquire("b", 7),
	}},
	{"renewed, which is no longer taken back", false, []tell{
		lost(acquire("a", 0)), renew("a", 5), acquire("b", 6),
	}},
	{"a renewal with a lost answer", true, []tell{
		lost(acquire("a", 0)), lost(renew("a", 0)), acquire("b", 6),
	}},
	{"two lost, one taken back", true, []tell{
		lost(acquire("a", 0)), lost(acquire("a", 0)), acquire("b", 0), renew("a", 5), acquire("b", 0),
	}},
	{"two lost, both taken back", true, []tell{
		lost(acquire("a", 0)), lost(acquire("a", 0)), acquire("b", 6), release("b", granted), renew("a", 8),
		release("a", granted), acquire("b", 9),
	}},
	{"two lost, three times there", false, []tell{
		lost(acquire("a", 0)), lost(acquire("a", 0)), acquire("b", 6), release("b", granted), renew("a", 8),
		release("a", granted), acquire("b", 0), acquire("b", 9), release("b", granted), renew("a", 10),
	}},
	{"a token that was lost is in between", true, []tell{
		lost(acquire("b", 0)), acquire("b", 5), release("b", granted), acquire("c", 9), release("c", granted),
	}},
	{"of two holds the later has the greater token", true, []tell{
		lost(pool(acquire("a", 0))), pool(acquire("b", 6)), pool(acquire("c", 0)), pool(renew("a", 5)),
	}},
	{"a lost one comes late, with the greater token", true, []tell{
		lost(pool(acquire("a", 0))), pool(acquire("b", 6)), pool(renew("a", 7)),
	}},
	{"a lost one came early, with the greater token", false, []tell{
		lost(pool(acquire("a", 0))), pool(acquire("b", 4)), pool(acquire("c", 0)),
		pool(release("b", granted)), pool(acquire("c", 6)), pool(acquire("d", 0)), pool(renew("a", 7)),
	}},
	{"renewed by a stranger", false, []tell{acquire("a", 5), renew("b", 5)}},
	{"renewed with another token", false, []tell{acquire("a", 5), renew("a", 6)}},
	{"released by its token", true, []tell{
		acquire("a", 5), ofFive(release("a", granted)), acquire("b", 6),
	}},
	{"released by the token of another", false, []tell{
		acquire("a", 5), release("a", granted), acquire("a", 6), ofFive(release("a", granted)),
	}},
	{"a release that means another", true, []tell{
		acquire("a", 5), release("a", granted), acquire("a", 6), ofFive(release("a", conflict)),
		acquire("b", 0),
	}},
	{"a release refused to whom it belongs", false, []tell{
		acquire("a", 5), ofFive(release("a", conflict)),
	}},
	{"a lost release that means another", false, []tell{
		acquire("a", 5), release("a", granted), acquire("a", 6), lost(ofFive(release("a", 0))),
		acquire("b", 7),
	}},
	{"a lost release that means it", true, []tell{
		acquire("a", 5), lost(ofFive(release("a", 0))), acquire("b", 7),
	}},
	{"a renewal by the token of another", false, []tell{
		acquire("a", 5), release("a", granted), acquire("a", 6), ofFive(renew("a", 6)),
	}},
	{"a renewal refused that means another", true, []tell{
		lost(acquire("a", 0)), ofFive(renew("a", 0)), renew("a", 6),
	}},
	{"a renewal refused to whom it belongs", false, []tell{acquire("a", 5), ofFive(renew("a", 0))}},
	{"counts", true, []tell{count(1, 1), count(2, 3)}},
	{"a count is missing", false, []tell{count(1, 1), count(2, 2)}},
	{"counts in another order", true, []tell{count(1, 3), overlapping(count(2, 2))}},
	{"a lost count counts", true, []tell{count(1, 1), lost(count(5, 0)), count(2, 8)}},
	{"a lost count counts twice", false, []tell{count(1, 1), lost(count(5, 0)), count(2, 13)}},
	{"sent and seen", true, []tell{event(send, granted, "x"), event(wait, granted, "x")}},
	{"sent and not seen", false, []tell{event(send, granted, "x"), event(wait, refused, "")}},
	{"sent twice", false, []tell{event(send, granted, "x"), event(send, granted, "y")}},
	{"another message", false, []tell{event(send, granted, "x"), event(wait, granted, "y")}},
}

// What Linear takes for right, and what not.
func TestLinear(t *testing.T) {
	t.Parallel()
	for _, test := range histories {
		var h History
		h.tell(test.told)
		if err := h.Check(time.Minute); (err == nil) != test.right {
			t.Errorf("%s: Check = %v, want right %t", test.name, err, test.right)
		}
	}
}

// tell records what is told.
func (h *History) tell(told []tell) {
	var ends []func()
	end := func() {
		for _, one := range ends {
			one()
		}
		ends = nil
	}
	for _, one := range told {
		if !one.overlaps {
			end()
		}
		done := h.Begin(one.key, one.cmd)
		var err error
		if one.lost {
			err = errors.New("lost")
		}
		ends = append(ends, func() { done(one.d, err) })
	}
	end()
}
