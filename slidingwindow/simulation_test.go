package slidingwindow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// A scene is k limiters behind which traffic is spread evenly.
type scene struct {
	nodes    int
	interval time.Duration
	load     float64 // what is offered in a window, in limits
	windows  int
	strict   int64 // the chunk of StrictWindows, 0 for SyncWindows
}

const (
	sceneLimit = 100
	sceneSize  = time.Second
)

// A flow is what passed, and what was offered to each node.
type flow struct {
	passed  []time.Duration
	offered [][]time.Duration
}

// play plays a scene: events at random times (Poisson), each at a random node.
func (s scene) play(t *testing.T, seed uint64) flow {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	store := newPlainStore()
	nodes := make([]*sw.Limiter, s.nodes)
	for i := range nodes {
		nodes[i] = newLimiter(t, limits{sceneSize, sceneLimit, s.interval}, func() (sw.Window, sw.StopFunc) {
			if s.strict > 0 {
				return sw.NewStrictWindow("test", store, s.strict)
			}
			return sw.NewSyncWindow("test", sw.NewBlockingSynchronizer(store, s.interval))
		})
	}
	f := flow{offered: make([][]time.Duration, s.nodes)}
	mean := float64(sceneSize) / (s.load * sceneLimit)
	for now := time.Duration(0); now < time.Duration(s.windows)*sceneSize; {
		now += time.Duration(random.ExpFloat64() * mean)
		node := random.IntN(s.nodes)
		f.offered[node] = append(f.offered[node], now)
		if nodes[node].AllowN(epoch().Add(now), 1) {
			f.passed = append(f.passed, now)
		}
		store.calls = store.calls[:0]
	}
	return f
}

// worst is the most events in any span, and in any fixed window.
func worst(events []time.Duration, span time.Duration) (sliding, fixed int) {
	first, inFixed := 0, 0
	for i, at := range events {
		for at-events[first] >= span {
			first++
		}
		sliding = max(sliding, i-first+1)
		if i == 0 || events[i-1]/span != at/span {
			inFixed = 0
		}
		inFixed++
		fixed = max(fixed, inFixed)
	}
	return sliding, fixed
}

// bound is the most that may pass in a fixed window: min(kL, L + (k-1) min(L, max(1, B(2s+2g)))), where
// B is the most events one node is offered in a time, and g the longest pause between two.
func (s scene) bound(f flow) int {
	pause := time.Duration(0)
	for _, offered := range f.offered {
		for i := range offered[1:] {
			pause = max(pause, offered[i+1]-offered[i])
		}
	}
	burst := 1
	for _, offered := range f.offered {
		inSpan, _ := worst(offered, 2*s.interval+2*pause)
		burst = max(burst, inSpan)
	}
	return min(s.nodes*sceneLimit, sceneLimit+(s.nodes-1)*min(sceneLimit, burst))
}

// TestSimulation plays traffic at k limiters that share their counts, in virtual time, and holds what
// passes against the bound. With -v it prints the table in docs/slidingwindow.md.
func TestSimulation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, so that nothing is exchanged but by calls
		loads := []float64{1.2, 2, 5, 20}
		t.Log("k, s/W: for each load the mean, the worst fixed window and the worst of any, in limits")
		for _, s := range []scene{
			{nodes: 1, interval: 100 * time.Millisecond},
			{nodes: 2, interval: 100 * time.Millisecond},
			{nodes: 4, interval: 100 * time.Millisecond},
			{nodes: 4, interval: 200 * time.Millisecond},
			{nodes: 10, interval: 0},
			{nodes: 10, interval: 100 * time.Millisecond},
			{nodes: 10, interval: 200 * time.Millisecond},
			{nodes: 10, interval: 500 * time.Millisecond},
		} {
			s.windows = 60
			var row strings.Builder
			for i, load := range loads {
				s.load = load
				row.WriteString(s.cell(t, uint64(i)))
			}
			t.Logf("| %d | %.1f |%s", s.nodes, s.interval.Seconds(), row.String())
		}
	})
}

// cell plays a scene, checks it and returns what came out.
func (s scene) cell(t *testing.T, seed uint64) string {
	t.Helper()
	f := s.play(t, seed)
	sliding, fixed := worst(f.passed, sceneSize)
	if most := s.bound(f); fixed > most {
		t.Errorf("%+v: %d in a fixed window, want at most %d", s, fixed, most)
	}
	if s.interval == 0 && fixed > sceneLimit {
		t.Errorf("%+v: %d in a fixed window, want %d when every decision is exchanged", s, fixed, sceneLimit)
	}
	if sliding >= 2*s.nodes*sceneLimit {
		t.Errorf("%+v: %d in a window, want less than 2kL", s, sliding)
	}
	mean := float64(len(f.passed)) / float64(s.windows*sceneLimit)
	return fmt.Sprintf(" %.2f / %.2f / %.2f |", mean, float64(fixed)/sceneLimit, float64(sliding)/sceneLimit)
}

// A flood does not build up: what all together let pass beyond the limit in one window does not make
// them begin the next at the same moment, each with all of the limit before it. If it did, 3.9 L would pass.
func TestSimulationFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{nodes: 10, interval: 200 * time.Millisecond, load: 20, windows: 60}
		if mean := float64(len(s.play(t, 5).passed)) / float64(s.windows*sceneLimit); mean > 2.8 {
			t.Errorf("%+v: %.2f L pass in a window, want some 2.5", s, mean)
		}
	})
}

// Strict limiters together let no more than the limit pass in a fixed window, and with a demand at all
// of them at most k chunks less.
func TestSimulationStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Log("k, chunk: mean, least and most of a fixed window, in events; the limit is 100")
		for _, s := range []scene{
			{nodes: 1, strict: 1}, {nodes: 4, strict: 1}, {nodes: 4, strict: 5},
			{nodes: 10, strict: 1}, {nodes: 10, strict: 3}, {nodes: 10, strict: 10},
		} {
			s.load, s.windows = 20, 15
			f := s.play(t, 7)
			_, most := worst(f.passed, sceneSize)
			fixed := make([]int, s.windows)
			for _, at := range f.passed {
				if at < time.Duration(s.windows)*sceneSize {
					fixed[at/sceneSize]++
				}
			}
			if most > sceneLimit {
				t.Errorf("%+v: %d in a fixed window, want at most %d", s, most, sceneLimit)
			}
			if waste := sceneLimit - fixed[0]; waste > s.nodes*int(s.strict) {
				t.Errorf("%+v: %d wasted in the first window, want at most k chunks", s, waste)
			}
			mean := float64(len(f.passed)) / float64(s.windows)
			t.Logf("| %d | %d | %.1f | %d | %d |", s.nodes, s.strict, mean, slices.Min(fixed), most)
		}
	})
}
