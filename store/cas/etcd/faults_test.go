//go:build linux || darwin

package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A tenure is a hold as its holder knows it: from the answer to acquire to before it asks for its release. It
// can only be shorter than the hold.
type tenure struct {
	from, until time.Time
	fence       uint64
}

// A rush is callers of several servers who want one lock, one after the other, each for a moment.
type rush struct {
	*workload
	key  gatehouse.Key
	stop chan struct{}
	work sync.WaitGroup

	mu      sync.Mutex
	tenures []tenure
}

func newRush(tb testing.TB, w *workload) *rush {
	tb.Helper()
	r := &rush{workload: w, key: named(gatehouse.Lock, "rush"), stop: make(chan struct{})}
	for i, s := range w.servers {
		for n := range 2 {
			r.work.Go(func() { r.hold(tb.Context(), s, fmt.Sprintf("%d-%d", i, n)) })
		}
	}
	return r
}

// hold acquires and releases until the rush ends. What it does not know to be released ends after 2 s.
func (r *rush) hold(ctx context.Context, s *server, caller string) {
	for n := 0; ; n++ {
		select {
		case <-r.stop:
			return
		default:
		}
		cmd := acquire(fmt.Sprintf("%s/%d", caller, n))
		cmd.Expires, cmd.MaxWait = 2*time.Second, time.Second
		asked := time.Now()
		d, err := s.Do(ctx, r.key, cmd)
		if err != nil || d.Outcome != gatehouse.Granted {
			continue
		}
		one := tenure{from: time.Now(), fence: d.Fence}
		_, _ = s.Do(ctx, r.key, gatehouse.Command{Op: gatehouse.OpStats}) // it is used for something
		one.until = time.Now()
		if end := asked.Add(cmd.Expires); one.until.After(end) {
			one.until = end
		}
		r.mu.Lock()
		r.tenures = append(r.tenures, one)
		r.mu.Unlock()
		_, _ = s.Do(ctx, r.key, release(cmd.Holder)) // otherwise it ends by its lease
	}
}

// count is how many tenures there have been.
func (r *rush) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tenures)
}

// progress waits until the lock was held again, and says how long that took.
func (r *rush) progress(tb testing.TB) time.Duration {
	tb.Helper()
	began, before := time.Now(), r.count()
	until(tb, "the lock to be got again", func() bool { return r.count() > before+1 })
	return time.Since(began)
}

// end ends it, and checks that tenures did not overlap and that their tokens rose in the same order.
func (r *rush) end(tb testing.TB) {
	tb.Helper()
	close(r.stop)
	r.work.Wait()
	slices.SortFunc(r.tenures, func(a, b tenure) int { return cmp.Compare(a.fence, b.fence) })
	for i := 1; i < len(r.tenures); i++ {
		a, b := r.tenures[i-1], r.tenures[i]
		if a.fence == b.fence || a.from.Before(a.until) && b.from.Before(a.until) {
			tb.Errorf("token %d was held until %v, and token %d from %v", a.fence, a.until, b.fence, b.from)
		}
	}
}

// soon is how long it may take until the lock can be got again after a fault: an election of etcd's, the end
// of a lease of 2 s that nobody knows of, and as much again.
const soon = 8*time.Second + stall

// The leader dies, a member is lost, a server is cut off: never two holders, and it goes on soon.
func TestFaultsUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	w := newWorkload(t, cluster, 3)
	r := newRush(t, w)
	r.progress(t)
	steps := []struct {
		name        string
		fault, mend func()
	}{
		{"a server is cut off", w.links[0].Hang, w.links[0].Mend},
		{"a server hears no answers", w.links[1].LoseAnswers, w.links[1].Mend},
	}
	leader := cluster.Leader(t)
	for _, member := range []int{leader, (leader + 1) % 3} {
		name := fmt.Sprintf("member %d of 3 dies, %d led", member, leader)
		steps = append(steps, struct {
			name        string
			fault, mend func()
		}{name, func() { cluster.Kill(member) }, func() {
			cluster.Restart(t, member)
			cluster.Healthy(t)
		}})
	}
	for _, step := range steps {
		step.fault()
		broken := r.progress(t)
		step.mend()
		mended := r.progress(t)
		t.Logf("%s: went on after %v, and after %v when it was mended", step.name, broken, mended)
		if broken > soon || mended > soon {
			t.Errorf("%s: it went on after %v and %v, want at most %v", step.name, broken, mended, soon)
		}
	}
	r.end(t)
	t.Logf("%d holds", len(r.tenures))
}

// Without a majority nothing is granted, and each call ends in time.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	address := cluster.URL("")
	serve(t, address).do(t, named(gatehouse.Lock, "a"), acquire("one"), gatehouse.Granted)
	s := serveWithin(t, opened(t, address), 2*time.Second)
	key := named(gatehouse.Lock, "a")
	cluster.Kill(0)
	cluster.Kill(1)
	began := time.Now()
	d, err := s.Do(t.Context(), key, release("one"))
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || time.Since(began) > 2*time.Second+stall {
		t.Errorf("release without a majority = %s, %v after %v, want it unavailable after 2s",
			d.Outcome, err, time.Since(began))
	}
	cluster.Restart(t, 0)
	cluster.Restart(t, 1)
	cluster.Healthy(t)
	until(t, "it to work again", func() bool {
		d, err := s.Do(t.Context(), key, acquire("two"))
		if err == nil && d.Outcome == gatehouse.Refused { // the release was not made
			_, _ = s.Do(t.Context(), key, release("one"))
		}
		return err == nil && d.Outcome == gatehouse.Granted
	})
}
