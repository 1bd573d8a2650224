package cas

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A server that dies leaves its heads behind, and those who wait behind them would wait until these end. So a
// server whose requests wait behind another's asks the backend now and then whether that one still listens.

const (
	// absenceInterval is the time between two such questions.
	absenceInterval = 250 * time.Millisecond
	// maxBarring is of how many servers a server asks, and maxBarred at how many names each of them is noted.
	// Those who wait at more names look about once a second anyhow.
	maxBarring = 64
	maxBarred  = 1000
	// absencePause is for how long a server is not asked about again that was found absent and has noted a
	// head since. It lives, and may lose its subscription again and again: its place must not go with each.
	absencePause = 30 * time.Second
)

// An absenceBackend is a Backend that can tell whether a server has gone.
type absenceBackend interface {
	// Absent reports whether a server certainly does not listen, while another one, which asks, does. It
	// returns soon after ctx has ended.
	Absent(ctx context.Context, asking, server uint32) bool
}

// absentServers are the servers that were found not to listen, and those that are asked about.
type absentServers struct {
	delayedRun
	store   *Store
	backend absenceBackend // nil if the backend cannot tell

	barring map[uint32]*barringServer
	since   atomic.Pointer[absences] // nil when there are none
}

// An absences says when servers were found not to listen, by the store's time. Each may have gone a moment
// later than that, but before the store had answered.
type absences map[uint32]int64

// left reports whether a head was written before its server was found not to listen. One that had ended by
// then was written after the store's clock was set back.
func (a absences) left(h *lineHead) bool {
	since, is := a[h.server]
	return is && h.until > since && h.until <= since+int64(headLifetime)
}

// lately reports whether a server was found not to listen so lately that it is not asked about again.
func (a absences) lately(server uint32, now int64) bool {
	since, is := a[server]
	return is && since <= now && now-since < int64(absencePause)
}

// A barringServer keeps requests of this server back.
type barringServer struct {
	until int64 // when its last head ends, as far as is known
	names []gatehouse.Key
}

// known are the servers that do not listen.
func (a *absentServers) known() absences {
	if all := a.since.Load(); all != nil {
		return *all
	}
	return nil
}

// noteBarred notes which server keeps requests back that were decided on.
func (a *absentServers) noteBarred(key gatehouse.Key, u *recordUpdate) {
	barred := func(turn servedTurn) bool { return turn.blockedUntil > 0 }
	if a.backend == nil || !slices.ContainsFunc(u.served, barred) {
		return
	}
	// The eldest alone: when that has gone, the next one is.
	var eldest *lineHead
	for i := range u.next.heads {
		h := &u.next.heads[i]
		if h.server == a.store.config.Server || h.nonBlocking || a.known().left(h) {
			continue
		}
		if eldest == nil || h.cameBefore(eldest.since, eldest.server) {
			eldest = h
		}
	}
	if eldest == nil || a.known().lately(eldest.server, u.now) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.barring[eldest.server]
	if one == nil && len(a.barring) < maxBarring {
		one = new(barringServer)
		a.barring[eldest.server] = one
	}
	if one == nil {
		return
	}
	one.until = max(one.until, eldest.until)
	if len(one.names) < maxBarred && !slices.Contains(one.names, key) {
		one.names = append(one.names, key)
	}
	a.schedule(absenceInterval, a.lookAll)
}

// lookAll asks about all servers that keep requests of this one back, and has those served that waited for
// one that has gone.
func (a *absentServers) lookAll() {
	s := a.store
	now, _ := s.clock.storeTime()
	// For all of them together: Close waits for it, also while the store does not answer.
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	for _, server := range a.listBarring(now) {
		// Without the lock, as this asks the store.
		if a.backend.Absent(ctx, s.config.Server, server) {
			a.noteAbsent(server, now)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = nil
	if len(a.barring) > 0 {
		a.schedule(absenceInterval, a.lookAll)
	}
}

// listBarring forgets the servers whose heads have ended, and returns the others.
func (a *absentServers) listBarring(now int64) (servers []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for server, one := range a.barring {
		if one.until <= now {
			delete(a.barring, server)
			continue
		}
		servers = append(servers, server)
	}
	return servers
}

// noteAbsent notes when a server was found not to listen, and wakes those who waited behind its requests.
func (a *absentServers) noteAbsent(server uint32, now int64) {
	// A new map each time: decisions read the present one without a lock.
	all := absences{server: now}
	known := a.known()
	for other, since := range known {
		if other != server && known.lately(other, now) && len(all) < maxBarring {
			all[other] = since
		}
	}
	a.since.Store(&all)
	a.mu.Lock()
	one := a.barring[server]
	delete(a.barring, server)
	a.mu.Unlock()
	for _, key := range one.names {
		a.store.watches.wakeWatchers(key)
	}
}
