package limiter_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

// FuzzLimiter holds every figure to its range, at any rate, at any time, for any n: no sum overflows.
func FuzzLimiter(f *testing.F) {
	const year = int64(365 * 24 * time.Hour)
	seed := func(size, interval, burst int64, args ...int64) {
		var text []byte
		for _, x := range []int64{size, interval, burst} {
			text = binary.LittleEndian.AppendUint64(text, uint64(x))
		}
		for i, arg := range args {
			text = binary.LittleEndian.AppendUint64(append(text, byte(i)), uint64(arg))
		}
		f.Add(text)
	}
	seed(1, int64(time.Second), 4, 0, 1, 5, 1<<63-1, -1<<63, 1, 1)
	seed(1, 100*year, 0, 1, 1, 1, 1, 1, 1, 1)
	seed(gatehouse.MaxSize, 100*year, 1e12, gatehouse.MaxSize, 1, -1, 1, 1)
	seed(0, 1, 0, 0, 1, 1, 1, 1, 1)
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) < 24 {
			return
		}
		number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(ops[i:])) }
		rate := limiter.Rate{Size: number(0), Interval: time.Duration(number(8)), Burst: number(16)}
		ops = ops[24:]
		l, err := limiter.New(rate)
		if err != nil {
			if gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
				t.Fatalf("New(%+v) = %v, want invalid", rate, err)
			}
			return
		}
		k, err := limiter.NewKeyed(rate, 3)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		play(t, l, k, ops)
		l.Reset()
		d := l.PeekAt(start, 1)
		if d.Allowed != (rate.Size > 0) || d.Remaining != d.Limit || d.ResetAfter != 0 {
			t.Fatalf("figures after a Reset at %+v = %+v, want all of it", rate, d)
		}
	})
}

// play does what the bytes say: an operation and a number each.
func play(t *testing.T, l *limiter.Limiter, k *limiter.Keyed, ops []byte) {
	t.Helper()
	rate := l.Rate()
	start, at := time.Now(), time.Duration(0)
	for len(ops) > 8 {
		arg := int64(binary.LittleEndian.Uint64(ops[1:]))
		now, key := start.Add(at), string(ops[:1])
		switch ops[0] % 5 {
		case 0:
			at = time.Duration(arg)
		case 1:
			checkDecision(t, rate, l.DecideAt(now, arg))
			checkDecision(t, rate, k.DecideAt(key, now, arg))
		case 2:
			if r, ok := l.ReserveAt(now, arg); ok && ops[0]&64 != 0 {
				r.CancelAt(now)
			}
			k.ReserveAt(key, now, arg)
		case 3:
			l.RefundAt(now, arg)
			k.RefundAt(key, now, arg)
		case 4:
			checkDecision(t, rate, l.PeekAt(now, arg))
			checkDecision(t, rate, k.PeekAt(key, now, arg))
		}
		ops = ops[9:]
	}
}

// checkDecision fails when a figure is out of its range or does not fit the others.
func checkDecision(t *testing.T, rate limiter.Rate, d limiter.Decision) {
	t.Helper()
	limit := rate.Burst + 1
	if rate.Size == 0 {
		limit = 0
	}
	switch {
	case d.Limit != limit, d.Remaining < 0, d.Remaining > limit,
		d.RetryAfter < gatehouse.Forever, d.ResetAfter < gatehouse.Forever,
		d.Allowed != (d.RetryAfter == 0),
		d.RetryAfter > d.ResetAfter && d.ResetAfter >= 0 && d.RetryAfter > 0:
		t.Fatalf("figures at %+v = %+v, want them in range", rate, d)
	}
}
