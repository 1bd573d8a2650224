package topk_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/topk"
)

// start is some instant.
func start() time.Time { return time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC) }

// exact counts as a Sketch does, with a counter for each key.
type exact struct {
	counts map[string]float64
	total  float64
	last   time.Time
}

func (e *exact) count(key string, at time.Time) {
	e.fade(at)
	e.counts[key]++
	e.total++
}

func (e *exact) fade(at time.Time) {
	worth := math.Exp2(-float64(at.Sub(e.last)) / float64(topk.HalfLife))
	for key := range e.counts {
		e.counts[key] *= worth
	}
	e.total *= worth
	e.last = at
}

// What a sketch says of a key is never too low, and too high by no more than it says, which is no more than
// the total divided by the counters. Every key with more than that has a counter.
func TestBounds(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		counters, keys := 1+random.IntN(40), 1+random.IntN(400)
		zipf := rand.NewZipf(random, 1.01+random.Float64(), 1, uint64(keys))
		sketch, want := topk.New[string](counters), exact{counts: make(map[string]float64), last: start()}
		at := start()
		for range 3000 {
			at = at.Add(time.Duration(random.IntN(4)) * time.Second)
			key := fmt.Sprint(zipf.Uint64())
			sketch.Count(key, 1, at)
			want.count(key, at)
		}
		const slack = 1e-6
		known := make(map[string]bool)
		top := sketch.Top(counters, at)
		// Those of less than half of one are left out.
		if got := sum(top); math.Abs(got-want.total) > float64(counters-len(top))/2+slack*want.total {
			t.Errorf("seed %d: all counts are %g, want %g", seed, got, want.total)
		}
		for _, e := range top {
			known[e.Key] = true
			count := want.counts[e.Key]
			if e.Count < count-slack || e.Count-e.Excess > count+slack ||
				e.Excess > want.total/float64(counters)+slack {
				t.Errorf("seed %d: %s was counted %g to %g of %g in %d counters, want %g",
					seed, e.Key, e.Count-e.Excess, e.Count, want.total, counters, count)
			}
		}
		for key, count := range want.counts {
			if count > want.total/float64(counters)+slack && count >= 0.5 && !known[key] {
				t.Errorf("seed %d: %s, counted %g times of %g, is missing", seed, key, count, want.total)
			}
		}
	}
}

// sum is the sum of all counts.
func sum[K comparable](all []topk.Entry[K]) (total float64) {
	for _, e := range all {
		total += e.Count
	}
	return total
}

func TestOrder(t *testing.T) {
	s := topk.New[string](8)
	for i, key := range []string{"a", "b", "b", "c", "c", "c"} {
		s.Count(key, 1, start().Add(time.Duration(i)))
	}
	got := s.Top(2, start())
	if len(got) != 2 || got[0] != (topk.Entry[string]{Key: "c", Count: 3}) || got[1].Key != "b" {
		t.Errorf("Top(2) = %v, want c with 3 and b", got)
	}
	if got := s.Top(0, start()); len(got) != 0 {
		t.Errorf("Top(0) = %v, want none", got)
	}
	if got := s.Top(-1, start()); len(got) != 0 {
		t.Errorf("Top(-1) = %v, want none", got)
	}
}

// After a half-life each count is worth half, and what is worth less than half of one is left out.
func TestFading(t *testing.T) {
	s := topk.New[string](8)
	for range 8 {
		s.Count("old", 1, start())
	}
	s.Count("older", 1, start())
	later := start().Add(2 * topk.HalfLife)
	for range 3 {
		s.Count("new", 1, later)
	}
	got := s.Top(8, later)
	if len(got) != 2 || got[0].Key != "new" || math.Abs(got[1].Count-2) > 1e-9 {
		t.Errorf("Top = %v, want new with 3 and old with 2", got)
	}
	// A clock that goes back does no harm.
	s.Count("new", 1, start())
	if got := s.Top(1, later); math.Abs(got[0].Count-4) > 1e-9 {
		t.Errorf("Top = %v, want new with 4", got)
	}
	// So long that counts have to be written anew.
	latest := start().Add(200 * topk.HalfLife)
	s.Count("last", 1, latest)
	if got := s.Top(8, latest); len(got) != 1 || math.Abs(got[0].Count-1) > 1e-9 {
		t.Errorf("Top = %v, want last with 1", got)
	}
}

// Of many counts a second few are looked at, and those stand for the others. When there are few again, all
// are.
func TestSampling(t *testing.T) {
	s := topk.New[string](128)
	const seconds, perSecond = 10, 200_000
	for second := range seconds {
		at := start().Add(time.Duration(second) * time.Second)
		for i := range perSecond {
			s.Count([]string{"a", "b", "b", "b"}[i%4], 1, at)
		}
	}
	at := start().Add(seconds * time.Second)
	got := s.Top(2, at)
	want := float64(seconds*perSecond) * math.Exp2(-5.5/300)
	if got[0].Key != "b" || math.Abs(got[0].Count/(want*3/4)-1) > 0.1 ||
		math.Abs(got[1].Count/(want/4)-1) > 0.15 {
		t.Errorf("Top = %v, want b with %g and a with %g, within 10 and 15 %%", got, want*3/4, want/4)
	}
	// Of keys that are counted once few are found, each as often as all that it stands for.
	for i := range 100 {
		s.Count(fmt.Sprint(i), 1, at)
	}
	all := s.Top(128, at)
	for _, e := range all[2:] {
		if len(all) > 2+20 || e.Count < 32 {
			t.Fatalf("%d keys of 100 are found, %s with %g, want 20 at most with 32 and more",
				len(all)-2, e.Key, e.Count)
		}
	}
	for i := range 100_000 {
		s.Count("c", 1, at.Add(time.Duration(i)*100*time.Millisecond))
	}
	at = at.Add(10_000 * time.Second)
	for i := range 20 {
		s.Count(fmt.Sprint("once-", i), 1, at)
	}
	found := 0
	for _, e := range s.Top(128, at) {
		if strings.HasPrefix(e.Key, "once-") && math.Abs(e.Count-1) < 1e-6 {
			found++
		}
	}
	if found != 20 {
		t.Errorf("%d of 20 keys are found with 1, want all", found)
	}
}

// A million names leave as much memory in use as a thousand.
func TestMemory(t *testing.T) {
	s := topk.New[string](512)
	count := func(from, to int) uint64 {
		for i := from; i < to; i++ {
			at := start().Add(time.Duration(i) * time.Millisecond)
			s.Count(fmt.Sprintf("a name of a usual length %d", i), 1, at)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := count(0, 1000)
	after := count(1000, 1_000_000)
	const slack = 200 << 10
	if after > before+slack {
		t.Errorf("%d bytes after a million names and %d after a thousand, want %d more at most",
			after, before, slack)
	}
	if got := len(s.Top(1_000_000, start().Add(1000*time.Second))); got != 512 {
		t.Errorf("%d names are known, want 512", got)
	}
}

// Many goroutines count and look at once.
func TestTogether(t *testing.T) {
	s := topk.New[int](4)
	var all sync.WaitGroup
	// One clock for all, 80 counts a second: no goroutine counts in a second that is over for another.
	var counted atomic.Int64
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				at := start().Add(time.Duration(counted.Add(1)) * 200 * time.Second / 16_000)
				s.Count((g+i)%10, 1, at)
				if i%100 == 0 {
					top := s.Top(4, start())
					if !slices.IsSortedFunc(top, func(a, b topk.Entry[int]) int {
						return int(math.Ceil(b.Count - a.Count))
					}) {
						t.Errorf("Top = %v, want the largest first", top)
					}
				}
			}
		})
	}
	all.Wait()
	if got := sum(s.Top(4, start().Add(200*time.Second))); got < 8000 || got > 16000 {
		t.Errorf("all counts are %g, want what is left of 16000 after 200 s at most", got)
	}
}

func BenchmarkCount(b *testing.B) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprint("name-", i)
	}
	for _, perSecond := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("persecond=%d", perSecond), func(b *testing.B) {
			s := topk.New[string](512)
			for i := range b.N {
				at := start().Add(time.Duration(i) * time.Second / time.Duration(perSecond))
				s.Count(keys[i%len(keys)], 1, at)
			}
		})
	}
}
