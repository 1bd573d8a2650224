package sim_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// grantLine: while grants of all servers wait for something else that comes free soon, one after the other,
// the line at a name that is free stands still for at most a second at a stretch, and for half of any ten,
// seen from whichever server.
func (d *drilled) grantLine() {
	const each, grants, step = 900 * time.Millisecond, 14, 50 * time.Millisecond
	free := d.part(gatehouse.Lock, "free")
	var waiting []<-chan *grantCall
	for i := range grants {
		other := d.part(gatehouse.Lock, fmt.Sprint("held", i))
		hold := acquire("h", 0)
		hold.Expires = time.Duration(i+1) * each
		d.cluster.ask(d.at(0), d.request(other.Key, hold))
		cmd := d.wants(fmt.Sprint("w", i), lasting, free, other)
		waiting = append(waiting, d.later(i, cmd, gatehouse.Forever))
		pause(time.Millisecond)
	}
	end := make(chan struct{})
	var work sync.WaitGroup
	for i, answer := range waiting {
		work.Go(func() {
			if one := <-answer; !one.granted() {
				d.wrong(one, "want it granted")
			}
			d.decide(0, d.giveUp(fmt.Sprint("w", i)))
		})
	}
	go func() { work.Wait(); close(end) }()
	d.watchLine(free.Key, step, end)
}

// watchLine asks for a lock that grants wait for again and again, and counts for how long it is kept from
// others though nobody has it.
func (d *drilled) watchLine(key gatehouse.Key, step time.Duration, end <-chan struct{}) {
	var kept []time.Duration
	for i := 0; ; i++ {
		select {
		case <-end:
			d.judgeLine(key, step, kept)
			return
		case <-time.After(step):
		}
		one := d.cluster.ask(d.at(i), d.request(key, acquire("passer-by", 0)))
		if one.granted() {
			d.cluster.ask(d.at(i), d.request(key, release("passer-by")))
			continue
		}
		kept = append(kept, d.now())
	}
}

// judgeLine looks at the instants at which a line was kept.
func (d *drilled) judgeLine(key gatehouse.Key, step time.Duration, kept []time.Duration) {
	from, begin := 0, time.Duration(0)
	// A server tells the store when it no longer keeps the line, and each of the grants has it for a moment.
	const slack = 100 * time.Millisecond
	for i, at := range kept {
		if i == 0 || at-kept[i-1] > 2*step {
			begin = at
		}
		if at-begin > time.Second+slack {
			d.violated("drill: "+d.name, key, "it stood still from %s to %s", begin, at)
			return
		}
		for kept[from] < at-10*time.Second {
			from++
		}
		if sum := time.Duration(i-from) * step; sum > 5*time.Second+5*slack {
			d.violated("drill: "+d.name, key, "it stood still for about %s of the 10 s until %s", sum, at)
			return
		}
	}
	// With leases of etcd a refusal does not tell when a hold ends: nothing is kept for that.
	if len(kept) < 10 && d.setup.store != "etcd" {
		d.violated("drill: "+d.name, key, "it was kept %d times, want more to be shown", len(kept))
	}
}
