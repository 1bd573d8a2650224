package sim_test

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// early waits until a window of this length has just begun by the store's time.
func (d *drilled) early(length time.Duration) {
	pause(length - time.Duration(d.storeTime().UnixNano())%length + prompt)
}

// emptied takes all that there is of a limiter, and returns what was granted.
func (d *drilled) emptied(kind gatehouse.Kind, cmd gatehouse.Command) (granted []*call) {
	for {
		one := d.ask(0, kind, cmd)
		if !one.granted() {
			return granted
		}
		granted = append(granted, one)
	}
}

// takeBack has a server take back what a call was granted, and returns when it has asked the store.
func (d *drilled) takeBack(i int, kind gatehouse.Kind, one *call) {
	s := d.at(i)
	undo := control.UndoOf(&control.Turn{Command: &one.cmd}, &one.d)
	// An error means that the store does not know it yet, and is not told of: it is tried again.
	_ = (&control.Change{Key: d.key(kind), Turns: []control.Turn{undo}}).ApplyTo(s.kept)
}

// lateUndo: an undo takes back what it means, and nothing that was taken after that has come back by itself.
func (d *drilled) lateUndo() {
	for _, kind := range limiters {
		d.early(window)
		before := d.emptied(kind, limit(kind))
		pause(2 * window)
		now := d.emptied(kind, limit(kind))
		for _, one := range before {
			d.takeBack(1, kind, one)
		}
		if more := d.emptied(kind, limit(kind)); len(more) > 0 {
			d.complain(kind, "%s, want it empty: what was taken back had come back before", more[0])
		}
		d.takeBack(1, kind, now[len(now)-1])
		if more := d.emptied(kind, limit(kind)); len(more) != 1 {
			d.complain(kind, "%d were let through after one was taken back", len(more))
		}
	}
	d.undoInTurn(gatehouse.SlidingWindow)
	d.undoInTurn(gatehouse.SlidingLog)
}

// undoInTurn: of what comes back one after the other, that comes back early which an undo means.
func (d *drilled) undoInTurn(kind gatehouse.Kind) {
	pause(2 * window)
	d.ask(0, kind, limit(kind))
	pause(window / 2)
	later := d.emptied(kind, limit(kind))
	d.takeBack(0, kind, later[0])
	pause(window/2 + prompt)
	if more := d.emptied(kind, limit(kind)); len(more) != slots-len(later)+1 {
		d.complain(kind, "%d were let through, want %d: one was taken back, and one came back", len(more),
			slots-len(later)+1)
	}
}

// lostUndo: what is taken back is taken back once, though the answer to that is lost.
func (d *drilled) lostUndo() {
	const long = 30 * window // so that nothing comes back by itself meanwhile
	for _, kind := range limiters {
		cmd := limit(kind)
		cmd.Interval = long
		d.early(long)
		taken := d.emptied(kind, cmd)
		d.store.Set(castest.Faults{Latency: time.Millisecond, LostAnswer: 1})
		d.takeBack(0, kind, taken[len(taken)-1])
		d.mend()
		pause(3 * time.Second)
		if more := d.emptied(kind, cmd); len(more) != 1 {
			d.complain(kind, "%d were let through after one was taken back", len(more))
		}
	}
}
