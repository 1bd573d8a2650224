package sim_test

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An oracle looks through the calls of one name, in the order of their beginnings.
type oracle struct {
	name  string
	kind  gatehouse.Kind // 0 is all of them
	check func(h *look)
}

// oracles are those that look when all is over. Others look while it happens: history.changed and
// client.took. Where data may be lost only those are asked.
var oracles = []oracle{
	{"order", gatehouse.Lock, (*look).order},
	{"order", gatehouse.Semaphore, (*look).order},
	{"event", gatehouse.Event, (*look).event},
	{"barrier", gatehouse.Barrier, (*look).barrier},
	{"watchdog", gatehouse.Watchdog, (*look).watchdog},
	{"counter", gatehouse.Counter, (*look).counter},
	{"limit", 0, (*look).limit},
}

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
		slices.SortStableFunc(calls, func(a, b *call) int { return int(a.begin - b.begin) })
		for _, o := range oracles {
			if o.wants(key) && !c.lossy {
				o.check(&look{c, o.name, key, calls})
			}
		}
	}
}

// wants reports whether an oracle looks at a name: drills and the recorded history look at theirs themselves.
func (o oracle) wants(key gatehouse.Key) bool {
	return o.kind == 0 || o.kind == key.Kind && key.Name[0] != '!' && !strings.HasPrefix(key.Name, "drill")
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

// event: whoever still waits when it is sent, or comes later, gets it, and gets what was sent.
func (l *look) event() {
	var sends []*call
	sent := time.Duration(math.MaxInt64) // when it was known first
	for _, c := range l.calls {
		if c.cmd.Op != gatehouse.OpSend || c.err == nil && !c.granted() {
			continue
		}
		sends = append(sends, c)
		if c.granted() {
			if sent != math.MaxInt64 {
				l.complain("was sent twice")
			}
			sent = min(sent, c.end)
		}
	}
	for _, c := range l.calls {
		if c.cmd.Op != gatehouse.OpWait || c.err != nil {
			continue
		}
		from := func(s *call) bool { return s.cmd.Message == c.d.Message && s.begin <= c.end }
		switch {
		case c.granted() && !slices.ContainsFunc(sends, from):
			l.complain("%s got %q, which nobody had sent", c.client, c.d.Message)
		case !c.granted() && sent <= c.begin+c.cmd.MaxWait:
			l.complain("was sent at %s; %s waited from %s for %s, and %s at %s",
				sent, c.client, c.begin, c.cmd.MaxWait, c.d.Outcome, c.end)
		}
	}
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

// counter: it stands at all that was counted, and no more than may have been.
func (l *look) counter() {
	if l.key.Name != "counter" {
		return
	}
	for _, read := range l.calls {
		if read.err != nil {
			continue
		}
		known, most := int64(0), int64(0)
		for _, c := range l.calls {
			if c.cmd.Op != gatehouse.OpCount || c.begin > read.end {
				continue
			}
			most += c.cmd.Amount
			if c.err == nil && (c.end < read.begin || c == read) {
				known += c.cmd.Amount
			}
		}
		if read.d.Value < known || read.d.Value > most {
			l.complain("stood at %d at %s, want %d to %d", read.d.Value, read.end, known, most)
		}
	}
}
