// Package activity tells people what goes on at the names of a server: a search over all names, a history of
// the busiest ones, and a stream of frames for viewers. It reads counts that the controllers keep
// anyway, so that it costs decisions nothing.
package activity

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A Gate is what a monitor asks; [gate.Gate] is one.
type Gate interface {
	// Do answers a command, of which the monitor has OpStats alone.
	Do(ctx context.Context, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error)
	// VisitNames tells about names, in order, until visit returns false.
	VisitNames(ctx context.Context, p gate.Prefix, visit func(gatehouse.NameDetails) bool) error
	// VisitAllNames is that for all names of a kind, in no order.
	VisitAllNames(
		ctx context.Context, kind gatehouse.Kind, visit func(gatehouse.NameDetails) bool,
	) error
	// WaitingNames returns how many commands wait at each name at which any does.
	WaitingNames() map[gatehouse.Key]int
	// Waiting returns how many commands wait at all names together.
	Waiting() int
}

// A Config says what a monitor looks at. Gate and Now must be set.
type Config struct {
	Gate Gate
	Now  func() time.Time

	// History is for how many of the busiest names a history is kept; 0 means for none.
	History int

	// Busiest returns the names that are asked most, the busiest first; nil means that this is not known.
	// Then a history is kept of names in which commands wait, and of those that viewers looked at.
	Busiest func(most int) []gatehouse.Key

	// Totals returns how many commands this server has granted and refused; nil leaves that out.
	Totals func() (granted, refused uint64)

	// Names returns how many names the store keeps; nil leaves that out.
	Names func() int

	// Shared says that other servers use the store too, and that each look at a name is a call over the
	// network. Then fewer names are looked at, and less often.
	Shared bool
}

// The limits of a monitor.
const (
	// DefaultHistory and MaxHistory are for Config.History. Each name takes 2.2 KiB.
	DefaultHistory = 1000
	MaxHistory     = 5000

	// maxLookedAt is how many names have a history because a viewer looked at them within lookedAtFor.
	maxLookedAt = 1000
	lookedAtFor = time.Hour

	// sharedHistory and sharedLookedAt bound both where each look is a call over the network.
	sharedHistory  = 100
	sharedLookedAt = 100

	// lookTimeout bounds the looks of one sample or frame: a store that hangs must not hold up the rest.
	lookTimeout = 2 * time.Second
)

// A Monitor looks at the names of one server. Make one with New. It is safe for concurrent use.
type Monitor struct {
	config Config

	mu       sync.Mutex
	tracks   map[gatehouse.Key]*track
	lookedAt int // how many of tracks a viewer looked at
	clock    sampleClock
	feed     feed
	search   searchCache
}

// New returns a monitor. Nothing runs before Run or Follow is called.
func New(config Config) *Monitor {
	m := &Monitor{config: config, tracks: make(map[gatehouse.Key]*track)}
	if config.Shared {
		// Each look is a call over the network there, every few seconds, for each of the names.
		m.config.History = min(config.History, sharedHistory)
	}
	m.feed.viewers = make(map[string]*viewer)
	m.feed.before = make(map[gatehouse.Key]earlier)
	m.search.results = make(map[Query]*cachedResult)
	return m
}

// figures are what one look at a name finds.
type figures struct {
	size, used, holders, waiting int64
	granted, refused             int64 // since the name began
	closed                       bool
	gone                         bool // there is no such name, which has counted nothing
}

// lookAt reads the figures of a name. ok is false if the store does not answer.
func (m *Monitor) lookAt(ctx context.Context, key gatehouse.Key) (f figures, ok bool) {
	d, err := m.config.Gate.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpStats})
	if err != nil {
		return f, false
	}
	if d.Outcome != gatehouse.Granted {
		return figures{gone: true}, true
	}
	return readFigures(key.Kind, d.Stats), true
}

// readFigures picks the figures from the statistics of a controller.
func readFigures(kind gatehouse.Kind, stats []gatehouse.Stat) (f figures) {
	// Only limiters tell what is free; 0 is a figure of theirs.
	available := int64(-1)
	for i, s := range stats {
		n, _ := s.Value.(int64)
		// The first is how many were let through; each kind has its own word for it.
		switch {
		case s.Name == "increments", i == 0 && kind != gatehouse.Counter:
			f.granted = n
		case s.Name == "timed_out":
			f.refused = n
		case s.Name == "size":
			f.size = n
		case s.Name == "available":
			available = n
		case s.Name == "held":
			f.used = n
		case s.Name == "holders":
			f.holders = n
		case s.Name == "waiting":
			f.waiting = n
		case s.Name == "closed":
			f.closed = true
		}
	}
	switch {
	case kind == gatehouse.Lock:
		f.size = 1
	// A limit that became smaller may leave less than nothing free.
	case available >= 0:
		f.used = max(0, f.size-available)
	}
	return f
}

// since returns how much was granted and refused between two looks at a name.
func (f figures) since(before figures) (granted, refused int64) {
	// A name that was deleted and made again counts from 0.
	if f.granted < before.granted || f.refused < before.refused {
		return f.granted, f.refused
	}
	return f.granted - before.granted, f.refused - before.refused
}

// perSecond is a rate; a length of 0 has none.
func perSecond(count int64, length time.Duration) float64 {
	if length <= 0 {
		return 0
	}
	// Two digits are enough for people, and keep frames short.
	return float64(int64(float64(count)/length.Seconds()*100+0.5)) / 100
}

// compareKeys orders keys by kind and name.
func compareKeys(a, b gatehouse.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}
