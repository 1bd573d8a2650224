package lease_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
)

// TestAdaptiveAsksForWhatArrives: the average of a steady stream is its rate, from its first second on.
// doorman's is 0.109 at 10 per second and 0.011 at 100, and no number without any.
func TestAdaptiveAsksForWhatArrives(t *testing.T) {
	for _, c := range []struct{ perSecond, want float64 }{
		{0, 0.1}, {1, 1}, {2, 2}, {10, 10}, {50, 50}, {100, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newKnob(-1)
			a := lease.NewAdaptive(k, lease.AdaptiveConfig{})
			defer a.Close()
			if c.perSecond == 0 {
				time.Sleep(time.Minute)
			} else {
				every := time.Duration(float64(time.Second) / c.perSecond)
				time.Sleep(every / 2)
				for range int(c.perSecond) * 30 {
					a.Allow()
					time.Sleep(every)
				}
			}
			if told := k.told(); !slices.Equal(told, []float64{c.want}) {
				t.Errorf("wants at %g per second = %v, want %g once", c.perSecond, told, c.want)
			}
		})
	}
}

// TestAdaptiveFollowsDemand: up within seconds, down within the window, and never to 0.
func TestAdaptiveFollowsDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(-1)
		a := lease.NewAdaptive(k, lease.AdaptiveConfig{Window: 10 * time.Second, Floor: 2})
		defer a.Close()
		stream := func(perSecond int, seconds int) (last float64) {
			time.Sleep(time.Millisecond)
			for range perSecond * seconds {
				a.Allow()
				time.Sleep(time.Second / time.Duration(perSecond))
			}
			told := k.told()
			if len(told) > 2+seconds/3 {
				t.Errorf("told %v in %d s, want fewer", told, seconds)
			}
			return told[len(told)-1]
		}
		if got := stream(10, 20); got != 10 {
			t.Errorf("wants at 10 per second = %g, want 10", got)
		}
		if got := stream(200, 3); got < 50 {
			t.Errorf("wants 3 s after a jump to 200 = %g, want 50 or more", got)
		}
		if got := stream(200, 20); math.Abs(got-200) > 20 {
			t.Errorf("wants at 200 per second = %g, want 200", got)
		}
		time.Sleep(20 * time.Second)
		if told := k.told(); told[len(told)-1] != 2 {
			t.Errorf("wants of nobody = %v, want the floor at last", told)
		}
	})
}

// TestAdaptiveCountsThoseWhoWait: what waits is asked for as well, to be let through in a second. By
// arrivals alone a limiter whose callers all wait would never ask for more than it has.
func TestAdaptiveCountsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(10)
		a := lease.NewAdaptive(k, lease.AdaptiveConfig{})
		callers(t.Context(), 50, a)
		time.Sleep(30*time.Second + 50*time.Millisecond)
		told := k.told()
		if got := told[len(told)-1]; got < 50 || got > 70 {
			t.Errorf("wants of 50 callers at 10 per second = %v, want about 60", told)
		}
		a.Close()
		a.Close()
		synctest.Wait()
		time.Sleep(time.Minute)
		if told := k.told(); len(told) > 0 || a.Allow() {
			t.Errorf("wants after Close = %v, want none, and no Allow", told)
		}
	})
}

// TestAdaptiveForgets: what it keeps does not grow with what arrives.
func TestAdaptiveForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(-1)
		a := lease.NewAdaptive(k, lease.AdaptiveConfig{Window: time.Second})
		defer a.Close()
		allocated := testing.AllocsPerRun(10_000, func() { a.Allow() })
		if allocated != 0 {
			t.Errorf("an arrival allocates %g times, want never", allocated)
		}
		time.Sleep(2 * time.Second)
		if told := k.told(); told[len(told)-1] != 1 {
			t.Errorf("wants after a pause = %v, want 1 at last", told)
		}
	})
}
