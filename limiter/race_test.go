package limiter_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/limiter"
)

// crowd is how many goroutines are at work at the same time.
const crowd = 8

// together runs do in a crowd.
func together(do func(who int)) {
	var group sync.WaitGroup
	for who := range crowd {
		group.Go(func() { do(who) })
	}
	group.Wait()
}

// TestExactlyTheLimitAtOneInstant: however many ask at one instant, Limit go.
func TestExactlyTheLimitAtOneInstant(t *testing.T) {
	const limit = 200_000
	rate := limiter.Rate{Size: 1, Interval: time.Hour, Burst: limit - 1}
	k, err := limiter.NewKeyed(rate, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, now := newLimiter(t, 1, time.Hour, limit-1), time.Now()
	var gone, goneKeyed atomic.Int64
	together(func(int) {
		for range limit / 4 {
			if l.AllowAt(now, 1) {
				gone.Add(1)
			}
			if k.AllowAt("key", now, 1) {
				goneKeyed.Add(1)
			}
		}
	})
	if gone.Load() != limit || goneKeyed.Load() != limit {
		t.Errorf("of %d, %d went, keyed %d, want %d", crowd*limit/4, gone.Load(), goneKeyed.Load(), limit)
	}
}

// TestTheRateOfACrowd: in real time no more go than Burst + 1 and the rate.
func TestTheRateOfACrowd(t *testing.T) {
	const burst, each = 99, 10_000 // ns from one to the next
	rate := limiter.Rate{Size: int64(time.Second) / each, Interval: time.Second, Burst: burst}
	k, err := limiter.NewKeyed(rate, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(t, rate.Size, rate.Interval, burst)
	for name, allow := range map[string]func() bool{
		"Limiter": l.Allow, "Keyed": func() bool { return k.Allow("key") },
		"Decide": func() bool { return l.Decide(1).Allowed },
	} {
		l.Reset()
		var gone atomic.Int64
		start := time.Now()
		together(func(int) {
			for time.Since(start) < 50*time.Millisecond {
				if allow() {
					gone.Add(1)
				}
			}
		})
		if most := burst + 1 + int64(time.Since(start))/each; gone.Load() > most {
			t.Errorf("%s: %d went in %s, want at most %d", name, gone.Load(), time.Since(start), most)
		}
		if gone.Load() <= burst+1 {
			t.Errorf("%s: %d went in 50ms, want more than the burst of %d", name, gone.Load(), burst+1)
		}
	}
}

// TestReservationsOfACrowd: every place is given to one.
func TestReservationsOfACrowd(t *testing.T) {
	const each = 1000
	l, now := newLimiter(t, 1, time.Second, 0), time.Now()
	var places sync.Map
	together(func(int) {
		for range each {
			r, ok := l.ReserveAt(now, 1)
			if !ok {
				t.Error("Reserve = false, want true")
				return
			}
			if _, taken := places.LoadOrStore(r.Start().Sub(now), true); taken {
				t.Errorf("place at %s is given twice", r.Start().Sub(now))
			}
		}
	})
	if got, want := l.PeekAt(now, 1).RetryAfter, crowd*each*time.Second; got != want {
		t.Errorf("RetryAfter behind them = %s, want %s", got, want)
	}
}

// TestAllAtOnce looks for data races, and at the figures when all is over.
func TestAllAtOnce(t *testing.T) {
	rate := limiter.Rate{Size: 1, Interval: time.Millisecond, Burst: 50}
	k, err := limiter.NewKeyed(rate, 40)
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(t, 1, time.Millisecond, 50)
	together(func(who int) {
		for i := range 5000 {
			key := fmt.Sprint((who + i) % 50)
			switch (who + i) % 8 {
			case 0, 1:
				l.Allow()
				k.Allow(key)
			case 2:
				l.Decide(3)
				k.Decide(key, 3)
			case 3:
				cancelled(l.Reserve(2))
				cancelled(k.Reserve(key, 2))
			case 4:
				l.Refund(1)
				k.Refund(key, 1)
			case 5:
				l.Peek(1)
				k.Peek(key, 1)
			case 6:
				l.Reset()
				k.Reset(key)
			case 7:
				changed := limiter.Rate{Size: int64(1 + i%3), Interval: time.Millisecond, Burst: 50}
				if l.SetRate(changed) != nil || k.SetRate(changed) != nil {
					t.Error("SetRate failed, want it to be fine")
				}
			}
		}
	})
	l.Reset()
	if d := l.Peek(0); d.Remaining != 51 || d.ResetAfter != 0 {
		t.Errorf("figures after a Reset = %+v, want all of 51", d)
	}
	if n := k.Len(); n < 0 || n > 40 {
		t.Errorf("Len = %d, want 0 to 40", n)
	}
}

// cancelled cancels a reservation if there is one.
func cancelled(r *limiter.Reservation, ok bool) {
	if ok {
		r.Cancel()
	}
}
