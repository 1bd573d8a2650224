package gate

import (
	"context"

	"github.com/gatehousehq/gatehouse"
)

// A GrantRequest is a command over several names, and what became of it. It is the caller's, who may use it
// again, and the gate's from SubmitGrant until Decided is called.
type GrantRequest struct {
	Command gatehouse.GrantCommand

	// Decided is called exactly once for each SubmitGrant, as that of a [Request] is.
	Decided func(*GrantRequest)

	Decision gatehouse.GrantDecision
	Err      error
}

// SubmitGrant decides a request over several names, as Submit does for one.
func (g *Gate) SubmitGrant(r *GrantRequest) { panic("not yet") }

// CancelGrant is Cancel for a request over several names.
func (g *Gate) CancelGrant(r *GrantRequest) { panic("not yet") }

// DoGrant is Do for a command over several names.
func (g *Gate) DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	panic("not yet")
}
