package control

import (
	"github.com/gatehousehq/gatehouse"
)

// applyGrantCommand applies a part of a joint change.
func (l *limiterStep) applyGrantCommand() {
	switch l.turn.Op {
	case gatehouse.OpAcquire:
		l.acquireForGrant()
	case gatehouse.OpRenew, gatehouse.OpSettle, gatehouse.OpRelease:
		l.d.Outcome, l.d.Value = gatehouse.Granted, l.turn.Grant.Counted
	default:
		l.peekOrDelay()
	}
}

// acquireForGrant takes what a grant wants now, or says when it might.
func (l *limiterStep) acquireForGrant() {
	if !l.applyLimits() {
		return
	}
	l.clipCost()
	if !l.checkAvailable() {
		if l.d.Outcome == gatehouse.Refused {
			l.countRefused(l.turn)
		}
		return
	}
	if !l.turn.isTrial() {
		l.countPassed(l.d.At, l.turn)
		for _, m := range l.activeMeters() {
			m.takeTokens(l.now, l.now, l.turn.Cost)
		}
	}
	l.fillGranted()
	l.d.Value = l.turn.Cost
	if l.turn.Grant.ID != "" {
		l.d.Fence = leastFence(l.d.At, l.turn)
	}
}

// clipCost cuts a cost that could never fit to what can be taken at once, if the command allows it. A limit of
// 0 stops, and cuts nothing.
func (l *limiterStep) clipCost() {
	limit, _ := l.limitAndFree()
	if !l.turn.Grant.Clip || limit == 0 || l.turn.Cost <= limit {
		return
	}
	// The command is the caller's, and stays as it is.
	cmd, turn := *l.turn.Command, *l.turn
	cmd.Cost = limit
	turn.Command = &cmd
	l.turn = &turn
}
