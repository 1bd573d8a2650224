package control

import (
	"cmp"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what a limiter does as a part of a joint change. See GrantTurn for what each turn says.

// applyGrantCommand applies a part of a joint change.
func (l *limiterStep) applyGrantCommand() {
	switch l.turn.Op {
	case gatehouse.OpAcquire:
		l.acquireForGrant()
	case gatehouse.OpRenew:
		l.renewShare()
	case gatehouse.OpSettle, gatehouse.OpRelease:
		l.settleShare()
	// A question, which takes nothing and has no share.
	default:
		l.peekOrDelay()
	}
}

// isFollowing reports whether the turn is about a grant that is there: then the limits in force stay.
func (t *Turn) isFollowing() bool {
	return t.Grant != nil && t.Grant.Command.Op != gatehouse.OpAcquire && !t.Grant.Command.IsLook()
}

// acquireForGrant takes what a grant wants now, or what it adds, or says when it might.
func (l *limiterStep) acquireForGrant() {
	if !l.applyLimits() {
		return
	}
	l.clipCost()
	if !l.turn.Grant.tried && !l.checkAvailable() {
		if l.d.Outcome == gatehouse.Refused {
			l.countRefused(l.turn)
		}
		return
	}
	g := l.turn.Grant
	topup, share := l.turn.isFollowing(), (*grantShare)(nil)
	fence := uint64(0) // of a grant without a record there is none
	switch {
	case topup:
		fence, share = l.turn.Fence, l.extra.findShare(l.turn.Fence)
	case g.ID != "":
		fence = l.nextShareFence()
		// Also in a trial: a change that was found to pass must not fail afterwards.
		if most := cmp.Or(l.turn.MaxHolders, maxHolders); l.shareCount() >= most {
			l.failWith(gatehouse.Exhausted, "has as many grants as one name may have")
			return
		}
	}
	value := addSaturating(g.Counted, l.turn.Cost) // the first is 0, but of a topup
	if share != nil {
		value = addSaturating(share.counted, l.turn.Cost)
	}
	l.d.Outcome, l.d.Value, l.d.Fence = gatehouse.Granted, value, fence
	if g.Trial {
		return
	}
	l.countPassed(l.d.At, l.turn)
	if !topup && g.ID != "" {
		share = l.addShare()
	}
	l.takeForShare(share, l.turn.Cost)
	if share != nil {
		share.taken, share.counted = addSaturating(share.taken, l.turn.Cost), value
	}
	l.fillGranted()
}

// shareCount is how many grants have a share.
func (l *limiterStep) shareCount() int {
	if l.extra == nil || l.extra.shares == nil {
		return 0
	}
	return len(l.extra.shares.list)
}

// clipCost cuts a cost that could never fit to what can be taken at once, if the command allows it. A limit
// of 0 stops, and cuts nothing.
func (l *limiterStep) clipCost() {
	if !l.turn.Grant.Clip {
		return
	}
	limit, _ := l.limitAndFree()
	if limit == 0 || l.turn.Cost <= limit {
		return
	}
	// The command is the caller's, and stays as it is.
	cmd, turn := *l.turn.Command, *l.turn
	cmd.Cost = limit
	turn.Command = &cmd
	l.turn = &turn
}

// renewShare moves the end of a share. One that was reset has nothing to renew, which the grant need not
// know.
func (l *limiterStep) renewShare() {
	l.d.Outcome, l.d.Value = gatehouse.Granted, l.turn.Grant.Counted
	share := l.extra.findShare(l.turn.Fence)
	if share == nil {
		return
	}
	l.fillGranted()
	l.d.Value, l.d.Fence = share.counted, share.fence
	if !l.turn.isTrial() {
		share.until = addSaturating(l.now, int64(l.turn.Expires))
		// It may be too early now: endDueShares then finds none that is due, and the next end.
		l.extra.shares.nextEnd = min(l.extra.shares.nextEnd, share.until)
	}
}

// settleShare makes as much count as a grant says it has cost so far, and ends its share if it is released.
func (l *limiterStep) settleShare() {
	share := l.extra.findShare(l.turn.Fence)
	counted, overrun := l.turn.Grant.Counted, l.turn.Grant.Overrun
	if share != nil {
		counted, overrun = share.counted, share.overrun
	}
	figure := l.turn.Cost
	if figure == NoFigure {
		figure = counted
	}
	// Under a name that was deleted, and whose limit the grant never said, there is nothing to charge.
	if l.created == 0 && !l.turn.HasLimit() {
		figure = min(figure, counted)
	}
	// What is charged may make the limiter again, if it was deleted since.
	if figure > counted && !l.applyLimits() {
		return
	}
	c, value := chargePlan{}, figure
	if figure > counted {
		// A plan is made on copies: if the debt cannot be laid, nothing was taken yet.
		plan, fault := l.planCharge(figure-counted, overrun)
		if fault != "" && l.turn.Op == gatehouse.OpRelease {
			// A release ends the grant, and must not keep its locks for the sake of a figure.
			plan, fault = l.planCharge(figure-counted, gatehouse.OverrunCap)
		}
		if fault != "" {
			l.failWith(gatehouse.Conflict, fault)
			return
		}
		c, value = plan, counted+plan.free+plan.debt
	}
	if !l.turn.isTrial() {
		l.carryOutSettle(share, figure, c)
	}
	if l.created != 0 {
		l.fillGranted()
	}
	l.d.Outcome, l.d.Value, l.d.Booked, l.d.Fence = gatehouse.Granted, value, c.debt, l.turn.Fence
	if c.debt > 0 && !l.turn.isTrial() {
		l.d.Delay = time.Duration(l.earliestStart() - l.now)
	}
}

// carryOutSettle makes a figure count, and ends the share if the grant is released. Without a share only what
// is charged is left to do.
func (l *limiterStep) carryOutSettle(share *grantShare, figure int64, c chargePlan) {
	if share != nil && figure < share.counted {
		l.giveBackShare(share, share.counted-figure)
		share.counted = figure
	}
	l.carryOutCharge(share, c)
	if share != nil && l.turn.Op == gatehouse.OpRelease {
		l.dropShare(share)
	}
}

// undoShare takes back what an acquire or a topup of a grant with a record took.
func (l *limiterStep) undoShare() {
	granted := l.turn.Granted
	share := l.extra.findShare(granted.Fence)
	if share == nil {
		return // it ended, or was reset, and what was taken counts as it was told last
	}
	l.uncountPassed(l.turn)
	if l.turn.isFollowing() {
		share.taken -= min(l.turn.Cost, share.taken)
		// A settle that came after it has said the whole cost, whatever was added before.
		if n := min(l.turn.Cost, share.counted); !l.turn.Grant.settled {
			l.giveBackShare(share, n)
			share.counted -= n
		}
		return
	}
	l.giveBackShare(share, share.counted)
	l.dropShare(share)
}

// memoryWeight is what the shares take.
func (m *shareList) memoryWeight() int {
	if m == nil {
		return 0
	}
	return shareListWeight + cap(m.list)*8 + m.bytes
}

// shareGrowth is by how much a turn of a grant with a record may make the limiter grow.
func (l *limiterStep) shareGrowth() int {
	if l.turn.Op == gatehouse.OpRenew || l.turn.Cost == NoFigure {
		return 0
	}
	keeps := l.created != 0 && (l.turn.isFollowing() || l.keepsLimits(l.turn.Command))
	limits := len(l.activeMeters())
	if !keeps {
		limits = max(limits, limitCount(&l.turn.Rule))
	}
	// Lists that are full are replaced by ones that are about twice as long.
	more := l.extraGrowth(keeps) + limits*windowResetWeight
	if l.turn.isFollowing() {
		return more + (2*maxTakes+1)*takeWeight + (maxSpans+1)*debtSpanWeight
	}
	return more + shareListWeight + shareWeight + takeWeight + 8*max(8, 2*l.shareCount())
}
