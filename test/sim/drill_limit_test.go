package sim_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// mend has the store work again, and waits until all servers use it: a breaker probes it at most twice its
// first pause after the probe under way has failed.
func (d *drilled) mend() {
	d.store.Set(castest.Faults{Latency: time.Millisecond})
	d.used()
}

// probing is how long after the store is back a breaker closes: a probe that is under way takes as long as a
// command may, and the next one begins half a second later.
const probing = cas.DefaultTimeout + 500*time.Millisecond + prompt

// used waits until all servers use the store.
func (d *drilled) used() {
	for end := d.now() + probing; ; pause(10 * time.Millisecond) {
		away := 0
		for _, s := range d.servers {
			if _, err := s.breaker.Away(); err != nil {
				away++
			}
		}
		if away == 0 {
			return
		}
		if d.now() > end {
			d.violated("drill: "+d.name, gatehouse.Key{}, "%d servers do not use the store after %s",
				away, probing)
			return
		}
	}
}

// breaker: while the store is away commands fail at once, and what hung up meanwhile is taken back later.
func (d *drilled) breaker() {
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	hold := d.ask(0, gatehouse.Semaphore, acquire("a", 0))
	d.store.Pause()
	gone := d.begin(0, gatehouse.Lock, release("a"), gatehouse.Forever)
	<-gone
	if _, err := d.at(0).breaker.Away(); err == nil {
		d.complain(gatehouse.Lock, "the breaker is closed after %s without an answer", cas.DefaultTimeout)
	}
	for i := range 3 {
		begin := d.now()
		one := d.try(0, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1})
		if took := d.now() - begin; one.err == nil || took > 0 {
			d.complain(gatehouse.Counter, "%s after %s in call %d, want an error at once", one, took, i)
		}
	}
	d.takeBack(0, gatehouse.Semaphore, hold)
	d.store.Resume()
	d.used()
	pause(3 * time.Second)
	if one := d.ask(0, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpValue}); one.d.Value != 0 {
		d.complain(gatehouse.Counter, "stands at %d, want nothing of what failed at once", one.d.Value)
	}
	for _, kind := range []gatehouse.Kind{gatehouse.Lock, gatehouse.Semaphore} {
		if one := d.ask(0, kind, acquire("b", 0)); !one.granted() {
			d.complain(kind, "%s, want it free: it was released, or taken back", one)
		}
		d.ask(0, kind, release("b"))
	}
}

// places: whoever hangs up or cancels has taken nothing, neither more nor less. All kinds of limiters are
// emptied again and again by clients of which many leave; the limit oracle counts what was let through.
func (d *drilled) places() {
	var work sync.WaitGroup
	var last [len(limiters) * guests]time.Time
	for n := range last {
		c := &client{cluster: d.cluster, id: fmt.Sprint("guest", n), rand: source(d.seed, uint64(100+n))}
		work.Go(func() { last[n] = c.come(d.at(n), d.key(limiters[n/guests])) })
	}
	work.Wait()
	pause(slices.MaxFunc(last[:], time.Time.Compare).Sub(d.storeTime()) + 2*window)
	for _, kind := range limiters {
		d.all(kind)
	}
}

// guests are the clients of each limiter there.
const guests = 3

// storeTime is the time by which the store decides.
func (c *cluster) storeTime() time.Time {
	if c.store == nil {
		return time.Now()
	}
	return c.store.Now()
}

// come takes, reserves, hangs up and cancels for some windows. It returns when the last of its places starts.
func (c *client) come(s *server, key gatehouse.Key) (last time.Time) {
	cmd := limit(key.Kind)
	for end := c.now() + 8*window; c.now() < end; pause(c.some(step / 2)) {
		patience := gatehouse.Forever
		if c.rand.IntN(2) == 0 {
			patience = 1 + c.some(4*time.Millisecond) // about when the answer comes
		}
		switch cmd.MaxWait = 0; c.rand.IntN(4) {
		case 0, 1:
			cmd.Op, cmd.Holder = gatehouse.OpAcquire, ""
		case 2:
			if cmd.Op != gatehouse.OpReserve { // otherwise it asks for its place again
				cmd.Op, cmd.Holder = gatehouse.OpReserve, c.newHolder()
			}
		default:
			if cmd.Op == gatehouse.OpReserve {
				cmd.Op, patience = gatehouse.OpCancel, gatehouse.Forever
			}
		}
		one := c.ask(s, request{client: c.id, key: key, cmd: cmd, patience: patience})
		if start := one.d.At.Add(one.d.Delay); one.granted() && start.After(last) {
			last = start
		}
	}
	return last
}

// all: after some windows of rest a limiter has all there is: nothing that was taken back is still taken.
func (d *drilled) all(kind gatehouse.Kind) {
	want := slots
	if kind == gatehouse.Pace {
		want = 1
	}
	for i := range want {
		if one := d.ask(i, kind, limit(kind)); !one.granted() {
			d.complain(kind, "%s as number %d of %d after %s of rest", one, i+1, want, 2*window)
			return
		}
	}
}

// lostPlace: a place that was reserved by a call that failed is there for the next one.
func (d *drilled) lostPlace() {
	const long = 30 * window // so that no place comes back by itself meanwhile
	for _, kind := range limiters {
		cmd := limit(kind)
		cmd.Interval = long
		d.early(long)
		for range slots {
			d.ask(0, kind, cmd)
		}
		cmd.Op, cmd.Holder = gatehouse.OpReserve, "before"
		before := d.ask(0, kind, cmd)
		d.ask(0, kind, cmd) // the same place, so that two know of it
		cancel := cmd
		cancel.Op = gatehouse.OpCancel
		d.ask(0, kind, cancel)
		d.store.Set(castest.Faults{Latency: time.Millisecond, LostAnswer: 1})
		cmd.Holder = "lost"
		if one := d.try(0, kind, cmd); one.err == nil {
			d.complain(kind, "%s, want an error, as nothing can be known", one)
		}
		d.mend()
		pause(3 * time.Second)
		cmd.Holder = "next"
		next := d.ask(1, kind, cmd)
		start, want := next.d.At.Add(next.d.Delay), before.d.At.Add(before.d.Delay)
		if !next.granted() || start.After(want.Add(time.Millisecond)) { // waits are whole ms
			d.complain(kind, "%s, with its place at %s, want it at %s as that of %s",
				next, start, want, before)
		}
	}
}
