package cas

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

const (
	// maxAmends is how many grants may await being taken back. More end when they expire.
	maxAmends = 10_000
	// amendAfter is the time between two tries to reach the store for it.
	amendAfter = time.Second
)

// amends are the holds that may have been granted to calls that failed. They are taken back, by their
// fencing tokens, once the store answers again: if they were granted, and to nobody else.
type amends struct {
	store  *Store
	mu     sync.Mutex
	owed   []owed
	timer  *time.Timer
	closed bool
	work   sync.WaitGroup
}

// An owed is one undo.
type owed struct {
	key gatehouse.Key
	cmd gatehouse.Command
	debt
}

// A debt says when a command that takes something back is to do so: if it has not been done before.
type debt struct {
	id     uint64   // which stands in the record once it is done
	turn   int      // of the transaction it is in
	only   *attempt // if that was made; nil if it does not depend on one
	shared bool     // what it takes back was there before that attempt, and somebody was answered with it

	// sent says that a change that does it may have been made. The last undo in the record was after then, 0
	// for none: as long as that is there, the record has not forgotten any undo since.
	sent  bool
	after uint64
}

// newDebts are those of the undos in a queue whose first turn is that turn of a flight. The change that does
// them notes so in the record: should its answer be lost, they are not done again later.
func newDebts(queue []control.Turn, first int) (debts []debt) {
	for i := range queue {
		if undoes(queue[i].Command) {
			debts = append(debts, debt{id: rand.Uint64(), turn: first + i})
		}
	}
	return debts
}

// undoes reports whether a command takes back a grant, and not only somebody who waits.
func undoes(cmd *gatehouse.Command) bool { return cmd.Op == gatehouse.OpUndo && cmd.Granted != nil }

// paid reports whether nothing is to be done, by what the record tells. It is better not to take back what
// was granted than to do so twice: the second time would take from somebody else.
func (d *debt) paid(r *record) bool {
	if slices.Contains(r.undone, d.id) || d.sent && !r.knowsUndosSince(d.after) {
		return true
	}
	if d.only == nil {
		return false
	}
	made, known := r.made(d.only)
	if d.shared {
		return !made
	}
	return known && !made
}

// knowsUndosSince reports whether the record names all undos that were done since the one that was the last.
func (r *record) knowsUndosSince(last uint64) bool {
	return len(r.undone) < maxUndone || slices.Contains(r.undone, last)
}

// noteSent notes that a change that does this may have been made of a record.
func (d *debt) noteSent(r *record) {
	if d.sent {
		return
	}
	d.sent = true
	if n := len(r.undone); n > 0 {
		d.after = r.undone[n-1]
	}
}

// pay notes that it is done.
func (d *debt) pay(r *record) {
	if n := len(r.undone) - maxUndone; n >= 0 {
		r.undone = slices.Delete(r.undone, 0, n+1)
	}
	r.undone = append(r.undone, d.id)
}

// gave reports whether a grant of this attempt can be taken back by its identity: a new hold by its fencing
// token, a place that lies ahead by its number. A hold that was there before was only shared, and stays; of a
// place that was there before the undo takes back this answer alone, if it was certainly made. Tokens taken
// at once have no identity: they stay taken, so that no limit is passed.
func (a *attempt) gave(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	switch cmd.Op {
	case gatehouse.OpAcquire:
		return d.Fence != 0 && !a.before[d.Fence]
	case gatehouse.OpReserve:
		return d.Reservation != 0
	}
	return false
}

// add notes what a failed transaction may have been granted.
func (a *amends) add(key gatehouse.Key, f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range f.open {
		try := &f.open[t]
		for i, d := range try.decisions {
			cmd := f.commands[i]
			if d.Outcome != gatehouse.Granted || !try.gave(&cmd, &d) {
				continue
			}
			cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, &d, 0
			a.push(owed{key, cmd, debt{id: rand.Uint64(), only: try.bare(), shared: wasThere(&d)}})
		}
	}
	a.arm()
}

// wasThere reports whether a decision told of a place that an earlier change had made: the number of a new
// one is not below the time.
func wasThere(d *gatehouse.Decision) bool {
	return d.Reservation != 0 && d.Reservation < uint64(d.At.UnixNano()) // #nosec G115 -- after 1970
}

// failed notes what those have left behind whose commands have failed: those who waited at a barrier still
// count there, and what was to be taken back is still there.
func (a *amends) failed(key gatehouse.Key, r *request) {
	undos := r.undos
	if undos == nil { // it has not been in a flight
		undos = newDebts(r.queue, 0)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range r.queue {
		cmd := *r.queue[i].Command
		switch {
		case undoes(&cmd):
			a.push(owed{key, cmd, undos[0]})
			undos = undos[1:]
		case key.Kind == gatehouse.Barrier && cmd.Ticket != 0 &&
			(cmd.Op.Waits() || cmd.Op == gatehouse.OpUndo):
			cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, nil, 0
			a.push(owed{key, cmd, debt{id: rand.Uint64()}})
		}
	}
	a.arm()
}

// bare is an attempt without what is not needed to tell whether it was made.
func (a *attempt) bare() *attempt { return &attempt{nonce: a.nonce, base: a.base} }

func (a *amends) push(o owed) {
	if len(a.owed) < maxAmends {
		a.owed = append(a.owed, o)
	}
}

func (a *amends) arm() {
	if len(a.owed) > 0 && a.timer == nil && !a.closed {
		a.work.Add(1)
		a.timer = time.AfterFunc(jittered(amendAfter), func() {
			defer a.work.Done()
			a.pay()
		})
	}
}

// pay takes back what can be, and tries the rest later, what could not be taken back last of all. Undos of
// one name that came together are put to the store together: the record says of all of them whether they are
// done, before the first one is done and may make it forget another.
func (a *amends) pay() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.owed) > 0 && !a.closed {
		n := 1
		for n < len(a.owed) && a.owed[n].key == a.owed[0].key {
			n++
		}
		together := slices.Clone(a.owed[:n]) // which stay there meanwhile, and count
		a.mu.Unlock()
		err := a.store.ask(together[0].key, requestOf(together))
		a.mu.Lock()
		clear(a.owed[:n])
		a.owed = a.owed[n:]
		if err != nil {
			a.owed = append(a.owed, together...)
			break
		}
		a.store.figures.amended.Add(uint64(n)) // #nosec G115 -- at most maxAmends
	}
	a.timer = nil
	a.arm()
}

// requestOf is a request that takes back all of these, which are of one name.
func requestOf(together []owed) *request {
	r := new(request)
	for i := range together {
		r.queue = append(r.queue, control.Turn{Command: &together[i].cmd})
		r.owed = append(r.owed, &together[i].debt)
	}
	return r
}

// close gives up what is still owed.
func (a *amends) close() {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil && a.timer.Stop() {
		a.work.Done()
	}
	a.mu.Unlock()
	a.work.Wait()
}
