package election

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/internal/backoff"
)

// What is known ends by itself, at its time, and is told once.
func TestNoticeExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var told []MasterStatus
		n := newNotifier(func(s MasterStatus) { told = append(told, s) })
		at := begin.Add

		n.setLeader("b", 3*time.Second)
		n.setLeader("b", 3*time.Second) // as before: not told
		time.Sleep(2 * time.Second)
		n.setLeader("b", 3*time.Second) // now until 5 s
		time.Sleep(2 * time.Second)
		n.setError(errors.New("away"))
		time.Sleep(2 * time.Second) // 6 s: b is not known any more
		if n.beginTerm("a", at(6*time.Second)) {
			t.Error("lead until now = true, want false")
		}
		if !n.beginTerm("a", at(8*time.Second)) || !n.isLeading() {
			t.Error("lead for 2 s = false, want true")
		}
		time.Sleep(time.Second)
		if !n.extendTerm(at(9 * time.Second)) {
			t.Error("lead, prolonged in time = false, want true")
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		if !n.isLeading() {
			t.Error("leading just before the end = false, want true")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n.isLeading() {
			t.Error("leading at the end = true, want false")
		}
		n.close()
		n.setLeader("c", time.Second) // after the end nothing is told
		time.Sleep(time.Minute)

		away := errors.New("away")
		want := []MasterStatus{
			{Leader: "b"}, {Leader: "b", Err: away}, {Err: away}, {},
			{Leading: true, Until: at(8 * time.Second), Leader: "a"},
			{Leading: true, Until: at(9 * time.Second), Leader: "a"}, {},
		}
		if !slices.EqualFunc(told, want, sameStatus) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// A mastership that has ended, by its time or because the key is gone, is not prolonged by the answer to a
// renewal that was on its way: only a new term leads again.
func TestNoticeEndedIsNotProlonged(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(n *statusNotifier){
		"resigned": func(n *statusNotifier) { n.endTerm() },
		"expired":  func(*statusNotifier) {},
		"followed": func(n *statusNotifier) { n.setLeader("b", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []MasterStatus
				n := newNotifier(func(s MasterStatus) { told = append(told, s) })
				defer n.close()
				n.beginTerm("a", time.Now().Add(time.Minute))
				end(n)
				if name == "expired" {
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				ended := len(told)
				if n.extendTerm(time.Now().Add(time.Minute)) || n.isLeading() {
					t.Error("the end of a mastership was taken back by a late renewal, want it to stay")
				}
				if len(told) != ended {
					t.Errorf("after the end the notice told %v, want nothing", told[ended:])
				}
				if !n.beginTerm("a", time.Now().Add(time.Minute)) || !n.isLeading() {
					t.Error("a new term does not lead, want it to")
				}
			})
		})
	}
}

// An answer that comes after the time is over prolongs nothing, even if nobody has noticed the time yet.
func TestNoticeDoesNotComeBack(t *testing.T) {
	t.Parallel()
	var told []MasterStatus
	n := newNotifier(func(s MasterStatus) { told = append(told, s) })
	defer n.close()
	n.beginTerm("a", time.Now().Add(time.Hour))
	n.until = time.Now() // as after a stop of the process: the timer is late
	if n.isLeading() || n.extendTerm(time.Now().Add(time.Hour)) {
		t.Error("a mastership that was over is prolonged, want it lost")
	}
	if len(told) != 2 || told[1].Leading {
		t.Errorf("told %v, want the loss", told)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := (&Election{ttl: 3 * time.Second}).newBackoff()
	for i, most := range []time.Duration{
		60 * time.Millisecond, 120 * time.Millisecond, 240 * time.Millisecond, 480 * time.Millisecond,
		960 * time.Millisecond, time.Second, time.Second,
	} {
		if got := b.nextPause(); got < most/2 || got > most {
			t.Errorf("pause %d is %v, want %v to %v", i, got, most/2, most)
		}
	}
	long := (&Election{ttl: maxTTL}).newBackoff()
	for range 10 {
		long.nextPause()
	}
	if got := long.nextPause(); got > maxPause {
		t.Errorf("with a ttl of %v a pause is %v, want at most %v", maxTTL, got, maxPause)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.waitPause(ctx) || backoff.Sleep(ctx, 0) {
		t.Error("a pause in a context that has ended = true, want false")
	}
}
