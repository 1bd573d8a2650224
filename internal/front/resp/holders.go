package resp

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// This file is how who holds and who waits is told. Times are milliseconds; what is not known is null.

// writeReport answers a list of holders or waiters: the list, how many there are in all, and the id to go on
// behind, which is empty at the end.
func (r *replyWriter) writeReport(op gatehouse.Op, report *gatehouse.Report) {
	// The number of pairs comes first, so that both lists count theirs.
	if op == gatehouse.OpHolders {
		r.writeMap(6)
		r.writePair("size", report.Limit)
		r.writePair("held", report.Used)
		r.writeText("holders")
		r.writeArray(len(report.Holders))
		for i := range report.Holders {
			r.writeHolder(&report.Holders[i])
		}
	} else {
		r.writeMap(5)
		r.writeText("waiters")
		r.writeArray(len(report.Waiters))
		for i := range report.Waiters {
			r.writeWaiterEntry(&report.Waiters[i])
		}
		r.writeText("other_servers")
		r.writeArray(len(report.Others))
		for _, other := range report.Others {
			r.writeMap(4)
			r.writePair("server", int64(other.Server))
			r.writePair("waiting", int64(other.Waiting))
			r.writePair("waiting_for", other.WaitingFor.Milliseconds())
			r.writePair("age", other.Seen.Milliseconds())
		}
	}
	r.writePair("total", int64(report.Total))
	r.writeText("closed")
	r.writeClosing(report.Closed)
	r.writeTexts("next", report.Next)
}

func (r *replyWriter) writeHolder(h *gatehouse.HolderEntry) {
	r.writeMap(12)
	r.writeTexts("id", gatehouse.HolderID(h.Fence))
	r.writeOwner(&h.Owner)
	r.writeTexts("grant", h.Grant, "since")
	r.writeInstant(h.Since)
	r.writeText("held_for")
	if h.Since.IsZero() {
		r.writeNull()
	} else {
		r.writeInteger(h.HeldFor.Milliseconds())
	}
	r.writeText("expires_in")
	r.writeKnownMillis(h.ExpiresAfter)
	r.writePair("renewals", h.Renewals)
	r.writePair("slots", h.Slots)
	r.writePair("fence", int64(h.Fence)) // microseconds since 1970, or a count from there
	r.writeText("evicted")
	r.writeClosing(h.Evicted)
}

func (r *replyWriter) writeWaiterEntry(w *gatehouse.WaiterEntry) {
	r.writeMap(10)
	r.writeTexts("id", w.ID)
	r.writeOwner(&w.Owner)
	r.writeTexts("grant", w.Grant)
	r.writePair("position", int64(w.Position))
	r.writePair("cost", w.Cost)
	r.writePair("waiting_for", w.WaitingFor.Milliseconds())
	r.writeText("expected_wait")
	r.writeKnownMillis(w.Expected)
	r.writeText("expected_wait_90")
	r.writeKnownMillis(w.Expected90)
}

// writeOwner writes three pairs of a map.
func (r *replyWriter) writeOwner(o *gatehouse.Owner) {
	r.writeTexts("owner", o.Name, "host", o.Host, "purpose", o.Purpose)
}

// writeInstant writes a time; the zero time is null.
func (r *replyWriter) writeInstant(t time.Time) {
	if t.IsZero() {
		r.writeNull()
		return
	}
	r.writeText(t.UTC().Format(time.RFC3339Nano))
}

// writeKnownMillis writes a length of time; Forever is null.
func (r *replyWriter) writeKnownMillis(d time.Duration) {
	if d == gatehouse.Forever {
		r.writeNull()
		return
	}
	r.writeInteger(d.Milliseconds())
}

// writeClosing writes who closed or evicted, when and why; null if nobody did.
func (r *replyWriter) writeClosing(c *gatehouse.Closing) {
	if c == nil {
		r.writeNull()
		return
	}
	r.writeMap(3)
	r.writeTexts("by", c.By, "reason", c.Reason, "at")
	r.writeInstant(c.At)
}

// writeDetails writes what a list tells of a name.
func (r *replyWriter) writeDetails(d *gatehouse.NameDetails) {
	r.writeMap(9)
	r.writeTexts("name", d.Name)
	r.writePair("limit", d.Limit)
	r.writePair("used", d.Used)
	r.writePair("waiting", int64(d.Waiting))
	r.writePair("holders", int64(d.Holders))
	r.writePair("granted", d.Granted)
	r.writePair("refused", d.Refused)
	r.writeText("since")
	r.writeInstant(d.Since)
	r.writeText("closed")
	r.writeClosing(d.Closed)
}

// answerDescribed answers a list with a prefix or with details.
func (s *session) answerDescribed(list *listRequest) {
	three, user := s.three, s.user()
	s.answerInBackground(s.server.config.Budget.List, func(ctx context.Context, a *laterReply) {
		all, err := user.List(access.ListRequest{Prefix: list.Prefix, Most: list.most},
			func(asked access.ListRequest) ([]gatehouse.NameDetails, error) {
				return s.server.config.Gate.Describe(ctx, asked.Prefix, asked.Most)
			})
		if err != nil {
			a.err = err
			return
		}
		// The goroutine has a writer of its own, as that of the loop is not its to use.
		r := replyWriter{three: three}
		r.writeArray(len(all))
		for i := range all {
			if list.details {
				r.writeDetails(&all[i])
			} else {
				r.writeText(all[i].Name)
			}
		}
		a.text = r.out
	})
}

// answerCycles answers GH.CYCLES: owners that wait for each other.
func (s *session) answerCycles([][]byte) {
	three, user := s.three, s.user()
	s.answerInBackground(s.server.config.Budget.List, func(ctx context.Context, a *laterReply) {
		cycles, err := s.server.config.Gate.Cycles(ctx)
		cycles = user.OwnCycles(cycles)
		if err != nil {
			a.err = err
			return
		}
		r := replyWriter{three: three}
		r.writeArray(len(cycles))
		for i := range cycles {
			r.writeCycle(&cycles[i])
		}
		a.text = r.out
	})
}

func (r *replyWriter) writeCycle(c *gate.Cycle) {
	r.writeMap(2)
	r.writeText("stuck")
	r.writeInteger(int64(boolToInt(c.Stuck)))
	r.writeText("links")
	r.writeArray(len(c.Links))
	for i := range c.Links {
		l := &c.Links[i]
		r.writeMap(6)
		r.writeTexts("owner", l.Owner.Name, "host", l.Owner.Host, "kind", l.Key.Kind.String(),
			"name", l.Key.Name, "waiter", l.Waiter, "holder", l.Holder)
	}
}

// explains reports whether a refusal of a call is to say who holds.
func (c *nativeCall) explains() bool {
	return c.details && c.Command.Op == gatehouse.OpAcquire &&
		(params.HasHolders(c.Key.Kind) || c.Key.Kind.Limiter())
}

// heldBy returns the holder that an acquire is answered with, where something is held; otherwise "".
func (c *nativeCall) heldBy() string {
	if c.Command.Op == gatehouse.OpAcquire && params.HasHolders(c.Key.Kind) {
		if c.user() != nil {
			return c.user().holder
		}
		return c.Command.Holder
	}
	return ""
}
