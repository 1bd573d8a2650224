package hold_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/hold"
)

// A passing is what was let through at an instant.
type passing struct {
	at time.Time
	n  int64
}

// TestPrefetchKeepsTheLimit has several handles, which fetch tokens over slow lines, let through as much as
// they can. In no window more passes than the limit says, however the windows are begun.
func TestPrefetchKeepsTheLimit(t *testing.T) {
	var byThemselves, asked int64
	for seed := range uint64(60) {
		for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.FixedWindow} {
			synctest.Test(t, func(t *testing.T) {
				p := newPrefetchPlay(t, kind, seed)
				p.play()
				p.judge()
				byThemselves += p.local.Load()
				asked += p.remote.Load()
			})
		}
	}
	t.Logf("%d were let through by the handles, %d by the gate", byThemselves, asked)
	if byThemselves < 10*asked {
		t.Errorf("%d were let through by the handles and %d by the gate, want most by the handles",
			byThemselves, asked)
	}
}

// A prefetchPlay is some handles on one limiter.
type prefetchPlay struct {
	t             *testing.T
	kind          gatehouse.Kind
	random        *rand.Rand
	interval      time.Duration
	size          int64
	begin         time.Time // of the first window
	mu            sync.Mutex
	passed        []passing
	local, remote atomic.Int64
}

func newPrefetchPlay(t *testing.T, kind gatehouse.Kind, seed uint64) *prefetchPlay {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(kind))) //nolint:gosec // no secret is made of it
	return &prefetchPlay{
		t: t, kind: kind, random: random, size: 20 + random.Int64N(2000),
		interval: time.Duration(50+random.IntN(3000)) * time.Millisecond,
	}
}

func (p *prefetchPlay) play() {
	g := newGate()
	key := gatehouse.Key{Kind: p.kind, Name: "api"}
	rule := gatehouse.Rule{Size: p.size, Interval: p.interval}
	time.Sleep(time.Duration(p.random.Int64N(int64(time.Second))))
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*p.interval)
	defer cancel()
	done := make(chan struct{})
	handles := 1 + p.random.IntN(4)
	for i := range handles {
		random := rand.New(rand.NewPCG(p.random.Uint64(), uint64(i))) //nolint:gosec // no secret
		own := rand.New(rand.NewPCG(random.Uint64(), 0))              //nolint:gosec // no secret
		f := &far{Gate: g, random: own, slow: p.interval / time.Duration(2+random.IntN(20))}
		l := hold.Limiter(f, key, rule)
		l.Prefetch = 2 + random.Int64N(p.size)
		go func() {
			for ctx.Err() == nil {
				p.pass(ctx, l, f, random)
				if random.IntN(3) > 0 {
					time.Sleep(time.Duration(random.Int64N(int64(p.interval) / 100)))
				}
			}
			l.Close()
			done <- struct{}{}
		}()
	}
	for range handles {
		<-done
	}
}

// pass lets through what it can, and notes it: at the time of the gate's decision if the gate was asked.
func (p *prefetchPlay) pass(ctx context.Context, l *hold.LimiterHandle, f *far, random *rand.Rand) {
	n := 1 + random.Int64N(3)
	began := time.Now()
	ok, err := l.AllowN(ctx, n)
	if err != nil || !ok {
		return
	}
	at := time.Now()
	if at.Equal(began) {
		p.local.Add(n)
	} else {
		at = *f.decided.Load()
		p.remote.Add(n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed = append(p.passed, passing{at, n})
}

// judge counts what passed in each window. That of a token bucket begins with the first use, which is the
// gate's first decision.
func (p *prefetchPlay) judge() {
	p.t.Helper()
	if p.kind == gatehouse.TokenBucket && len(p.passed) > 0 {
		p.begin = p.passed[0].at
		for _, one := range p.passed {
			if one.at.Before(p.begin) {
				p.begin = one.at
			}
		}
	}
	windows := map[time.Time]int64{}
	for _, one := range p.passed {
		begin := one.at.Truncate(p.interval) // those of a fixed window are counted from Go's zero time
		if p.kind == gatehouse.TokenBucket {
			begin = p.begin.Add(one.at.Sub(p.begin).Truncate(p.interval))
		}
		windows[begin.UTC().Round(0)] += one.n
	}
	for window, n := range windows {
		if n > p.size {
			p.t.Errorf("%d passed in the window of %s from %s of a %s, want at most %d", n, p.interval,
				window, p.kind, p.size)
		}
	}
}

// Tokens that a handle has fetched and does not use are there for others a tenth of the window later, and at
// once after Close.
func TestUnusedTokensGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "api"}
		rule := gatehouse.Rule{Size: 1000, Interval: time.Hour}
		left := func() int64 {
			d, err := g.Do(t.Context(), key, gatehouse.Command{
				Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce},
			})
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		l := hold.Limiter(g, key, rule)
		l.Prefetch = 100
		for range 30 {
			if ok, err := l.Allow(t.Context()); !ok || err != nil {
				t.Fatalf("allow = %t, %v", ok, err)
			}
		}
		if n := left(); n != 900 {
			t.Errorf("%d are left while 100 are fetched, want 900", n)
		}
		time.Sleep(13 * time.Minute)
		if n := left(); n != 970 {
			t.Errorf("%d are left once 30 were used, want 970", n)
		}
		if err := l.WaitN(t.Context(), 5); err != nil {
			t.Error(err)
		}
		l.Close()
		if n := left(); n != 965 {
			t.Errorf("%d are left once 35 were used and the handle is closed, want 965", n)
		}
		if ok, err := l.AllowN(t.Context(), 2); !ok || err != nil || left() != 963 {
			t.Errorf("a closed handle asks each time: %t, %v, %d left", ok, err, left())
		}
	})
}

// Tokens that were fetched before a third party has sent the handle away are not used in its pause, nor
// beyond what it says that is left.
func TestReportedAtTheHandle(t *testing.T) {
	for _, test := range []struct {
		name   string
		report gatehouse.Feedback
		passes int // of 20 calls right behind it
	}{
		{"429", gatehouse.Feedback{Status: 429, RetryAfter: 10 * time.Second}, 0},
		{"three remain", gatehouse.Feedback{Status: 200, Remaining: 3, Reset: 20 * time.Second}, 3},
		{"a success", gatehouse.Feedback{Status: 200}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "api"}
				l := hold.Limiter(newGate(), key, gatehouse.Rule{Size: 1000, Interval: time.Minute})
				defer l.Close()
				l.Prefetch = 100
				allowed := func() (n int) {
					for range 20 {
						ok, err := l.Allow(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						if ok {
							n++
						}
					}
					return n
				}
				if n := allowed(); n != 20 {
					t.Fatalf("%d of 20 are allowed before the report", n)
				}
				if err := l.Report(t.Context(), test.report); err != nil {
					t.Fatal(err)
				}
				if n := allowed(); n != test.passes {
					t.Errorf("%d of 20 are allowed behind the report, want %d", n, test.passes)
				}
				time.Sleep(40 * time.Second)
				if n := allowed(); n != 20 {
					t.Errorf("%d of 20 are allowed long after it, want all", n)
				}
			})
		})
	}
}

// A lateGate brings its answers about several names a second after they were decided.
type lateGate struct{ *gate.Gate }

// DoGrant is Do for several names.
func (l lateGate) DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	d, err := l.Gate.DoGrant(ctx, cmd)
	time.Sleep(time.Second)
	return d, err
}

// Tokens that are on their way to the handle when it is sent away are not used either.
func TestReportedWhileItFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "api"}
		l := hold.Limiter(lateGate{newGate()}, key, gatehouse.Rule{Size: 1000, Interval: time.Minute})
		defer l.Close()
		l.Prefetch = 100
		first := make(chan bool, 1)
		go func() {
			ok, err := l.Allow(t.Context())
			first <- ok && err == nil
		}()
		time.Sleep(time.Second / 2)
		report := gatehouse.Feedback{Status: 429, RetryAfter: 10 * time.Second}
		if err := l.Report(t.Context(), report); err != nil {
			t.Fatal(err)
		}
		if !<-first {
			t.Error("a call that was granted before the report is not allowed")
		}
		if ok, err := l.Allow(t.Context()); ok || err != nil {
			t.Errorf("in the pause: %t, %v, want false", ok, err)
		}
	})
}

// More than the limit never passes, however much the handle would fetch at once.
func TestPrefetchAboveTheLimit(t *testing.T) {
	for _, rule := range []gatehouse.Rule{
		{Size: 10, Interval: time.Hour},
		{Limits: gatehouse.NewLimitList(gatehouse.Limit{Size: 10, Interval: time.Hour})},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, key := newGate(), gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "api"}
			l := hold.Limiter(g, key, rule)
			l.Prefetch = 100
			if ok, err := l.AllowN(t.Context(), 50); ok || gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
				t.Errorf("50 of 10 are allowed: %t, %v, want an error of code invalid", ok, err)
			}
			synctest.Wait()
			if ok, err := l.AllowN(t.Context(), 2); !ok || err != nil {
				t.Errorf("2 of 10 are allowed: %t, %v, want true", ok, err)
			}
			peek := gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
			if d, err := g.Do(t.Context(), key, peek); err != nil || d.Remaining != 0 {
				t.Errorf("%d are left, %v, want all of them fetched", d.Remaining, err)
			}
			if ok, err := l.AllowN(t.Context(), 8); !ok || err != nil {
				t.Errorf("the other 8 are allowed: %t, %v, want true", ok, err)
			}
			l.Close()
		})
	}
}

// Kinds that forget bit by bit, and limits of the calendar, are asked each time.
func TestNotPrefetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for _, test := range []struct {
			kind gatehouse.Kind
			rule gatehouse.Rule
		}{
			{gatehouse.GCRA, gatehouse.Rule{Size: 10, Interval: time.Hour, Burst: 9}},
			{gatehouse.SlidingLog, gatehouse.Rule{Size: 10, Interval: time.Hour}},
			{gatehouse.FixedWindow, gatehouse.Rule{Size: 10, Calendar: gatehouse.Day}},
			{gatehouse.TokenBucket, gatehouse.Rule{Limits: gatehouse.NewLimitList(
				gatehouse.Limit{Size: 10, Interval: time.Hour},
				gatehouse.Limit{Size: 20, Interval: 2 * time.Hour},
			)}},
		} {
			key := gatehouse.Key{Kind: test.kind, Name: "a"}
			l := hold.Limiter(g, key, test.rule)
			l.Prefetch = 5
			if ok, err := l.Allow(t.Context()); !ok || err != nil {
				t.Errorf("%s: %t, %v", key, ok, err)
			}
			d, err := l.Decide(t.Context(), 1)
			if err != nil || d.Remaining != 8 {
				t.Errorf("%s: %d are left after two, %v, want 8", key, d.Remaining, err)
			}
			l.Close()
		}
	})
}

// BenchmarkPrefetched is a decision that the handle makes by itself.
func BenchmarkPrefetched(b *testing.B) {
	key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "api"}
	l := hold.Limiter(newGate(), key, gatehouse.Rule{Size: 1e14, Interval: 1000 * time.Hour})
	l.Prefetch = 1e13
	ctx := context.Background()
	for b.Loop() {
		if ok, err := l.Allow(ctx); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	l.Close()
}
