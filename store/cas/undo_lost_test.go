package cas_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A lossyPair is two servers on one store, of which the first is about to lose an answer or a request.
type lossyPair struct {
	t        *testing.T
	store    *castest.Store
	one, two *cas.Store
}

// onLossyPair plays a test in virtual time.
func onLossyPair(t *testing.T, test func(p *lossyPair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := castest.New(1, false)
		p := &lossyPair{
			t: t, store: store,
			one: cas.New(store.Server(0), cas.Config{Server: 1}),
			two: cas.New(store.Server(0), cas.Config{Server: 2}),
		}
		defer p.one.Close()
		defer p.two.Close()
		test(p)
	})
}

func (p *lossyPair) must(s *cas.Store, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	p.t.Helper()
	return p.mustTurn(s, key, control.Turn{Command: &cmd})
}

func (p *lossyPair) mustTurn(s *cas.Store, key gatehouse.Key, turn control.Turn) gatehouse.Decision {
	p.t.Helper()
	d, err := applyTurn(s, key, turn)
	if err != nil || d.Outcome != gatehouse.Granted {
		p.t.Fatalf("%s of %s = %+v, %v", turn.Op, key, d, err)
	}
	return d
}

// fail has the first server, which knows the record, put a queue to the store while something is lost.
func (p *lossyPair) fail(faults castest.Faults, key gatehouse.Key, queue []control.Turn) {
	p.t.Helper()
	p.must(p.one, key, gatehouse.Command{Op: gatehouse.OpStats})
	faults.Silent = 1
	p.store.Set(faults)
	if err := (&control.Change{Key: key, Turns: queue}).ApplyTo(p.one); err == nil {
		p.t.Fatal("nothing was lost")
	}
	p.store.Set(castest.Faults{})
}

// amended waits until the first server has looked at all that it was to take back.
func (p *lossyPair) amended() {
	p.t.Helper()
	pass(5 * time.Second)
	if n := p.one.PendingUndos(); n > 0 {
		p.t.Fatalf("%d undos are pending", n)
	}
}

// An undo of a limiter is done at most once, even if more undos than a record remembers are under way in the
// same transaction, or are done before its server looks at it again. None of what other requests took is
// given back. What was certainly not done is done later.
func TestManyUndosAreDoneOnce(t *testing.T) {
	const crowd, others = 40, 60
	for name, c := range map[string]struct {
		faults  castest.Faults
		pending int // of the crowd's undos, those whose outcome is not known
		left    int64
	}{
		"one transaction, made":     {castest.Faults{LostAnswer: 1}, crowd, crowd},
		"one transaction, not made": {castest.Faults{LostRequest: 1}, crowd, crowd},
		"others behind one":         {castest.Faults{LostAnswer: 1}, 1, crowd},
	} {
		t.Run(name, func(t *testing.T) {
			onLossyPair(t, func(p *lossyPair) {
				key := named(gatehouse.FixedWindow, "w")
				take := gatehouse.Command{
					Op:   gatehouse.OpAcquire,
					Rule: gatehouse.Rule{Size: crowd + others, Interval: 100 * time.Hour}, Cost: 1,
				}
				undos := make([]control.Turn, crowd)
				for i := range undos {
					d := p.must(p.one, key, take)
					undos[i] = control.UndoOf(&control.Turn{Command: &take}, &d)
				}
				for range others {
					p.must(p.two, key, take)
				}
				p.fail(c.faults, key, undos[:c.pending])
				for _, undo := range undos[c.pending:] {
					p.mustTurn(p.two, key, undo)
				}
				p.amended()
				peek := take
				peek.Op, peek.Cost = gatehouse.OpPeek, 0
				if d := p.must(p.two, key, peek); d.Remaining != c.left {
					t.Errorf("%d of %d are left after %d were taken back, want %d",
						d.Remaining, crowd+others, crowd, c.left)
				}
			})
		})
	}
}

// A reserve that told again of a place, and of which it can not be learnt whether it was carried out, leaves
// that place alone: it was answered before.
func TestUnknownReserveLeavesAPlaceThatWasThere(t *testing.T) {
	onLossyPair(t, func(p *lossyPair) {
		key := named(gatehouse.FixedWindow, "w")
		reserve := gatehouse.Command{
			Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: 1, Interval: time.Hour}, Cost: 1, Holder: "a",
		}
		p.must(p.one, key, gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: time.Hour}, Cost: 1,
		})
		first := p.must(p.one, key, reserve)
		p.fail(castest.Faults{LostRequest: 1}, key, []control.Turn{{Command: &reserve}})
		for i := range 10 {
			other := reserve
			other.Holder = fmt.Sprint("other", i)
			p.must(p.two, key, other)
		}
		p.amended()
		if again := p.must(p.two, key, reserve); again.Reservation != first.Reservation {
			t.Errorf("the place of a has the number %d, want %d as it was answered",
				again.Reservation, first.Reservation)
		}
	})
}
