package election

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What is known ends by itself, at its time, and is told once.
func TestNoticeExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var told []Status
		n := newNotice(func(s Status) { told = append(told, s) })
		at := begin.Add

		n.follow("b", 3*time.Second)
		n.follow("b", 3*time.Second) // as before: not told
		time.Sleep(2 * time.Second)
		n.follow("b", 3*time.Second) // now until 5 s
		time.Sleep(2 * time.Second)
		n.trouble(errors.New("away"))
		time.Sleep(2 * time.Second) // 6 s: b is not known any more
		if n.lead("a", at(6*time.Second)) {
			t.Error("lead until now = true, want false")
		}
		if !n.lead("a", at(8*time.Second)) || !n.leading() {
			t.Error("lead for 2 s = false, want true")
		}
		time.Sleep(time.Second)
		if !n.prolong(at(9 * time.Second)) {
			t.Error("lead, prolonged in time = false, want true")
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		if !n.leading() {
			t.Error("leading just before the end = false, want true")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n.leading() {
			t.Error("leading at the end = true, want false")
		}
		n.close()
		n.follow("c", time.Second) // after the end nothing is told
		time.Sleep(time.Minute)

		away := errors.New("away")
		want := []Status{
			{Leader: "b"}, {Leader: "b", Err: away}, {Err: away}, {},
			{Leading: true, Until: at(8 * time.Second), Leader: "a"},
			{Leading: true, Until: at(9 * time.Second), Leader: "a"}, {},
		}
		if !slices.EqualFunc(told, want, same) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// A mastership that has ended, by its time or because the key is gone, is not prolonged by the answer to a
// renewal that was on its way: only a new term leads again.
func TestNoticeEndedIsNotProlonged(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(n *notice){
		"resigned": func(n *notice) { n.resign() },
		"expired":  func(*notice) {},
		"followed": func(n *notice) { n.follow("b", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []Status
				n := newNotice(func(s Status) { told = append(told, s) })
				defer n.close()
				n.lead("a", time.Now().Add(time.Minute))
				end(n)
				if name == "expired" {
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				ended := len(told)
				if n.prolong(time.Now().Add(time.Minute)) || n.leading() {
					t.Error("the end of a mastership was taken back by a late renewal, want it to stay")
				}
				if len(told) != ended {
					t.Errorf("after the end the notice told %v, want nothing", told[ended:])
				}
				if !n.lead("a", time.Now().Add(time.Minute)) || !n.leading() {
					t.Error("a new term does not lead, want it to")
				}
			})
		})
	}
}

// An answer that comes after the time is over prolongs nothing, even if nobody has noticed the time yet.
func TestNoticeDoesNotComeBack(t *testing.T) {
	t.Parallel()
	var told []Status
	n := newNotice(func(s Status) { told = append(told, s) })
	defer n.close()
	n.lead("a", time.Now().Add(time.Hour))
	n.until = time.Now() // as after a stop of the process: the timer is late
	if n.leading() || n.prolong(time.Now().Add(time.Hour)) {
		t.Error("a mastership that was over is prolonged, want it lost")
	}
	if len(told) != 2 || told[1].Leading {
		t.Errorf("told %v, want the loss", told)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := (&Election{ttl: 3 * time.Second}).backoff()
	for i, most := range []time.Duration{
		60 * time.Millisecond, 120 * time.Millisecond, 240 * time.Millisecond, 480 * time.Millisecond,
		960 * time.Millisecond, time.Second, time.Second,
	} {
		if got := b.next(); got < most/2 || got > most {
			t.Errorf("pause %d is %v, want %v to %v", i, got, most/2, most)
		}
	}
	long := (&Election{ttl: maxTTL}).backoff()
	for range 10 {
		long.next()
	}
	if got := long.next(); got > maxPause {
		t.Errorf("with a ttl of %v a pause is %v, want at most %v", maxTTL, got, maxPause)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.wait(ctx) || sleep(ctx, 0) {
		t.Error("a pause in a context that has ended = true, want false")
	}
}
