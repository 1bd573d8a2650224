package sim_test

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// hangUp: whatever is granted to somebody who has gone is there for the next one.
func (d *drilled) hangUp() {
	for i := range 12 {
		patience := time.Duration(i) * 300 * time.Microsecond // the round trips take up to 4 ms
		if one := <-d.begin(i, gatehouse.Lock, acquire("early", lasting), patience+1); one.granted() {
			d.ask(0, gatehouse.Lock, release("early")) // it got it in time
		}
		if one := d.ask(0, gatehouse.Lock, acquire("a", prompt)); !one.granted() {
			d.complain(gatehouse.Lock, "%s, want it free of one who left after %s", one, patience)
			return
		}
		gone := d.begin(1, gatehouse.Lock, acquire("gone", lasting), prompt+patience) // as it is released
		pause(prompt)
		d.ask(0, gatehouse.Lock, release("a"))
		if one := <-gone; one.granted() {
			d.ask(0, gatehouse.Lock, release("gone"))
		}
		pause(prompt)
		if one := d.ask(0, gatehouse.Lock, acquire("b", prompt)); !one.granted() {
			d.complain(gatehouse.Lock, "%s, want it free of one who left the line", one)
			return
		}
		d.ask(0, gatehouse.Lock, release("b"))
	}
}

// share: what is taken back of a hold that several share leaves the rest, and what is taken back late leaves
// the hold that came after it.
func (d *drilled) share() {
	hold := d.ask(0, gatehouse.Lock, acquire("a", 0))
	for i := range 10 {
		<-d.begin(i, gatehouse.Lock, acquire("a", lasting), time.Duration(i)*300*time.Microsecond+1)
		pause(prompt)
		again := d.ask(0, gatehouse.Lock, gatehouse.Command{
			Op: gatehouse.OpRenew, Holder: "a", Expires: gatehouse.AsAcquired,
		})
		if !again.granted() || again.d.Fence != hold.d.Fence {
			d.complain(gatehouse.Lock, "%s, want hold %d", again, hold.d.Fence)
		}
	}
	d.ask(0, gatehouse.Lock, release("a"))
	second := d.ask(0, gatehouse.Lock, acquire("a", 0))
	d.takeBack(0, gatehouse.Lock, hold)
	stale := release("a")
	stale.Fence = hold.d.Fence
	if one := d.ask(0, gatehouse.Lock, stale); one.granted() {
		d.complain(gatehouse.Lock, "%s, want a conflict: it means a hold before this one", one)
	}
	renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "a", Expires: gatehouse.AsAcquired}
	d.ask(0, gatehouse.Lock, renew)
	d.takeBack(0, gatehouse.Lock, second) // late: its holder knows of the hold
	if one := d.ask(0, gatehouse.Lock, acquire("b", 0)); one.granted() {
		d.complain(gatehouse.Lock, "%s, want it held: no undo or release meant it", one)
	}
	if one := d.ask(0, gatehouse.Lock, release("b")); one.granted() {
		d.complain(gatehouse.Lock, "%s, want a conflict: another holds it", one)
	}
	d.ask(0, gatehouse.Lock, release("a"))
}

// expiry: a hold ends at its time, not before, and whoever waits gets it then.
func (d *drilled) expiry() {
	brief := acquire("a", 0)
	brief.Expires = 2 * time.Second
	begin := d.now()
	d.ask(0, gatehouse.Lock, brief)
	waiting := d.waits(1, "b")
	d.in([]<-chan *call{waiting}, begin, brief.Expires, brief.Expires+prompt)
	d.ask(0, gatehouse.Lock, release("b"))
}

// demand: those who ask all the time get nearly all there is. That they get no more the limit oracle sees.
func (d *drilled) demand() {
	const windows = 10
	for _, kind := range d.limits {
		key, length, least := named(kind, "plain drill"), windows*window, windows*slots*9/10
		if d.setup.store == "lazy" { // what is in the chunk of one server is not to be had from another
			key.Name, least = "chunk drill", windows*slots*6/10
		}
		cmd := limit(kind)
		cmd.MaxWait = window
		begin, got := d.now(), make(chan int)
		for i := range 2 {
			go func() {
				n := 0
				for d.now() < begin+length {
					one := d.cluster.ask(d.at(i), d.request(key, cmd))
					if one.granted() && one.end < begin+length {
						n++
					}
				}
				got <- n
			}()
		}
		n := <-got + <-got
		if n < least {
			d.complain(kind, "%d got through in %s, want at least %d", n, length, least)
		}
	}
}

// lostAnswers: what is done is done once, though half of the answers are lost.
func (d *drilled) lostAnswers() {
	d.store.Set(castest.Faults{Latency: time.Millisecond, LostAnswer: 0.3, Twice: 0.1})
	known, most := int64(0), int64(0)
	for i := range 20 {
		one := d.try(i, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1})
		most++
		if one.err == nil {
			known++
		} else {
			pause(prompt) // the breaker may be open
		}
	}
	d.mend()
	pause(5 * time.Second)
	one := d.ask(0, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpValue})
	if one.d.Value < known || one.d.Value > most {
		d.complain(gatehouse.Counter, "stands at %d, want %d to %d", one.d.Value, known, most)
	}
}

// lostGrant: what was granted to a call that failed is taken back, long before it would end.
func (d *drilled) lostGrant() {
	d.ask(0, gatehouse.Lock, acquire("known", 0)) // so that it need not be read first
	d.ask(0, gatehouse.Lock, release("known"))
	d.store.Set(castest.Faults{Latency: time.Millisecond, LostAnswer: 1})
	if one := <-d.begin(0, gatehouse.Lock, acquire("a", 0), gatehouse.Forever); one.err == nil {
		d.complain(gatehouse.Lock, "%s, want an error, as nothing can be known", one)
	}
	d.mend()
	if one := d.ask(1, gatehouse.Lock, acquire("b", 3*time.Second)); !one.granted() {
		d.complain(gatehouse.Lock, "%s, want it granted, as the first does not know of its hold", one)
	}
	d.ask(1, gatehouse.Lock, release("b"))
}

// kept: what is worth something is not forgotten, however long nobody asks.
func (d *drilled) kept() {
	d.ask(0, gatehouse.Event, send())
	d.ask(0, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpCount, Amount: 7})
	long := acquire("a", 0)
	long.Expires = time.Hour
	d.ask(0, gatehouse.Lock, long)
	pause(10 * time.Minute)
	if one := d.ask(1, gatehouse.Event, gatehouse.Command{Op: gatehouse.OpWait}); !one.granted() {
		d.complain(gatehouse.Event, "%s, want it sent", one)
	}
	if one := d.ask(1, gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpValue}); one.d.Value != 7 {
		d.complain(gatehouse.Counter, "%s, want 7", one)
	}
	if one := d.ask(1, gatehouse.Lock, acquire("b", 0)); one.granted() {
		d.complain(gatehouse.Lock, "%s, want it held", one)
	}
	d.ask(1, gatehouse.Lock, release("a"))
}
