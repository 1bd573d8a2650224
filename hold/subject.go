package hold

import (
	"context"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// A Granter is a gate that decides about several names at once, as that of the process and a client do.
type Granter interface {
	gatehouse.Gate
	// DoGrant answers cmd, as Do answers a command about one name.
	DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error)
}

// A single is a semaphore or a lock.
type single struct {
	gate gatehouse.Gate
	key  gatehouse.Key
	size int64
}

// String returns the name with its kind.
func (s *single) String() string { return s.key.String() }

func (s *single) acquire(ctx context.Context, h *Handle, a ask) (holdAnswer, error) {
	return s.do(ctx, gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: a.key, Rule: gatehouse.Rule{Size: s.size}, Cost: max(1, h.Cost),
		Expires: h.term(), MaxWait: a.wait, Owner: h.Owner,
	})
}

func (s *single) renew(ctx context.Context, h *Hold) (holdAnswer, error) {
	return s.do(ctx, gatehouse.Command{
		Op: gatehouse.OpRenew, Holder: h.key, Fence: h.fence, Expires: h.term,
	})
}

func (s *single) release(ctx context.Context, h *Hold, _ []gatehouse.MemberCost) (holdAnswer, error) {
	return s.do(ctx, gatehouse.Command{Op: gatehouse.OpRelease, Holder: h.key, Fence: h.fence})
}

func (s *single) do(ctx context.Context, cmd gatehouse.Command) (holdAnswer, error) {
	d, err := s.gate.Do(ctx, s.key, cmd)
	return holdAnswer{d.Outcome, d.Fence, d.ExpiresAfter, d.Message}, err
}

// A joint is a grant over several names.
type joint struct {
	gate     Granter
	want     []gatehouse.Member
	overrun  gatehouse.Overrun
	onExpiry gatehouse.OnExpiry
}

// String returns the names with their kinds.
func (j *joint) String() string {
	names := make([]string, len(j.want))
	for i := range j.want {
		names[i] = j.want[i].Key.String()
	}
	return strings.Join(names, ", ")
}

func (j *joint) acquire(ctx context.Context, h *Handle, a ask) (holdAnswer, error) {
	return j.do(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: a.key, Want: j.want, Expires: h.term(), MaxWait: a.wait, Owner: h.Owner,
		Overrun: j.overrun, OnExpiry: j.onExpiry,
	})
}

func (j *joint) renew(ctx context.Context, h *Hold) (holdAnswer, error) {
	return j.do(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpRenew, ID: h.key, Fence: h.fence, Expires: h.term,
	})
}

func (j *joint) release(ctx context.Context, h *Hold, costs []gatehouse.MemberCost) (holdAnswer, error) {
	return j.do(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpRelease, ID: h.key, Fence: h.fence, Costs: costs,
	})
}

func (j *joint) do(ctx context.Context, cmd gatehouse.GrantCommand) (holdAnswer, error) {
	d, err := j.gate.DoGrant(ctx, cmd)
	return holdAnswer{d.Outcome, d.Fence, d.ExpiresAfter, d.Message}, err
}
