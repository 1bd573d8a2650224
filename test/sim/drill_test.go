package sim_test

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A drill tries one promise when the trouble is over: by then all must be as it should, on the clock.
type drill struct {
	name   string
	shared bool // it needs a store that is shared
	do     func(d *drilled)
}

var drills = []drill{
	{"wake", false, (*drilled).wake},
	{"second look", true, (*drilled).secondLook},
	{"deleted", false, (*drilled).deleted},
	{"order", false, (*drilled).order},
	{"between servers", true, (*drilled).between},
	{"dead head", true, (*drilled).deadHead},
	{"barrier", false, (*drilled).barrier},
	{"watchdog", false, (*drilled).watchdog},
	{"hang-up", false, (*drilled).hangUp},
	{"share", false, (*drilled).share},
	{"expiry", false, (*drilled).expiry},
	{"demand", false, (*drilled).demand},
	{"places", false, (*drilled).places},
	{"breaker", true, (*drilled).breaker},
	{"lost answers", true, (*drilled).lostAnswers},
	{"lost grant", true, (*drilled).lostGrant},
	{"late undo", false, (*drilled).lateUndo},
	{"lost undo", true, (*drilled).lostUndo},
	{"lost place", true, (*drilled).lostPlace},
	{"charge", false, (*drilled).charge},
	{"kept", false, (*drilled).kept},
	{"grants", false, (*drilled).grants},
	{"grants in order", false, (*drilled).grantsInOrder},
	{"grants between servers", true, (*drilled).grantsBetween},
	{"line of a grant", false, (*drilled).grantLine},
	{"blocked grant", false, (*drilled).blockedGrant},
	{"grant hang-up", false, (*drilled).grantHangUp},
	{"lost whole grant", true, (*drilled).lostWholeGrant},
	{"dead grant", true, (*drilled).deadGrant},
	{"grant of tokens", false, (*drilled).grantOfTokens},
	{"far", true, (*drilled).far},
}

// drills has all of them done.
func (c *cluster) drills() {
	for _, one := range drills {
		if !one.shared || c.store != nil {
			c.noted("drill: %s", one.name)
			one.do(&drilled{c, one.name})
		}
	}
}

// drilled is a fleet in a drill. Its names are the drill's.
type drilled struct {
	*cluster
	name string
}

func (d *drilled) key(kind gatehouse.Kind) gatehouse.Key { return named(kind, "drill %s", d.name) }

func (d *drilled) at(i int) *server { return d.servers[i%len(d.servers)] }

func (d *drilled) complain(kind gatehouse.Kind, format string, args ...any) {
	d.violated("drill: "+d.name, d.key(kind), format, args...)
}

// ask has a server do something, which it must.
func (d *drilled) ask(i int, kind gatehouse.Kind, cmd gatehouse.Command) *call {
	one := d.try(i, kind, cmd)
	if one.err != nil {
		d.violated("progress", d.key(kind), "%s in peace: %v", cmd.Op, one.err)
	}
	return one
}

// try is ask, and may fail.
func (d *drilled) try(i int, kind gatehouse.Kind, cmd gatehouse.Command) *call {
	return d.cluster.ask(d.at(i), d.request(d.key(kind), cmd))
}

// request is one of a client that does not leave.
func (d *drilled) request(key gatehouse.Key, cmd gatehouse.Command) request {
	return request{client: d.name, key: key, cmd: cmd, patience: gatehouse.Forever}
}

// begin is ask in a goroutine. The client leaves after so long.
func (d *drilled) begin(
	i int, kind gatehouse.Kind, cmd gatehouse.Command, patience time.Duration,
) <-chan *call {
	answer := make(chan *call, 1)
	s := d.at(i)
	go func() {
		answer <- d.cluster.ask(s, request{client: d.name, key: d.key(kind), cmd: cmd, patience: patience})
	}()
	return answer
}

// waits is begin for a lock, with patience.
func (d *drilled) waits(i int, holder string) <-chan *call {
	return d.begin(i, gatehouse.Lock, acquire(holder, lasting), gatehouse.Forever)
}

// in has all of them be granted between two instants, counted from a beginning.
func (d *drilled) in(answers []<-chan *call, begin, least, most time.Duration) {
	for _, answer := range answers {
		one := <-answer
		if took := one.end - begin; !one.granted() || took < least || took > most {
			d.complain(one.key.Kind, "%s after %s, want it granted after %s to %s", one, took, least, most)
		}
	}
}

func acquire(holder string, wait time.Duration) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder,
		Rule: gatehouse.Rule{Size: 1}, Cost: 1, Expires: lasting, MaxWait: wait,
	}
}

func release(holder string) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder}
}

// prompt is how soon what changes at one server is known at another.
const prompt = 100 * time.Millisecond

func waitFor() gatehouse.Command { return gatehouse.Command{Op: gatehouse.OpWait, MaxWait: lasting} }

func send() gatehouse.Command { return gatehouse.Command{Op: gatehouse.OpSend, Message: "m"} }

// wakes is somebody waiting at each server, for an event and for a lock, and woken within most.
func (d *drilled) wakes(most time.Duration) {
	var waiting []<-chan *call
	for i := range 2 * len(d.servers) {
		waiting = append(waiting, d.begin(i, gatehouse.Event, waitFor(), gatehouse.Forever))
	}
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	locked := d.waits(1, "b")
	pause(1500 * time.Millisecond)
	begin := d.now()
	d.ask(0, gatehouse.Event, send())
	d.in(waiting, begin, 0, most)
	begin = d.now()
	d.ask(0, gatehouse.Lock, release("a"))
	d.in([]<-chan *call{locked}, begin, 0, most)
	d.ask(0, gatehouse.Lock, release("b"))
	d.ask(0, gatehouse.Event, gatehouse.Command{Op: gatehouse.OpDelete})
}

func (d *drilled) wake() { d.wakes(prompt) }

func (d *drilled) secondLook() {
	d.store.Set(castest.Faults{Latency: time.Millisecond, LostWake: 1})
	d.wakes(time.Second + prompt)
	d.mend()
}

// deleted: all who wait are told.
func (d *drilled) deleted() {
	for _, kind := range []gatehouse.Kind{gatehouse.Lock, gatehouse.Event, gatehouse.Barrier} {
		cmd := waitFor()
		cmd.Size = 100
		if kind == gatehouse.Lock {
			d.ask(0, kind, acquire("a", 0))
		}
		var waiting []<-chan *call
		for i := range 3 * len(d.servers) {
			if kind == gatehouse.Lock {
				cmd = acquire(fmt.Sprint("b", i), lasting)
			}
			waiting = append(waiting, d.begin(i, kind, cmd, gatehouse.Forever))
		}
		pause(time.Second)
		begin := d.now()
		d.ask(0, kind, gatehouse.Command{Op: gatehouse.OpDelete})
		for _, answer := range waiting {
			one := <-answer
			took := one.end - begin
			if one.err != nil || one.d.Outcome != gatehouse.Deleted || took > prompt {
				d.complain(kind, "%s after %s, want it told of the delete", one, took)
			}
		}
	}
}

// order: first come, first served at one server.
func (d *drilled) order() {
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	var waiting []<-chan *call
	for i := range 6 {
		waiting = append(waiting, d.waits(0, fmt.Sprint(i)))
		pause(5 * time.Millisecond)
	}
	last, lastFence := "a", uint64(0)
	for i := range 2 * len(waiting) {
		if i < len(waiting) { // somebody comes just when it is released
			waiting = append(waiting,
				d.waits(0, fmt.Sprint("late", i)))
			pause(time.Microsecond)
		}
		d.ask(0, gatehouse.Lock, release(last))
		one := <-waiting[i]
		last = one.cmd.Holder
		if !one.granted() || one.d.Fence <= lastFence {
			d.complain(gatehouse.Lock, "%s, want it granted as number %d, above %d", one, i, lastFence)
		}
		lastFence = one.d.Fence
	}
	d.ask(0, gatehouse.Lock, release(last))
	d.large()
}

// large: who wants little does not go before who came earlier and wants more than there is.
func (d *drilled) large() {
	hold, large, small := acquire("a", 0), acquire("large", lasting), acquire("small", prompt)
	hold.Size, hold.Cost = slots, slots-1
	large.Size, large.Cost, small.Size = slots, slots, slots
	d.ask(0, gatehouse.Semaphore, hold)
	waiting := d.begin(0, gatehouse.Semaphore, large, gatehouse.Forever)
	pause(prompt)
	if one := d.ask(0, gatehouse.Semaphore, small); one.granted() {
		d.complain(gatehouse.Semaphore, "%s, want it behind one who waits for more", one)
	}
	begin := d.now()
	d.ask(0, gatehouse.Semaphore, release("a"))
	d.in([]<-chan *call{waiting}, begin, 0, prompt)
	d.ask(0, gatehouse.Semaphore, release("large"))
}

// between: who waits at a server is not overtaken by those who come later to another one.
func (d *drilled) between() {
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	var others []<-chan *call
	for i := range 3 {
		others = append(others, d.waits(0, fmt.Sprint("b", i)))
	}
	pause(prompt)
	one := d.waits(1, "c")
	pause(prompt)
	for i := range 3 {
		others = append(others, d.waits(0, fmt.Sprint("d", i)))
	}
	pause(prompt)
	d.ask(0, gatehouse.Lock, release("a"))
	fences := make([]uint64, len(others)+1)
	gone := make(chan struct{}, len(fences))
	for i, answer := range append(others, one) {
		go func() {
			one := <-answer
			fences[i] = one.d.Fence
			pause(5 * time.Millisecond)
			d.ask(0, gatehouse.Lock, release(one.cmd.Holder))
			gone <- struct{}{}
		}()
	}
	for range fences {
		<-gone
	}
	for i, fence := range fences[:len(others)] {
		if later := i >= 3; later == (fence < fences[len(others)]) {
			d.complain(gatehouse.Lock, "tokens %d: want the last between the third and the fourth", fences)
		}
	}
}

// deadHead: a server that dies while somebody stands in its line keeps nobody waiting for long.
func (d *drilled) deadHead() {
	d.ask(0, gatehouse.Lock, acquire("a", 0))
	dies := len(d.servers) - 1
	lost := d.waits(dies, "b")
	pause(prompt)
	d.stop(dies, true)
	d.boot(dies)
	<-lost
	waiting := d.waits(0, "c")
	pause(prompt)
	begin := d.now()
	d.ask(0, gatehouse.Lock, release("a"))
	d.in([]<-chan *call{waiting}, begin, 0, 4*time.Second+prompt)
	d.ask(0, gatehouse.Lock, release("c"))
}

// barrier: who has gone does not count.
func (d *drilled) barrier() {
	cmd := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: slots}, MaxWait: lasting}
	d.ask(0, gatehouse.Barrier, gatehouse.Command{Op: gatehouse.OpStats})
	gone := d.begin(1, gatehouse.Barrier, cmd, prompt) // hangs up
	late := cmd
	late.MaxWait = prompt // is told that its time is up
	told := d.begin(0, gatehouse.Barrier, late, gatehouse.Forever)
	<-gone
	<-told
	pause(time.Second)
	first := d.begin(2, gatehouse.Barrier, cmd, gatehouse.Forever)
	second := d.begin(0, gatehouse.Barrier, cmd, gatehouse.Forever)
	pause(time.Second)
	begin := d.now()
	third := d.begin(1, gatehouse.Barrier, cmd, gatehouse.Forever)
	d.in([]<-chan *call{first, second, third}, begin, 0, prompt)
	if one := d.ask(0, gatehouse.Barrier, cmd); one.d.Outcome != gatehouse.Conflict {
		d.complain(gatehouse.Barrier, "%s, want a conflict at an open barrier", one)
	}
}

// watchdog: kicks in time keep it quiet, and it fires after the last.
func (d *drilled) watchdog() {
	kick := gatehouse.Command{Op: gatehouse.OpKick, Expires: alarm}
	d.ask(0, gatehouse.Watchdog, kick)
	waiting := []<-chan *call{
		d.begin(0, gatehouse.Watchdog, waitFor(), gatehouse.Forever),
		d.begin(1, gatehouse.Watchdog, waitFor(), gatehouse.Forever),
	}
	for i := range 3 {
		pause(alarm - prompt)
		d.ask(i, gatehouse.Watchdog, kick)
	}
	d.in(waiting, d.now(), alarm-prompt, alarm+prompt)
}
