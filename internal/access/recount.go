package access

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// What a user has begun may end before its time: released at another server, deleted, evicted. Only the store
// knows that, so that what a user has begun is looked up when that is as much as it may have.

// The limits of looking up.
const (
	recountEvery    = time.Second // of one user
	recountLooks    = 1000        // questions to the store in one go; one server asks for one user at a time
	recountPatience = 10 * time.Second
)

// A lookUpGate tells what is left of what users have begun.
type lookUpGate interface {
	gatehouse.Gate
	DoGrant(context.Context, gatehouse.GrantCommand) (gatehouse.GrantDecision, error)
}

// LookUp has what users have begun looked up by a gate. It is called before the users are used.
func (u *Users) LookUp(by lookUpGate) { u.gate = by }

// startRecount has a user's names and holds looked up, unless that was done just now. The lock of v is held.
func (u *Users) startRecount(v *usage, now int64) {
	if u.gate == nil || now < v.recountNext || !u.recounting.CompareAndSwap(false, true) {
		return
	}
	v.recountNext = now + int64(recountEvery)
	go func() { // ends with recountPatience at the latest
		defer u.recounting.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), recountPatience)
		defer cancel()
		r := recount{ctx: ctx, gate: u.gate, usage: v, left: recountLooks}
		r.lookUpHolds()
		r.lookUpNames()
	}()
}

// A recount looks up what a user has begun.
type recount struct {
	ctx   context.Context
	gate  lookUpGate
	usage *usage
	left  int // questions that may be asked
}

// takeQuestion reports whether the store may be asked once more.
func (r *recount) takeQuestion() bool {
	if r.left == 0 {
		return false
	}
	r.left--
	return true
}

// ask asks the store. ok is false if it did not answer, or was asked enough.
func (r *recount) ask(key gatehouse.Key, cmd gatehouse.Command) (d gatehouse.Decision, ok bool) {
	if !r.takeQuestion() {
		return d, false
	}
	d, err := r.gate.Do(r.ctx, key, cmd)
	return d, err == nil
}

// isMissing reports whether the store has no such name, or no such grant. ok is false if it did not answer,
// or was asked enough.
func (r *recount) isMissing(key gatehouse.Key) (missing, ok bool) {
	if key.Kind != gatehouse.Grant {
		d, ok := r.ask(key, gatehouse.Command{Op: gatehouse.OpStats})
		return d.Outcome == gatehouse.Missing, ok
	}
	if !r.takeQuestion() {
		return false, false
	}
	d, err := r.gate.DoGrant(r.ctx, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: key.Name})
	return d.Outcome == gatehouse.Missing, err == nil
}

// lookUpNames drops the names that the store has no more.
func (r *recount) lookUpNames() {
	v := r.usage
	v.mu.Lock()
	most := min(r.left, len(v.names.all))
	names := make(map[gatehouse.Key]begun, most)
	for key, c := range v.names.all { // in another order each time, so that all have their turn
		if len(names) == most {
			break
		}
		if c.asked == 0 {
			names[key] = c
		}
	}
	v.mu.Unlock()
	for key, c := range names {
		missing, ok := r.isMissing(key)
		if !ok {
			return
		}
		if !missing {
			continue
		}
		// A name that was begun again since the store was asked goes on counting.
		v.mu.Lock()
		if v.names.all[key] == c {
			v.names.drop(key)
		}
		v.mu.Unlock()
	}
}

// lookUpHolds drops the holds that are none any more.
func (r *recount) lookUpHolds() {
	v := r.usage
	held := make(map[gatehouse.Key]map[holdKey]begun)
	v.mu.Lock()
	for one, c := range v.holds.all {
		switch {
		case c.asked > 0:
			continue
		case held[one.key] == nil && len(held) == r.left:
			continue
		case held[one.key] == nil:
			held[one.key] = make(map[holdKey]begun)
		}
		held[one.key][one] = c
	}
	v.mu.Unlock()
	for key, holds := range held {
		there, ok := r.findFences(key)
		if !ok {
			return
		}
		v.mu.Lock()
		for one, c := range holds {
			// It may have been acquired again meanwhile.
			_, isThere := slices.BinarySearch(there, c.fence)
			if !isThere && v.holds.all[one] == c {
				delete(v.holds.all, one)
			}
		}
		v.mu.Unlock()
	}
}

// findFences returns the fencing tokens of all holds of a name, in order.
func (r *recount) findFences(key gatehouse.Key) (there []uint64, ok bool) {
	after := uint64(0)
	for {
		d, ok := r.ask(key, gatehouse.Command{
			Op: gatehouse.OpHolders, Fence: after, Amount: gatehouse.MaxListed,
		})
		if !ok || d.Report == nil {
			return there, ok // without a name there are no holds
		}
		for i := range d.Report.Holders {
			// The list comes in pages, in order of the fencing tokens.
			after = d.Report.Holders[i].Fence
			there = append(there, after)
		}
		if d.Report.Next == "" {
			return there, true
		}
	}
}
