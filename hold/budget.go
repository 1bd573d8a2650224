package hold

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A BudgetHandle reserves costs before they are spent, and corrects them afterwards. Its fields may be set
// before it is used. It is safe for use by many goroutines.
type BudgetHandle struct {
	// Term and Owner are those of each reservation, as in [Handle].
	Term  time.Duration
	Owner *gatehouse.Owner

	// Overrun says what becomes of what was spent beyond what was reserved, and OnExpiry what counts when the
	// program dies before it has said what was spent.
	Overrun  gatehouse.Overrun
	OnExpiry gatehouse.OnExpiry

	gate Granter
	want []gatehouse.Member
}

// Budget is a handle on limits that are spent together, such as requests and tokens, and slots beside them.
// The Cost of each is the estimate.
func Budget(g Granter, want ...gatehouse.Member) *BudgetHandle {
	return &BudgetHandle{gate: g, want: want}
}

// Reserve takes an estimate of all limits as soon as they allow it, all or nothing. costs are those that
// differ from the estimate of the handle. The error is as that of [Handle.Acquire].
func (b *BudgetHandle) Reserve(ctx context.Context, costs ...gatehouse.MemberCost) (*Spending, error) {
	// A copy, since the handle is used by many goroutines.
	want := slices.Clone(b.want)
	for _, cost := range costs {
		i := slices.IndexFunc(want, func(m gatehouse.Member) bool { return m.Key == cost.Key })
		if i < 0 {
			return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "%s: a cost of what the budget does not have",
				cost.Key)
		}
		want[i].Cost = cost.Cost
	}
	handle := Handle{Term: b.Term, Owner: b.Owner, what: &joint{
		gate: b.gate, want: want, overrun: b.Overrun, onExpiry: b.OnExpiry,
	}}
	// A handle of its own for each, as the costs differ.
	hold, err := handle.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Spending{hold, b.gate}, nil
}

// A Spending is what was reserved of a budget. It is renewed as any hold is, until it is released.
type Spending struct {
	*Hold
	gate Granter
}

// TopUp takes more before it is spent, all or nothing. ok is false if that is not free now.
func (s *Spending) TopUp(ctx context.Context, costs ...gatehouse.MemberCost) (ok bool, err error) {
	d, err := s.about(ctx, gatehouse.OpTopUp, costs)
	if err != nil || d.Outcome == gatehouse.Refused {
		return false, err
	}
	return true, s.failureOf(&d)
}

// Settle says the whole cost so far: what was taken beyond it is given back, and what is missing is charged.
// It may be called again, and the last counts.
func (s *Spending) Settle(ctx context.Context, costs ...gatehouse.MemberCost) error {
	d, err := s.about(ctx, gatehouse.OpSettle, costs)
	if err != nil {
		return err
	}
	return s.failureOf(&d)
}

// Release ends the reservation, and says the whole cost. Without costs what was taken counts, or what was
// settled last. The error is as that of [Hold.Release].
func (s *Spending) Release(costs ...gatehouse.MemberCost) error { return s.releaseOnce(costs) }

func (s *Spending) about(
	ctx context.Context, op gatehouse.Op, costs []gatehouse.MemberCost,
) (gatehouse.GrantDecision, error) {
	// After it is lost, its slots may be another's, and what is spent does not belong to it.
	if err := s.Err(); err != nil {
		return gatehouse.GrantDecision{}, err
	}
	return s.gate.DoGrant(ctx, gatehouse.GrantCommand{Op: op, ID: s.key, Fence: s.fence, Costs: costs})
}

// failureOf is the error that a decision is, nil if it is a grant.
func (s *Spending) failureOf(d *gatehouse.GrantDecision) error {
	switch d.Outcome {
	case gatehouse.Granted:
		return nil
	// The server has ended the grant, whatever the clock of this program says.
	case gatehouse.Missing:
		return s.lostError(d.Message)
	}
	return outcomeError(s.what.String(), d.Outcome, d.Message)
}
