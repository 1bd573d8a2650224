package control

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file has what a refusal says on request: the holders, and for how long each has held.

// refuse refuses an acquire that must wait or give up.
func (s *Semaphore) refuse(now time.Time, turn *Turn) {
	s.fillStanding(turn, gatehouse.Refused)
	d, closed := &turn.Decision, s.closing()
	if closed != nil {
		// No release changes that, and waiting requests are looked at again when the name is opened.
		d.RetryAfter, d.Message = gatehouse.Forever, closed.sentence()
		return
	}
	d.RetryAfter = s.nextEnd(now)
	if s.size > 0 && addSaturating(turn.Ahead, turn.Cost) <= s.size-s.heldCost {
		// Only requests in front are in the way, and no hold is.
		d.Message = keptForEarlier
		if d.RetryAfter == gatehouse.Forever || d.RetryAfter > keptFor {
			d.RetryAfter = keptFor
		}
		return
	}
	if turn.Explain {
		d.Message = s.explainFull(now.UnixNano())
	}
}

// The bounds of a sentence about holders, which is one line for people and not a list.
const (
	namedHolders = 3    // how many are named
	maxExplained = 1000 // holders among whom the eldest are looked for
)

// explainFull says how full the semaphore is, and who has held it for longest: "is full: 2 of 2 held, train-a
// for 42 m, h1f8x2 for 3 s".
func (s *Semaphore) explainFull(now int64) string {
	var text strings.Builder
	if s.heldCost >= s.size {
		text.WriteString("is full: ")
	} else {
		text.WriteString("has too little room: ")
	}
	fmt.Fprintf(&text, "%d of %d held", s.heldCost, s.size)
	// To sort more holds would take longer than to refuse, and a full semaphore refuses often.
	if len(s.holds.heap) > maxExplained {
		return text.String()
	}
	eldest := s.holdsByFence() // tokens rise from hold to hold
	for i, h := range eldest {
		if i == namedHolders {
			fmt.Fprintf(&text, " and %d more", len(eldest)-i)
			break
		}
		text.WriteString(", " + h.describe(now))
	}
	return text.String()
}

// describe names a hold's owner, or its public id if it has none, and how long it has been held.
func (h *hold) describe(now int64) string {
	name := gatehouse.HolderID(h.fence)
	if h.owner != nil {
		name = cmp.Or(h.owner.Name, h.owner.Host, h.owner.Purpose, name)
	}
	if h.acquired == 0 {
		return name
	}
	return name + " for " + roughLength(time.Duration(now-h.acquired))
}

// roughLength is a length of time in one unit, as people say it.
func roughLength(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	// A unit begins with two of it, since "1 m" for 119 s would tell too little.
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int64(d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d m", int64(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int64(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int64(d/(24*time.Hour)))
}
