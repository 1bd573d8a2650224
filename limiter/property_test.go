package limiter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/limiter"
	"pgregory.net/rapid"
)

// A log is the stupid way: it keeps all that went.
type log struct {
	limit, step int64
	all         []went
}

// A went is n that went at a time, in ns.
type went struct{ at, n int64 }

// newLog returns the log of a rate.
func newLog(rate limiter.Rate) *log {
	return &log{limit: rate.Burst + 1, step: int64(rate.Interval) / rate.Size}
}

// fits reports whether n more at a time keep the promise: in no stretch of time of length w that ends
// with them do more than limit + w/step go.
func (l *log) fits(at, n int64) bool {
	if n > l.limit {
		return false
	}
	for _, g := range slices.Backward(l.all) {
		n += g.n
		if (n-l.limit)*l.step > at-g.at {
			return false
		}
	}
	return true
}

// check fails when a stretch of time saw more go than it may.
func (l *log) check(t *rapid.T) {
	t.Helper()
	sorted := slices.SortedStableFunc(slices.Values(l.all), func(a, b went) int { return int(a.at - b.at) })
	for i := range sorted {
		sum := int64(0)
		for _, g := range sorted[i:] {
			sum += g.n
			if w := g.at - sorted[i].at; (sum-l.limit)*l.step > w {
				t.Fatalf("%d went within %d ns, want at most %d + one each %d ns", sum, w, l.limit, l.step)
			}
		}
	}
}

// drawRate returns any rate whose steps are short enough to walk over.
func drawRate(t *rapid.T) limiter.Rate {
	interval := rapid.Int64Range(1, 1000).Draw(t, "interval")
	return limiter.Rate{
		Size:     rapid.Int64Range(1, min(interval, 20)).Draw(t, "size"),
		Interval: time.Duration(interval),
		Burst:    rapid.Int64Range(0, 8).Draw(t, "burst"),
	}
}

// TestAgainstLog: it lets through exactly what an exact log of all that went lets through.
func TestAgainstLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := drawRate(t)
		l, err := limiter.New(rate)
		if err != nil {
			t.Fatal(err)
		}
		exact, start, at := newLog(rate), time.Now(), int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			at += rapid.Int64Range(0, 3*exact.step).Draw(t, "later")
			n := rapid.Int64Range(1, exact.limit+1).Draw(t, "n")
			now := start.Add(time.Duration(at))
			want := exact.fits(at, n)
			d := l.PeekAt(now, n)
			if got := l.AllowAt(now, n); got != want || d.Allowed != want {
				t.Fatalf("AllowAt(%d ns, %d) = %t, peek %t, log %t", at, n, got, d.Allowed, want)
			}
			if want {
				exact.all = append(exact.all, went{at, n})
				continue
			}
			checkRetry(t, exact, went{at, n}, d.RetryAfter)
		}
		exact.check(t)
	})
}

// checkRetry fails unless the answer to who was refused changes exactly then.
func checkRetry(t *rapid.T, exact *log, refused went, retry time.Duration) {
	t.Helper()
	at, n := refused.at, refused.n
	if n > exact.limit {
		if retry != gatehouse.Forever {
			t.Fatalf("RetryAfter of %d of %d = %s, want Forever", n, exact.limit, retry)
		}
		return
	}
	then := at + int64(retry)
	if !exact.fits(then, n) || exact.fits(then-1, n) {
		t.Fatalf("RetryAfter of %d at %d ns = %d ns, and then %t, 1 ns before %t, want true, false",
			n, at, int64(retry), exact.fits(then, n), exact.fits(then-1, n))
	}
}

// TestReservationsKeepThePromise: whatever is allowed, reserved and cancelled, what goes keeps to it.
func TestReservationsKeepThePromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := drawRate(t)
		l, err := limiter.New(rate)
		if err != nil {
			t.Fatal(err)
		}
		type reserved struct {
			*limiter.Reservation
			went
		}
		exact, start, at := newLog(rate), time.Now(), int64(0)
		var ahead []reserved
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			at += rapid.Int64Range(0, 2*exact.step).Draw(t, "later")
			now, n := start.Add(time.Duration(at)), rapid.Int64Range(1, exact.limit).Draw(t, "n")
			switch rapid.SampledFrom([]string{"allow", "reserve", "cancel"}).Draw(t, "op") {
			case "allow":
				if l.AllowAt(now, n) {
					exact.all = append(exact.all, went{at, n})
				}
			case "reserve":
				delay := l.PeekAt(now, n).RetryAfter
				r, ok := l.ReserveAt(now, n)
				if !ok || r.Start().Sub(now) != delay {
					t.Fatalf("ReserveAt(%d ns, %d) = %t, in %s, want in %s",
						at, n, ok, r.Start().Sub(now), delay)
				}
				ahead = append(ahead, reserved{r, went{at + int64(delay), n}})
			case "cancel":
				if len(ahead) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(ahead)-1).Draw(t, "which")
				if got, want := ahead[i].CancelAt(now), ahead[i].at > at; got != want {
					t.Fatalf("CancelAt(%d ns) of one at %d ns = %t, want %t", at, ahead[i].at, got, want)
				} else if got {
					ahead = slices.Delete(ahead, i, i+1)
				}
			}
		}
		for _, r := range ahead {
			exact.all = append(exact.all, r.went)
		}
		exact.check(t)
	})
}

// TestAsTheServer: it decides as the server's gcra does, with the same figures.
func TestAsTheServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := drawRate(t)
		l, err := limiter.New(rate)
		if err != nil {
			t.Fatal(err)
		}
		server, now := control.New(gatehouse.GCRA), time.Now()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(rate.Interval)).Draw(t, "later")))
			cmd := gatehouse.Command{
				Op:   rapid.SampledFrom([]gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpPeek}).Draw(t, "op"),
				Rule: gatehouse.Rule{Size: rate.Size, Interval: rate.Interval, Burst: rate.Burst},
				Cost: rapid.Int64Range(1, rate.Burst+1).Draw(t, "n"),
			}
			ask := l.DecideAt
			if cmd.Op == gatehouse.OpPeek {
				ask = l.PeekAt
			}
			turn := control.Turn{Command: &cmd}
			server.Step(now, &turn)
			want, got := turn.Decision, ask(now, cmd.Cost)
			if got != (limiter.Decision{
				Allowed: want.Outcome == gatehouse.Granted, Limit: want.Limit, Remaining: want.Remaining,
				RetryAfter: want.RetryAfter, ResetAfter: want.ResetAfter,
			}) {
				t.Fatalf("%s of %d = %+v, want as the server's %+v", cmd.Op, cmd.Cost, got, want)
			}
		}
	})
}

// TestKeyedAsManyLimiters: every key is a limiter of its own, whatever is dropped meanwhile.
func TestKeyedAsManyLimiters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := drawRate(t)
		k, err := limiter.NewKeyed(rate, 0)
		if err != nil {
			t.Fatal(err)
		}
		alone, now := make(map[string]*limiter.Limiter), time.Now()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(rate.Interval)/4).Draw(t, "later")))
			key := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key"))
			n := rapid.Int64Range(-1, rate.Burst+2).Draw(t, "n")
			l := alone[key]
			if l == nil {
				if l, err = limiter.New(rate); err != nil {
					t.Fatal(err)
				}
				alone[key] = l
			}
			var got, want any
			op := rapid.SampledFrom([]string{"allow", "decide", "peek", "reserve", "refund"}).Draw(t, "op")
			switch op {
			case "allow":
				got, want = k.AllowAt(key, now, n), l.AllowAt(now, n)
			case "decide":
				got, want = k.DecideAt(key, now, n), l.DecideAt(now, n)
			case "peek":
				got, want = k.PeekAt(key, now, n), l.PeekAt(now, n)
			case "reserve":
				r, ok := k.ReserveAt(key, now, n)
				same, okSame := l.ReserveAt(now, n)
				got, want = ok, okSame
				if ok && okSame {
					got, want = r.Start().Sub(now), same.Start().Sub(now)
				}
			case "refund":
				k.RefundAt(key, now, n)
				l.RefundAt(now, n)
			}
			if got != want {
				t.Fatalf("%s of %d at key %s = %+v, alone %+v", op, n, key, got, want)
			}
		}
	})
}
