package control

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file makes the lists of holders and waiters that people look at.

// A Line is what waits in front of a controller at one server, as far as a list of waiters has to know: those
// in front of the list, and those in it.
type Line struct {
	Total   int // how many wait in all
	From    int // the index in Entries of the first that is listed
	Entries []LineEntry
}

// A LineEntry is one command that waits.
type LineEntry struct {
	Ticket  Ticket
	Owner   *gatehouse.Owner
	Grant   string // the id of a grant that waits; empty for any other command
	Cost    int64
	Expires time.Duration // the length of the hold that it wants
	Since   time.Time     // the store's time of its first look; the zero time before that
}

// report answers OpHolders or OpWaiters. s is nil when there is no controller.
func report(now time.Time, s State, turn *Turn) gatehouse.Decision {
	if Absent(s) && turn.Line == nil {
		return failedWith(now, gatehouse.Missing, "")
	}
	d := grantedAt(now)
	d.Report = new(gatehouse.Report)
	if turn.Op == gatehouse.OpWaiters {
		reportWaiters(now, s, turn.Line, d.Report)
	}
	switch s := s.(type) {
	case *Semaphore:
		// What has ended is not held, whether a command came since or not.
		s.expireHolds(now.UnixNano())
		d.Report.Limit, d.Report.Used = max(s.size, boolToInt(s.lock)), s.heldCost
		d.Report.Closed = s.closing().public()
		if turn.Op == gatehouse.OpHolders {
			s.reportHolders(now, turn.Command, d.Report)
		}
	case anyLimiter:
		step := s.stepAt(now.UnixNano(), turn)
		d.Report.Closed = step.extra.closing().public()
	}
	return d
}

// maxListedBytes is how many bytes of texts a list has, and the last one more: the rest is for the next list.
const maxListedBytes = 256 << 10

// listedMost is how many entries a list has at most.
func listedMost(cmd *gatehouse.Command) int {
	if cmd.Amount < 1 || cmd.Amount > gatehouse.MaxListed {
		return gatehouse.DefaultListed
	}
	return int(cmd.Amount) // at most MaxListed
}

// reportHolders lists what is held behind a fencing token.
func (s *Semaphore) reportHolders(now time.Time, cmd *gatehouse.Command, r *gatehouse.Report) {
	r.Total = len(s.holds.heap)
	most, bytes := listedMost(cmd), 0
	// One more than is listed tells whether there are more.
	for _, h := range s.holdsBehind(cmd.Fence, most+1) {
		if len(r.Holders) == most || bytes >= maxListedBytes {
			r.Next = gatehouse.HolderID(r.Holders[len(r.Holders)-1].Fence)
			return
		}
		e := s.describeHold(now, h)
		bytes += ownerWeight(h.owner)
		r.Holders = append(r.Holders, e)
	}
}

// describeHold is what a list tells of a hold. It never has the key, by which a hold is released.
func (s *Semaphore) describeHold(now time.Time, h *hold) gatehouse.HolderEntry {
	e := gatehouse.HolderEntry{
		Fence: h.fence, Slots: h.cost, Renewals: int64(h.renewals), ExpiresAfter: h.timeLeft(now.UnixNano()),
	}
	if h.owner != nil {
		e.Owner = *h.owner
	}
	if h.acquired != 0 {
		e.Since = time.Unix(0, h.acquired)
		e.HeldFor = max(0, now.Sub(e.Since))
	}
	// Holds of grants have a holder that is made of the grant's id.
	if id, is := strings.CutPrefix(h.holder, GrantHolder("")); is {
		e.Grant = id
	}
	if evicted := s.evictionOf(h); evicted != nil {
		e.Evicted = new(evicted.Closing)
	}
	return e
}

// holdsBehind lists the holds with the least fencing tokens above one, at most so many, in order.
func (s *Semaphore) holdsBehind(fence uint64, most int) []*hold {
	// There may be 100,000. Keeping some more than are wanted, and sorting them now and then, finds the first
	// in one pass.
	var list []*hold
	last := uint64(0) // the greatest that may still be listed; 0 when that is not known yet
	keepFirst := func() {
		slices.SortFunc(list, func(a, b *hold) int { return cmp.Compare(a.fence, b.fence) })
		if len(list) > most {
			list = list[:most]
			last = list[most-1].fence
		}
	}
	for _, h := range s.holds.heap {
		if h.fence > fence && (last == 0 || h.fence < last) {
			list = append(list, h)
		}
		if len(list) >= 4*most {
			keepFirst()
		}
	}
	keepFirst()
	return list
}

// reportWaiters lists the waiting requests, each with an estimate of its wait.
func reportWaiters(now time.Time, s State, line *Line, r *gatehouse.Report) {
	if line == nil {
		return
	}
	r.Total = line.Total
	// For all of the line, since each waits for those in front of it,
	// also where the list begins behind them.
	median, most := forecastWaits(now, s, line.Entries, 50), forecastWaits(now, s, line.Entries, 90)
	for i := line.From; i < len(line.Entries); i++ {
		e := &line.Entries[i]
		w := gatehouse.WaiterEntry{
			ID: gatehouse.WaiterID(uint64(e.Ticket)), Grant: e.Grant, Position: i + 1, Cost: e.Cost,
			Expected: median[i], Expected90: most[i],
		}
		if e.Owner != nil {
			w.Owner = *e.Owner
		}
		// Until the store has looked at it, it is not known since when it waits.
		if !e.Since.IsZero() {
			w.WaitingFor = max(0, now.Sub(e.Since))
		}
		r.Waiters = append(r.Waiters, w)
	}
	if n := len(r.Waiters); n > 0 && len(line.Entries) < line.Total {
		r.Next = r.Waiters[n-1].ID
	}
}

// Describe is what a list of names tells of a controller, at an instant that may be a little before its last
// step. It changes nothing.
func Describe(now time.Time, name string, s State) gatehouse.NameDetails {
	d := gatehouse.NameDetails{Name: name, Since: Created(s)}
	if counts, ok := s.(interface{ baseCounts() *commandCounts }); ok {
		d.Granted, d.Refused = counts.baseCounts().passed, counts.baseCounts().waitCounts().timedOut
	}
	switch s := s.(type) {
	case *Semaphore:
		d.Limit, d.Used, d.Holders = max(s.size, boolToInt(s.lock)), s.heldCost, len(s.holds.heap)
		d.Closed = s.closing().public()
		s.discountEnded(now.UnixNano(), &d)
	case *Barrier:
		d.Limit, d.Used = s.size, int64(len(s.arrivals))
	case anyLimiter:
		step := s.stepAt(now.UnixNano(), nil)
		d.Closed = step.extra.closing().public()
		if step.created == 0 {
			break
		}
		// Meters may drop what has passed as they are read, so that a copy is read.
		trial, decision := step.copyForTrial(), gatehouse.Decision{At: now}
		trial.d = &decision
		trial.fillGranted()
		d.Limit, d.Used = decision.Limit, max(0, decision.Limit-decision.Remaining)
		for _, m := range step.activeMeters() {
			d.Limits = joinLimits(d.Limits, m.currentLimit())
		}
	}
	return d
}

// joinLimits appends a limit to a list of them.
func joinLimits(list string, limit gatehouse.Limit) string {
	if list == "" {
		return limit.String()
	}
	return list + "," + limit.String()
}

// discountEnded leaves out what has ended since the last step: it is still stored, and a read must not drop
// it.
func (s *Semaphore) discountEnded(now int64, d *gatehouse.NameDetails) {
	if h := s.holds.next(); h == nil || h.until > now {
		return
	}
	for _, h := range s.holds.heap {
		if h.until != 0 && h.until <= now {
			d.Used, d.Holders = d.Used-h.cost, d.Holders-1
		}
	}
}
