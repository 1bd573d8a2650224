package access

import (
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
	// A quota may have become smaller. What is beyond it stays, and nothing is added.
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
	// A copy has the rights and the policy, so that Current finds it out of date with the file.
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
	// A used-up rate is worth keeping: a user who was forgotten would start with a full one.
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
	_, known := v.names.all[key]
	if !known && !v.names.hasRoom(u.most.Names, now) {
		return u.refuseMore("names", u.most.Names, now)
	}
	// The decision tells later how long it lasts. Until then it must count, as others may ask meanwhile.
	v.names.extend(key, now+int64(nameAtLeast))
	return nil
}

// nameAtLeast is how long a name counts that a command has asked about: as long as it takes to be answered.
const nameAtLeast = 10 * time.Second

// askHold counts a hold that is asked for, unless there are too many.
func (u *User) askHold(one holdKey, now int64) error {
	v := u.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holds.ask(one, u.most.Holders, now) {
		return nil
	}
	return u.refuseMore("holders", u.most.Holders, now)
}

// askRecord counts the record of a grant that is asked for as a name, unless there are too many.
func (u *User) askRecord(id string, now int64) error {
	v := u.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.names.ask(recordKey(id), u.most.Names, now) {
		return nil
	}
	return u.refuseMore("names", u.most.Names, now)
}

// refuseMore is overQuota for what the user has begun, which is looked up then: some of it may have ended.
// The lock of the usage is held.
func (u *User) refuseMore(what string, most, now int64) error {
	u.users.startRecount(u.usage, now)
	return u.overQuota(what, most)
}

// recordKey is what the record of a grant is counted by.
func recordKey(id string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Grant, Name: id} }

// mayBegin reports whether an operation may begin a name: what only gives back, ends, opens or reorders does
// not.
func mayBegin(kind gatehouse.Kind, op gatehouse.Op) bool {
	switch op {
	case gatehouse.OpRelease, gatehouse.OpRenew, gatehouse.OpCancel, gatehouse.OpRefund, gatehouse.OpDelete,
		gatehouse.OpEvict, gatehouse.OpBump, gatehouse.OpOpen:
		return false
	}
	// Questions begin nothing, but a wait for an event keeps its name while it lasts.
	return kind.Level(op) > gatehouse.LevelRead || op.Waits()
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
	_, known := v.names.all[key]
	if known || granted && u.most.Names > 0 && mayBegin(key.Kind, cmd.Op) {
		v.names.extend(key, endOf(now, nameLasts(cmd, d)))
	}
	// A hold that an acquire asked for and was not granted is dropped by endAsking.
	if u.most.Holders == 0 || !holds(key.Kind) || !granted {
		return
	}
	switch one := (holdKey{key, cmd.Holder}); cmd.Op {
	case gatehouse.OpAcquire:
		v.holds.grant(one, endOf(now, d.ExpiresAfter), d.Fence)
	// It may have been acquired at another server, where this one did not count it.
	case gatehouse.OpRenew:
		v.holds.renew(one, endOf(now, d.ExpiresAfter), d.Fence)
	case gatehouse.OpRelease:
		v.holds.drop(one)
	}
}

// settleRecord notes how long the record of a grant counts after a command on it that was granted.
func (u *User) settleRecord(cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision) {
	if u.most.Names == 0 || cmd.ID == "" {
		return
	}
	v, now := u.usage, u.now()
	v.mu.Lock()
	defer v.mu.Unlock()
	key, until := recordKey(cmd.ID), endOf(now, d.ExpiresAfter+gatehouse.RememberedFor(d.ExpiresAfter))
	switch cmd.Op {
	case gatehouse.OpAcquire:
		// A repeat is answered with what is left of the grant, and moves nothing.
		if c := v.names.all[key]; c.fence == d.Fence && c.until != pending {
			until = max(until, c.until)
		}
		v.names.grant(key, until, d.Fence)
	case gatehouse.OpRenew:
		v.names.renew(key, until, d.Fence)
	case gatehouse.OpRelease:
		v.names.shorten(key, endOf(now, gatehouse.MaxRemembered))
	}
}

// forgetName ends the counting of a name that was deleted, and of all holds of it. Acquires under way go on.
// The lock is held.
func (v *usage) forgetName(key gatehouse.Key) {
	v.names.drop(key)
	if !holds(key.Kind) {
		return
	}
	for one := range v.holds.all {
		// All holders are gone with the name, whichever request deleted it.
		if one.key == key {
			v.holds.drop(one)
		}
	}
}

// holds reports whether names of a kind are held.
func holds(kind gatehouse.Kind) bool { return kind == gatehouse.Semaphore || kind == gatehouse.Lock }

// nameLasts is how long a store keeps a name after a command, about.
func nameLasts(cmd *gatehouse.Command, d *gatehouse.Decision) time.Duration {
	switch {
	// Without a decision it may have begun or not: it counts for a moment, as when it was asked for.
	case d == nil:
		return nameAtLeast
	case d.ExpiresAfter != 0:
		return d.ExpiresAfter
	case cmd.Op == gatehouse.OpKick:
		return max(cmd.Expires+cmd.Keep, nameAtLeast)
	// A closed name stays until it is opened.
	case cmd.Op == gatehouse.OpClose:
		return gatehouse.Forever
	case cmd.Op == gatehouse.OpSend, cmd.Op == gatehouse.OpCount, cmd.Op == gatehouse.OpReset,
		cmd.Op == gatehouse.OpWait:
		return max(cmd.Keep, nameAtLeast)
	}
	return max(d.ResetAfter, d.Delay, nameAtLeast)
}
