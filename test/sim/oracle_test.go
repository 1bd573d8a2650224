package sim_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// A finder is an oracle of the simulation's own, which looks through the calls of one name, in the order of
// their beginnings.
type finder struct {
	name  string
	kind  gatehouse.Kind // 0 is all of them
	check func(h *look)
}

// finders are those that look when all is over. Others look while it happens: history.changed. What is not
// about the simulation alone is in test/oracle.
var finders = []finder{
	{"order", gatehouse.Lock, (*look).order},
	{"order", gatehouse.Semaphore, (*look).order},
	{"barrier", gatehouse.Barrier, (*look).barrier},
	{"watchdog", gatehouse.Watchdog, (*look).watchdog},
	{"limit", 0, (*look).limit},
}

// found names what breaks a promise here, and afterLoss says which are asked where data may be lost.
var (
	found = map[oracle.Promise]string{
		oracle.HoldsStay: "own", oracle.ReleasesStay: "own", oracle.FencesRise: "fence",
		oracle.RoomIsKept: "held", oracle.CountsStay: "counter", oracle.EventsStay: "event",
		oracle.RatesAreKept: "limit",
	}
	afterLoss = []oracle.Promise{oracle.FencesRise, oracle.RoomIsKept}
)

// A look is one oracle's at one name.
type look struct {
	*cluster
	oracle string
	key    gatehouse.Key
	calls  []*call
}

func (l *look) complain(format string, args ...any) {
	l.violated(l.oracle, l.key, format, args...)
}

// judge has all oracles look at what happened until now.
func (c *cluster) judge() {
	names := make(map[gatehouse.Key][]*call)
	for _, one := range c.calls {
		names[one.key] = append(names[one.key], one)
	}
	for key, calls := range names {
		slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.begin, b.begin) })
		for _, f := range finders {
			if f.wants(key) && !c.lossy {
				f.check(&look{c, f.name, key, calls})
			}
		}
		if l := (&look{c, "", key, calls}); l.lasts() {
			l.promised().Calls(told(calls))
		}
	}
}

// early is how much earlier than by the clock of its client a hold may end, as the store's clock is set. What
// is left of a lasting one is far more than its client needs.
const early = 10 * time.Second

// promised is the judge of what was promised of one name.
func (l *look) promised() *oracle.Judge {
	report := func(p oracle.Promise, at time.Duration, text string) {
		if !l.lossy || slices.Contains(afterLoss, p) {
			l.violated(found[p], l.key, "at %s: %s", at, text)
		}
	}
	return &oracle.Judge{Losses: l.losses, Margin: early, Report: report}
}

// lasts reports whether a name is one that nobody deletes, resizes or resets.
func (l *look) lasts() bool {
	switch l.key.Kind {
	case gatehouse.Lock, gatehouse.Semaphore:
		return l.key.Name == "lasting" || strings.HasPrefix(l.key.Name, granting)
	case gatehouse.Counter:
		return l.key.Name == "counter"
	case gatehouse.Event:
		return strings.HasPrefix(l.key.Name, "event-")
	}
	return false
}

// told is calls as the oracle knows them.
func told(calls []*call) []*oracle.Call {
	var list []*oracle.Call
	for _, c := range calls {
		list = append(list, &oracle.Call{
			Client: c.client, Key: c.key, Command: c.cmd, Begin: c.begin, End: c.end,
			Answered: c.decided(), Decision: c.d,
		})
	}
	return list
}

// wants reports whether an oracle looks at a name: drills and the recorded history look at theirs themselves.
func (f finder) wants(key gatehouse.Key) bool {
	return f.kind == 0 || f.kind == key.Kind && key.Name[0] != '!' && !strings.HasPrefix(key.Name, "drill")
}

// order: of those who wait at the same server whoever comes first is first.
func (l *look) order() {
	if l.key.Name != "lasting" {
		return
	}
	holders := make(map[string]bool) // those who acquire again share their hold, whoever waits
	l.calls = slices.DeleteFunc(slices.Clone(l.calls), func(c *call) bool {
		again := c.cmd.Op == gatehouse.OpAcquire && holders[c.cmd.Holder]
		holders[c.cmd.Holder] = true
		return again
	})
	for i, first := range l.calls {
		if !first.waits() {
			continue
		}
		for _, second := range l.calls[i+1:] {
			if second.begin > first.end {
				break
			}
			if second.waits() && second.server == first.server && second.begin > first.begin &&
				second.d.Fence < first.d.Fence {
				l.complain("%s came before %s, and got token %d after %d at the same server",
					first.cmd.Holder, second.cmd.Holder, first.d.Fence, second.d.Fence)
			}
		}
	}
}

// waits reports whether a call was granted after it stood in line, in which its client stayed.
func (c *call) waits() bool {
	return c.granted() && c.cmd.MaxWait != 0 && c.cmd.Op == gatehouse.OpAcquire
}

// haunting is how long a call whose client has gone may still count, in the worst of troubles.
const haunting = 20 * time.Second

// barrier: it opens when as many wait as its size says, and all of them go.
func (l *look) barrier() {
	granted, ghosts := 0, 0
	last, first := time.Duration(0), time.Duration(math.MaxInt64)
	for _, c := range l.calls {
		if c.cmd.Op == gatehouse.OpWait && c.granted() {
			granted++
			last, first = max(last, c.begin), min(first, c.end)
		}
	}
	for _, c := range l.calls {
		if c.cmd.Op == gatehouse.OpWait && c.err != nil && c.begin <= first && c.end >= last-haunting {
			ghosts++
		}
	}
	switch {
	case granted == 0:
	case granted > slots:
		l.complain("opened for %d, want %d", granted, slots)
	case granted+ghosts < slots:
		l.complain("opened for %d and at most %d who had gone, want %d", granted, ghosts, slots)
	case last > first:
		l.complain("one was let through at %s, another came at %s", first, last)
	}
}

// watchdog: it does not fire within the alarm time after a kick, and it does after that.
func (l *look) watchdog() {
	if l.key.Name != "watchdog" {
		return
	}
	var kicks []*call
	for _, c := range l.calls {
		if c.cmd.Op == gatehouse.OpKick && (c.granted() || c.err != nil) {
			kicks = append(kicks, c)
		}
	}
	for _, c := range l.calls {
		if c.cmd.Op != gatehouse.OpWait || c.err != nil {
			continue
		}
		covered, perhaps := false, c.end < 2*time.Minute
		for _, k := range kicks {
			kicked := k.err == nil && !k.d.At.After(c.d.At) && c.d.At.Before(k.d.At.Add(alarm))
			covered = covered || kicked && k.d.At != c.d.At
			perhaps = perhaps || kicked || k.err == nil && c.d.At.Before(k.d.At.Add(alarm)) ||
				k.err != nil && k.begin <= c.end && k.end > c.begin-haunting
		}
		if c.granted() && covered {
			l.complain("fired at %s although it was kicked in time", c.d.At)
		}
		if !c.granted() && !perhaps {
			l.complain("did not fire at %s although nobody had kicked it", c.d.At)
		}
	}
}
