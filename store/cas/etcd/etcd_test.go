//go:build linux || darwin

package etcd

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// Acquired at a server, released at another one, got by who waits at a third one, which hears of it by the
// watch and not by looking again.
func TestReleaseElsewhereWakes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	all := servers(t, cluster, 3)
	key := named(gatehouse.Lock, "a/b")
	last := all[0].do(t, key, acquire("one"), gatehouse.Granted).Fence
	var took []time.Duration
	for range 20 {
		cmd := acquire("two")
		cmd.MaxWait = patience
		waits := all[2].later(t, key, cmd)
		until(t, "somebody to wait", func() bool { return all[2].Waiting() == 1 })
		all[1].do(t, key, release("one"), gatehouse.Granted)
		began := time.Now()
		second := granted(t, waits)
		took = append(took, second.at.Sub(began))
		if second.Fence <= last {
			t.Errorf("fencing token %d after %d, want it to rise", second.Fence, last)
		}
		all[0].do(t, key, release("two"), gatehouse.Granted)
		last = all[0].do(t, key, acquire("one"), gatehouse.Granted).Fence
	}
	slices.Sort(took)
	half := took[len(took)/2]
	t.Logf("who waited got it after %v, half of the time, and %v at most", half, took[len(took)-1])
	if half > 300*time.Millisecond {
		t.Errorf("half of those who waited got it after %v or later, want them woken at once", half)
	}
}

// Servers at which somebody waits do not wake each other for ever.
func TestWaitingIsQuiet(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	all := servers(t, cluster, 3)
	key := named(gatehouse.Lock, "a")
	all[0].do(t, key, acquire("one"), gatehouse.Granted)
	for _, s := range all {
		for _, holder := range []string{"two", "three"} {
			cmd := acquire(holder)
			cmd.MaxWait = gatehouse.Forever
			s.later(t, key, cmd)
		}
		until(t, "two to wait", func() bool { return s.Waiting() == 2 })
	}
	revision := func() int64 {
		response, err := client.Get(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		return response.Header.Revision
	}
	reads := func() (sum int64) {
		for _, s := range all {
			sum += int64(s.store.Stats().Reads) // it is small
		}
		return sum
	}
	// Each server looks by itself now and then.
	looks := func(n int64) {
		until(t, "the servers look by themselves", func() bool { return reads() >= n })
	}
	looks(reads() + 6)
	began, written, read := time.Now(), revision(), reads()
	looks(read + 12)
	seconds := int64(time.Since(began)/time.Second) + 1
	written, read = revision()-written, reads()-read
	t.Logf("in %d s three servers wrote %d times and read %d times", seconds, written, read)
	if written > 3*2*seconds || read > 3*4*seconds {
		t.Errorf("%d writes and %d reads in %d s, want at most 2 and 4 a second of each server",
			written, read, seconds)
	}
}

// Every kind of controller is one for all servers.
func TestKinds(t *testing.T) {
	t.Parallel()
	all := servers(t, etcdtest.Start(t, 1), 3)
	a, b, c := all[0], all[1], all[2]
	const refused = gatehouse.Refused

	key := named(gatehouse.Semaphore, "s")
	for n, s := range all {
		cmd, want := acquire(string(rune('a'+n))), gatehouse.Granted
		if cmd.Size = 2; n == 2 {
			want = refused
		}
		s.do(t, key, cmd, want)
	}

	key = named(gatehouse.Event, "e")
	waits := a.later(t, key, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: patience})
	until(t, "somebody to wait", func() bool { return a.Waiting() == 1 })
	b.do(t, key, gatehouse.Command{Op: gatehouse.OpSend, Message: "m"}, gatehouse.Granted)
	if got := granted(t, waits); got.Message != "m" {
		t.Errorf("the event carries %q, want m", got.Message)
	}
	c.do(t, key, gatehouse.Command{Op: gatehouse.OpSend, Message: "n"}, gatehouse.Conflict)

	key = named(gatehouse.Watchdog, "w")
	a.do(t, key, gatehouse.Command{Op: gatehouse.OpKick, Expires: 300 * time.Millisecond}, gatehouse.Granted)
	b.do(t, key, gatehouse.Command{Op: gatehouse.OpWait}, refused)
	b.do(t, key, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: patience}, gatehouse.Granted)

	key = named(gatehouse.Counter, "c")
	for n, s := range all {
		d := s.do(t, key, gatehouse.Command{Op: gatehouse.OpCount, Amount: 2}, gatehouse.Granted)
		if d.Value != int64(2*n+2) {
			t.Errorf("count %d answers %d", n, d.Value)
		}
	}

	key = named(gatehouse.Barrier, "b")
	var arrived []<-chan answer
	for _, s := range all {
		arrived = append(arrived, s.later(t, key, gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}, Cost: 1, MaxWait: patience,
		}))
	}
	for _, one := range arrived {
		granted(t, one)
	}
}

// Every limiter lets through what it may, wherever it is asked.
func TestLimiters(t *testing.T) {
	t.Parallel()
	all := servers(t, etcdtest.Start(t, 1), 3)
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() || kind == gatehouse.Pace {
			continue
		}
		let := 0
		for n := range 15 {
			d, err := all[n%3].Do(t.Context(), named(kind, "l"), gatehouse.Command{
				Op:   gatehouse.OpAcquire,
				Rule: gatehouse.Rule{Size: 6, Burst: 5, Interval: time.Hour}, Cost: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome == gatehouse.Granted {
				let++
			}
		}
		if let != 6 {
			t.Errorf("%s of 6 an hour let %d through", kind, let)
		}
	}
	key := named(gatehouse.Pace, "p")
	pace := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: time.Hour}, Cost: 1,
	}
	all[0].do(t, key, pace, gatehouse.Granted)
	all[1].do(t, key, pace, gatehouse.Refused)
}

var _ cas.Backend = (*Backend)(nil)
