package gate

import (
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file reports to waiting requests how their wait goes on.

const (
	// followInterval is how often a line is looked at for all who follow it, with one list of waiters for
	// each name: so a thousand who follow one line cost as much as one, but for what is told to them.
	followInterval = time.Second
	// maxQuiet is after how many looks something is told although nothing has changed, so that a client knows
	// that it still waits, and a connection is not taken for dead on its way.
	maxQuiet = 15
)

// followers are the requests that are followed.
type followers struct {
	mu    sync.Mutex
	lines map[gatehouse.Key]*followedLine
	timer *time.Timer // nil while there are none
}

// A followedLine has the followers of one line.
type followedLine struct {
	byID   map[string]*follower
	asking bool // a list is under way
}

// A follower is one request that is followed.
type follower struct {
	told  func(gatehouse.WaiterEntry)
	last  gatehouse.WaiterEntry
	quiet int // looks since it was told something; below 0 if it has been told nothing yet
}

// Follow calls told with the place of a request that waits, once soon, and then when that changes; also now
// and then when it does not. It is called on any goroutine, must not block, and may be called for the last
// time after stop has been called. Only the first thousand of a line are told their places. The caller must
// call stop when the request is decided or canceled.
func (g *Gate) Follow(r *Request, told func(gatehouse.WaiterEntry)) (stop func()) {
	return g.followLine(r.Key, gatehouse.WaiterID(uint64(r.number)), told)
}

// FollowGrant is Follow for an acquire of several names: told is called with its place in the line of each.
// It must not be called before SubmitGrant has returned.
func (g *Gate) FollowGrant(r *GrantRequest, told func(gatehouse.Key, gatehouse.WaiterEntry)) (stop func()) {
	id := gatehouse.WaiterID(uint64(r.number))
	stops := make([]func(), 0, len(r.Command.Want))
	for i := range r.Command.Want {
		key := r.Command.Want[i].Key
		stops = append(stops, g.followLine(key, id, func(entry gatehouse.WaiterEntry) { told(key, entry) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// followLine follows the request with a public id in the line of one name.
func (g *Gate) followLine(
	key gatehouse.Key, id string, told func(gatehouse.WaiterEntry),
) (stop func()) {
	f := &g.follow
	f.mu.Lock()
	// One timer looks at all lines, and runs only while a line has followers.
	if f.lines == nil {
		f.lines = make(map[gatehouse.Key]*followedLine)
	}
	l := f.lines[key]
	if l == nil {
		l = &followedLine{byID: make(map[string]*follower)}
		f.lines[key] = l
	}
	l.byID[id] = &follower{told: told, quiet: -1}
	if f.timer == nil {
		f.timer = time.AfterFunc(followInterval, g.lookAtFollowed)
	}
	f.mu.Unlock()
	// A follower that has just come is told its place now, and not up to a second later.
	g.listFollowed(key)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(l.byID, id)
		// Others may have followed since, after the line's last follower
		// had stopped: these are in another entry.
		if len(l.byID) == 0 && f.lines[key] == l {
			delete(f.lines, key)
		}
	}
}

// lookAtFollowed lists the waiters of every line that is followed.
func (g *Gate) lookAtFollowed() {
	f := &g.follow
	f.mu.Lock()
	keys := make([]gatehouse.Key, 0, len(f.lines))
	for key := range f.lines {
		keys = append(keys, key)
	}
	// The timer runs while there are followers, and ends with the first look that finds none.
	if len(keys) == 0 {
		f.timer = nil
	} else {
		f.timer.Reset(followInterval)
	}
	f.mu.Unlock()
	// Without the lock: an answer that comes at once is told to tellPlaces, which takes it.
	for _, key := range keys {
		g.listFollowed(key)
	}
}

// listFollowed lists the waiters of one line, unless that is under way: a slow store is asked once at a time.
func (g *Gate) listFollowed(key gatehouse.Key) {
	f := &g.follow
	f.mu.Lock()
	l := f.lines[key]
	ask := l != nil && !l.asking
	if ask {
		l.asking = true
	}
	f.mu.Unlock()
	if !ask {
		return
	}
	// Without the lock: the answer may be there before Submit returns, and takes it.
	g.Submit(&Request{
		Key: key, Command: gatehouse.Command{Op: gatehouse.OpWaiters, Amount: gatehouse.MaxListed},
		Decided: func(r *Request) { f.tellPlaces(l, r) },
	})
}

// tellPlaces tells the followers of a line their places in a list of its waiters.
func (f *followers) tellPlaces(l *followedLine, r *Request) {
	type message struct {
		told  func(gatehouse.WaiterEntry)
		entry gatehouse.WaiterEntry
	}
	var messages []message
	f.mu.Lock()
	l.asking = false
	// After an error of the store nothing is known, and nothing is told.
	if r.Err == nil && r.Decision.Report != nil {
		for _, entry := range r.Decision.Report.Waiters {
			if one := l.byID[entry.ID]; one != nil && one.note(entry) {
				messages = append(messages, message{one.told, entry})
			}
		}
	}
	f.mu.Unlock()
	// Without the lock, because a follower may stop when it is told.
	for _, m := range messages {
		m.told(m.entry)
	}
}

// note notes a place, and reports whether it is to be told.
func (f *follower) note(entry gatehouse.WaiterEntry) bool {
	f.quiet++
	// The expected time itself is another one at each look. Only whether there is one counts as a change.
	same := f.quiet > 0 && entry.Position == f.last.Position &&
		(entry.Expected == gatehouse.Forever) == (f.last.Expected == gatehouse.Forever)
	if same && f.quiet < maxQuiet {
		return false
	}
	f.last, f.quiet = entry, 0
	return true
}
