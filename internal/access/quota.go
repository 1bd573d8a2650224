package access

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// quotas are how much a user may have at once on one server. 0 means any number.
type quotas struct {
	Names, Waiters, Holders, Connections int64
	// Rate is how often it may ask.
	Rate gatehouse.Limit
}

// The most that is kept of anonymous users: beyond it, all further addresses share one count.
const maxAddresses = 10_000

// usage is what a user has at present. It outlives policies, which have the quotas.
type usage struct {
	most atomic.Pointer[quotas]

	waiters, connections atomic.Int64
	next                 atomic.Int64 // the instant from which the rate lets a request through, by elapsed

	mu          sync.Mutex
	names       begunSet[gatehouse.Key]
	holds       begunSet[holdKey]
	recountNext int64 // when they may be looked up again, by elapsed
}

// A holdKey is one hold of a user.
type holdKey struct {
	key    gatehouse.Key
	holder string
}

// now is the instant by elapsed.
func (u *User) now() int64 { return u.users.elapsed() }

// elapsed is the time since the users were made, in ns. The system's clock may be set; this goes on.
func (u *Users) elapsed() int64 { return int64(u.now().Sub(u.began)) }

// usageOf returns what a user has, and notes what it may have. The lock is held.
func (u *Users) usageOf(name string, most *quotas) *usage {
	have := u.usage[name]
	if have == nil {
		have = &usage{names: newBegunSet[gatehouse.Key](), holds: newBegunSet[holdKey]()}
		u.usage[name] = have
	}
	have.most.Store(most)
	return have
}

// anonymousAt returns the anonymous user of an address, which has quotas of its own. The lock is held.
func (u *Users) anonymousAt(anonymous *User, address netip.Addr) *User {
	// IPv6 addresses count by their first 64 bits, as for connections.
	if address.Is6() {
		prefix, err := address.Prefix(64)
		if err == nil {
			address = prefix.Addr()
		}
	}
	name := address.String()
	if user := u.anon[name]; user != nil {
		return user
	}
	if len(u.anon) >= maxAddresses {
		u.forgetAddresses()
	}
	// A client cannot get more counts by coming from more addresses.
	if len(u.anon) >= maxAddresses {
		name = "others"
		if user := u.anon[name]; user != nil {
			return user
		}
	}
	at := *anonymous
	at.address, at.usage = name, u.usageOf(Anonymous+" at "+name, &anonymous.most)
	u.anon[name] = &at
	return &at
}

// sweepEvery is how often addresses are looked at that have nothing.
const sweepEvery = time.Second

// forgetAddresses drops what addresses had that have nothing. The lock is held.
func (u *Users) forgetAddresses() {
	now := u.elapsed()
	// All of them are looked at, which must not be done for each connection.
	if now < u.sweepNext {
		return
	}
	u.sweepNext = now + int64(sweepEvery)
	for address := range u.anon {
		name := Anonymous + " at " + address
		if have := u.usage[name]; have == nil || have.isEmpty(now) {
			delete(u.usage, name)
			delete(u.anon, address)
		}
	}
}

// forgetUsage drops what users had that a policy has not, if it is nothing by now. The lock is held.
func (u *Users) forgetUsage(p *Policy) {
	now := u.elapsed()
	for name, have := range u.usage {
		if p.byName[name] == nil && have.isEmpty(now) {
			delete(u.usage, name)
		}
	}
}

// isEmpty reports whether nothing counts any more.
func (v *usage) isEmpty(now int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.names.sweep(now)
	v.holds.sweep(now)
	return len(v.names.all)+len(v.holds.all) == 0 && v.waiters.Load() == 0 && v.connections.Load() == 0 &&
		v.next.Load() <= now
}

// overQuota is the error of a user who has as much as it may.
func (u *User) overQuota(what string, most any) error {
	return gatehouse.Errorf(gatehouse.CodeQuota,
		"user %s has reached its quota of %v %s; try again later, or ask "+
			"who runs this server for more", u.CountedAs(), most, what)
}

// CountedAs is for whom quotas are counted: the user, an anonymous one with its address. It is empty for nil.
func (u *User) CountedAs() string {
	switch {
	case u == nil:
		return ""
	case u.address != "":
		return u.Name + " at " + u.address
	}
	return u.Name
}

// takeRate counts one request, unless there were too many. It is a GCRA with a burst of the whole size.
func (v *usage) takeRate(limit gatehouse.Limit, now int64) bool {
	step := max(int64(limit.Interval)/limit.Size, 1)
	for {
		tat := v.next.Load()
		// One period lies between the earliest and the latest instant at which the last of the size is free.
		next := max(tat, now) + step
		if next-now > int64(limit.Interval) {
			return false
		}
		if v.next.CompareAndSwap(tat, next) {
			return true
		}
	}
}

// TakeRate counts one request of the user.
func (u *User) TakeRate() error { return u.CountRefused(gatehouse.Key{}, u.takeRate()) }

func (u *User) takeRate() error {
	if u == nil || u.most.Rate.Size == 0 || u.usage.takeRate(u.most.Rate, u.now()) {
		return nil
	}
	return u.overQuota("requests", u.most.Rate)
}

// openConnection counts a connection of the user, which closeConnection ends.
func (u *User) openConnection() error {
	if u == nil {
		return nil
	}
	n := u.usage.connections.Add(1)
	if u.most.Connections > 0 && n > u.most.Connections {
		u.usage.connections.Add(-1)
		return u.CountRefused(gatehouse.Key{}, u.overQuota("connections", u.most.Connections))
	}
	return nil
}

// closeConnection ends what openConnection began.
func (u *User) closeConnection() {
	if u != nil {
		u.usage.connections.Add(-1)
	}
}

// beginName counts a name, unless there are too many.
func (u *User) beginName(key gatehouse.Key, now int64) error {
	v := u.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.names.all[key]; known {
		return nil
	}
	if !v.names.hasRoom(u.most.Names, now) {
		u.users.startRecount(v, now)
		return u.overQuota("names", u.most.Names)
	}
	v.names.set(key, begun{until: now + int64(nameAtLeast)})
	return nil
}

// nameAtLeast is how long a name counts that a command has asked about: as long as it takes to be answered.
const nameAtLeast = 10 * time.Second

// beginHold looks whether there is room for one more hold.
func (u *User) beginHold(key gatehouse.Key, holder string, now int64) (fresh bool, err error) {
	v := u.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	one := holdKey{key, holder}
	if _, known := v.holds.all[one]; known {
		return false, nil
	}
	if !v.holds.hasRoom(u.most.Holders, now) {
		u.users.startRecount(v, now)
		return false, u.overQuota("holders", u.most.Holders)
	}
	// It counts from here on, as many may be asked for at the same time.
	v.holds.set(one, begun{until: pending})
	return true, nil
}

// endHold ends a hold.
func (u *User) endHold(key gatehouse.Key, holder string) {
	u.usage.mu.Lock()
	defer u.usage.mu.Unlock()
	delete(u.usage.holds.all, holdKey{key, holder})
}

// Instants that do not come: of a hold that does not end, and of one that was asked for.
const (
	forever = 1<<63 - 1
	pending = forever - 1
)

// endOf is the instant after a time from now on.
func endOf(now int64, after time.Duration) int64 {
	if after < 0 || int64(after) > forever-now {
		return forever
	}
	return now + int64(after)
}

// mayBegin reports whether an operation may begin a name: what only gives back begins none.
func mayBegin(kind gatehouse.Kind, op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpRelease, gatehouse.OpRenew, gatehouse.OpCancel, gatehouse.OpRefund:
		return false
	}
	return kind.Level(op) == gatehouse.LevelUse || op.Waits()
}

// settle notes how long what a command began counts.
func (u *User) settle(key gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision) {
	v, now := u.usage, u.now()
	v.mu.Lock()
	defer v.mu.Unlock()
	granted := d != nil && d.Outcome == gatehouse.Granted
	if granted && cmd.Op == gatehouse.OpDelete {
		v.forgetName(key)
		return
	}
	// A name may have been dropped while the command waited in line. What it is granted counts all the same.
	name, known := v.names.all[key]
	if known || granted && u.most.Names > 0 && mayBegin(key.Kind, cmd.Op) {
		name.until = max(name.until, endOf(now, nameLasts(cmd, d)))
		v.names.set(key, name)
	}
	one := holdKey{key, cmd.Holder}
	hold := v.holds.all[one]
	switch {
	case u.most.Holders == 0 || !holds(key.Kind):
	case granted && (cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpRenew):
		v.holds.set(one, begun{endOf(now, d.ExpiresAfter), cmp.Or(d.Fence, hold.fence)})
	case granted && cmd.Op == gatehouse.OpRelease:
		delete(v.holds.all, one)
	// An acquire that fails leaves a hold that was there before.
	case cmd.Op == gatehouse.OpAcquire && hold.until == pending:
		delete(v.holds.all, one)
	}
}

// forgetName ends the counting of a name that was deleted, and of all holds of it. Acquires under way go on.
// The lock is held.
func (v *usage) forgetName(key gatehouse.Key) {
	delete(v.names.all, key)
	if !holds(key.Kind) {
		return
	}
	for one, c := range v.holds.all {
		if one.key == key && c.until != pending {
			delete(v.holds.all, one)
		}
	}
}

// holds reports whether names of a kind are held.
func holds(kind gatehouse.Kind) bool { return kind == gatehouse.Semaphore || kind == gatehouse.Lock }

// nameLasts is how long a store keeps a name after a command, about.
func nameLasts(cmd *gatehouse.Command, d *gatehouse.Decision) time.Duration {
	switch {
	case d == nil:
		return nameAtLeast
	case d.ExpiresAfter != 0:
		return d.ExpiresAfter
	case cmd.Op == gatehouse.OpKick:
		return max(cmd.Expires+cmd.Keep, nameAtLeast)
	case cmd.Op == gatehouse.OpSend, cmd.Op == gatehouse.OpCount, cmd.Op == gatehouse.OpWait:
		return max(cmd.Keep, nameAtLeast)
	}
	return max(d.ResetAfter, d.Delay, nameAtLeast)
}
