package sim_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// The round trips of a near server and of one that is 50 times as far from the store, and for how long they
// compete.
const (
	nearTrip = 200 * time.Microsecond
	farTrip  = 10 * time.Millisecond
	compete  = 400 * time.Millisecond
	rivals   = 4 // clients of each
)

// far: a server that is further from the store than others makes progress at names that are hot there.
func (d *drilled) far() {
	place := len(d.servers)
	d.servers = append(d.servers, nil)
	d.boot(place)
	far := d.servers[place]
	d.store.Set(castest.Faults{Latency: 10 * time.Microsecond})
	for _, s := range d.servers {
		s.backend.SetExtraLatency(nearTrip)
	}
	far.backend.SetExtraLatency(farTrip)

	d.farHolds(far)
	d.farWaits(place)
	if d.setup.store != "etcd" { // there clocks of servers differ by more than a token takes to come back
		d.farShares(far)
	}

	for _, s := range d.servers {
		s.backend.SetExtraLatency(0)
	}
	d.stop(place, false)
	d.servers = d.servers[:place]
	d.mend()
}

// load has clients of a server ask for the same until it is ended, which returns how many were granted.
func (d *drilled) load(s *server, key gatehouse.Key, cmd gatehouse.Command) (end func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var work sync.WaitGroup
	granted := 0
	for range rivals {
		work.Go(func() {
			for ctx.Err() == nil {
				decision, err := s.gate.Do(context.Background(), key, cmd)
				if err != nil {
					d.violated("progress", key, "%s in peace: %v", cmd.Op, err)
				}
				if decision.Outcome == gatehouse.Granted {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	return func() int {
		cancel()
		work.Wait()
		return granted
	}
}

// farHolds: what the far server holds it renews and releases, while others poll it and use its neighbours.
func (d *drilled) farHolds(far *server) {
	lock, semaphore, counter := d.key(gatehouse.Lock), d.key(gatehouse.Semaphore), d.key(gatehouse.Counter)
	do := func(key gatehouse.Key, cmd gatehouse.Command) {
		began := d.now()
		decision, err := far.gate.Do(context.Background(), key, cmd)
		if took := d.now() - began; err != nil || decision.Outcome != gatehouse.Granted || took > prompt {
			d.violated("drill: far", key, "%s of the far server took %s and was %s: %v", cmd.Op, took,
				decision.Outcome, err)
		}
	}
	do(lock, acquire("far", 0))
	polled := acquire("near", 0)
	room := acquire("near", 0)
	room.Size, room.Expires = 100, time.Hour
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	ends := []func() int{
		d.load(d.at(0), lock, polled), d.load(d.at(0), semaphore, room), d.load(d.at(0), counter, count),
	}
	for i := range 5 {
		renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "far", Expires: gatehouse.AsAcquired}
		do(lock, renew)
		mine := room
		mine.Holder = fmt.Sprint("far", i)
		do(semaphore, mine)
		do(semaphore, release(mine.Holder))
		do(counter, count)
	}
	do(lock, release("far"))
	for _, end := range ends {
		end()
	}
	d.giveBack(lock, "near")
	d.giveBack(semaphore, "near")
}

// farWaits: those who wait at the far server and at a near one go by their age.
func (d *drilled) farWaits(far int) {
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	var waiting []<-chan *call
	for i := range 4 {
		at := 0
		if i%2 == 0 {
			at = far
		}
		waiting = append(waiting, d.waits(at, fmt.Sprint("w", i)))
		pause(prompt)
	}
	end := d.load(d.at(0), d.key(gatehouse.Lock), acquire("poll", 0))
	last := "a"
	for i, answer := range waiting {
		d.ask(0, gatehouse.Lock, release(last))
		one := <-answer
		if last = one.cmd.Holder; !one.granted() {
			d.complain(gatehouse.Lock, "%s, want waiter %d to be the next", one, i)
			break
		}
	}
	d.ask(0, gatehouse.Lock, release(last))
	end()
	d.giveBack(d.key(gatehouse.Lock), "poll")
}

// giveBack releases what a load may hold.
func (d *drilled) giveBack(key gatehouse.Key, holder string) {
	if _, err := d.at(0).gate.Do(context.Background(), key, release(holder)); err != nil {
		d.violated("progress", key, "release in peace: %v", err)
	}
}

// farShares: of a limit that both exhaust the far server gets a tenth of an even share at least.
func (d *drilled) farShares(far *server) {
	kind := limiters[d.seed/uint64(len(setups))%uint64(len(limiters))]
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 8, Interval: 20 * time.Millisecond, Burst: 4}, Cost: 1,
	}
	atNear, atFar := d.load(d.at(0), d.key(kind), cmd), d.load(far, d.key(kind), cmd)
	pause(compete)
	gotFar, gotNear := atFar(), atNear()
	if even := (gotNear + gotFar) / 2; gotFar < even/10 {
		d.complain(kind, "the far server's clients got %d, the near one's %d; want a tenth of %d",
			gotFar, gotNear, even)
	}
}
