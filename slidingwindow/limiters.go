package slidingwindow

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Limiters holds a limiter for every key that is in use. A limiter that has not been called for two windows,
// by the wall clock, is forgotten: a new one in its place decides the same. At most a million are held; while
// they are in use, events of other keys may not happen. It is safe for use by many goroutines. Make one with
// NewLimiters.
type Limiters struct {
	size      time.Duration
	newWindow func(key string) (Window, StopFunc)
	clock     anchoredClock
	seed      maphash.Seed
	shards    [shardCount]limiterShard
}

// shardCount is the number of locks the keys are spread over.
const shardCount = 64

// keysPerShard is how many keys a shard holds at most. All together hold a million, which take half a
// gigabyte with shared windows.
const keysPerShard = 1 << 20 / shardCount

// forgetsPerCall is how many limiters a call forgets at most: more than it can add, so that idle ones are
// removed in time, and few, so that no call takes long after a pause.
const forgetsPerCall = 2

// A limiterShard is some of the limiters, in the order in which they were called.
type limiterShard struct {
	mu       sync.Mutex
	limit    int64
	limiters map[string]*keyedLimiter
	list     keyedLimiter // of the list: next is the one called longest ago, last the one called just now
}

// A keyedLimiter is a limiter in a shard.
type keyedLimiter struct {
	*Limiter
	stop       StopFunc
	key        string
	calledAt   int64 // when, by the wall clock
	prev, next *keyedLimiter
}

// NewLimiters returns limiters that let limit events pass in size for every key. newWindow makes the
// window of a key when it is first used; it must not use the Limiters. NewLimiters panics for a size of
// 0 or less.
func NewLimiters(
	size time.Duration, limit int64, newWindow func(key string) (Window, StopFunc),
) *Limiters {
	l := &Limiters{size: size, newWindow: newWindow, seed: maphash.MakeSeed()}
	checkSize(size)
	for i := range l.shards {
		p := &l.shards[i]
		p.limit, p.limiters = limit, map[string]*keyedLimiter{}
		p.list.prev, p.list.next = &p.list, &p.list
	}
	return l
}

// Allow is AllowN for one event now.
func (l *Limiters) Allow(key string) bool {
	now := l.clock.now()
	k := l.limiterOf(key, now)
	return k != nil && k.allowAt(now, 1)
}

// AllowN reports whether n events of key may happen at now, as Limiter.AllowN does.
func (l *Limiters) AllowN(key string, now time.Time, n int64) bool {
	k := l.limiterOf(key, l.clock.now())
	return k != nil && k.AllowN(now, n)
}

// Take is AllowN with the numbers behind its answer. They are 0 for a key beyond the maximum.
func (l *Limiters) Take(key string, now time.Time, n int64) Result {
	if k := l.limiterOf(key, l.clock.now()); k != nil {
		return k.Take(now, n)
	}
	return Result{}
}

// SetLimit sets how many events of each key pass in one window, from the next decision on.
func (l *Limiters) SetLimit(newLimit int64) {
	for i := range l.shards {
		p := &l.shards[i]
		p.mu.Lock()
		p.limit = newLimit
		for _, k := range p.limiters {
			k.SetLimit(newLimit)
		}
		p.mu.Unlock()
	}
}

// Len returns how many keys are in use.
func (l *Limiters) Len() (n int) {
	for i := range l.shards {
		p := &l.shards[i]
		p.mu.Lock()
		n += len(p.limiters)
		p.mu.Unlock()
	}
	return n
}

// Stop calls the stop functions of all windows, and forgets them. Keys used after that start again. Windows
// with one synchronizer push their counts together.
func (l *Limiters) Stop() {
	var limiters [shardCount]map[string]*keyedLimiter
	shared := map[*syncGroup][]*SyncWindow{}
	for i := range l.shards {
		limiters[i] = l.shards[i].takeAll()
		for _, k := range limiters[i] {
			if k.shared != nil && k.shared.group != nil {
				shared[k.shared.group] = append(shared[k.shared.group], k.shared)
			}
		}
	}
	// One stop for all windows of a group: each would wait for the store on its own otherwise. Their own stop
	// functions then find them stopped.
	for s, windows := range shared {
		if len(windows) > 1 {
			s.stopWindows(windows)
		}
	}
	var stops sync.WaitGroup
	for _, some := range &limiters {
		stops.Go(func() {
			for _, k := range some {
				k.stop()
			}
		})
	}
	stops.Wait()
}

// takeAll removes all limiters and returns them.
func (p *limiterShard) takeAll() map[string]*keyedLimiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiters := p.limiters
	p.limiters = map[string]*keyedLimiter{}
	p.list.prev, p.list.next = &p.list, &p.list
	return limiters
}

func (l *Limiters) shardOf(key string) *limiterShard {
	return &l.shards[maphash.String(l.seed, key)%shardCount]
}

// limiterOf returns the limiter of key, made now if there is none, and forgets some that are idle. It returns
// nil if there is no room for one more.
func (l *Limiters) limiterOf(key string, now int64) *Limiter {
	p := l.shardOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.limiters[key]
	// Off the list first, so that it is not among the idle ones to be forgotten.
	if k != nil {
		k.prev.next, k.next.prev = k.next, k.prev
	}
	for range forgetsPerCall {
		if !p.forgetOne(now, l.size) {
			break
		}
	}
	if k == nil {
		// After the idle ones were removed, so that a full shard recovers by itself.
		if len(p.limiters) >= keysPerShard {
			return nil
		}
		// The key may be a part of a large string, which would stay in memory with it.
		key = strings.Clone(key)
		k = &keyedLimiter{key: key}
		k.Limiter, k.stop = NewLimiter(l.size, p.limit, func() (Window, StopFunc) { return l.newWindow(key) })
		p.limiters[key] = k
	}
	k.calledAt = now
	// To the end of the list, which is in the order of calls.
	k.prev, k.next = p.list.prev, &p.list
	k.prev.next, p.list.prev = k, k
	return k.Limiter
}

// forgetOne forgets the limiter called longest ago, if that is long enough ago.
func (p *limiterShard) forgetOne(now int64, size time.Duration) bool {
	// The list is in the order of calls, so if the first is not idle, none is.
	k := p.list.next
	if idle := now - k.calledAt; k == &p.list || idle/2 <= int64(size) {
		return false
	}
	k.prev.next, k.next.prev = k.next, k.prev
	delete(p.limiters, k.key)
	if k.foreign != nil || k.shared != nil || k.strict != nil {
		go k.stop() // ends when the store has confirmed the rest, or takes too long
	}
	return true
}
