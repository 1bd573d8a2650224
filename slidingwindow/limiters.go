package slidingwindow

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Limiters holds a limiter for every key that is in use. One that nobody has called for two windows,
// by the wall clock, is forgotten: a new one in its place decides the same. At most a million are held: while
// they are in use, events of other keys may not happen. It is safe for use by many goroutines. Make one
// with NewLimiters.
type Limiters struct {
	size      time.Duration
	newWindow func(key string) (Window, StopFunc)
	clock     clock
	seed      maphash.Seed
	parts     [parts]part
}

// parts is how many locks the keys are spread over.
const parts = 64

// keysPerPart is how many keys a part holds at most. All together hold a million, which take half a
// gigabyte with shared windows.
const keysPerPart = 1 << 20 / parts

// forgetsPerCall is how many limiters a call forgets at most: more than it can add, so that a call
// takes no longer after a time without any.
const forgetsPerCall = 2

// A part is some of the limiters, in the order in which they were called.
type part struct {
	mu       sync.Mutex
	limit    int64
	limiters map[string]*keyed
	ends     keyed // of the list: next is the one called longest ago, last the one called just now
}

// A keyed is a limiter in a part.
type keyed struct {
	*Limiter
	stop       StopFunc
	key        string
	called     int64 // when, by the wall clock
	last, next *keyed
}

// NewLimiters returns limiters that let limit events pass in size for every key. newWindow makes the
// window of a key when it is first used; it must not use the Limiters. NewLimiters panics for a size of
// 0 or less.
func NewLimiters(
	size time.Duration, limit int64, newWindow func(key string) (Window, StopFunc),
) *Limiters {
	l := &Limiters{size: size, newWindow: newWindow, seed: maphash.MakeSeed()}
	checkSize(size)
	for i := range l.parts {
		p := &l.parts[i]
		p.limit, p.limiters = limit, map[string]*keyed{}
		p.ends.last, p.ends.next = &p.ends, &p.ends
	}
	return l
}

// Allow is AllowN for one event now.
func (l *Limiters) Allow(key string) bool {
	now := l.clock.now()
	k := l.limiter(key, now)
	return k != nil && k.allow(now, 1)
}

// AllowN reports whether n events of key may happen at now, as Limiter.AllowN does.
func (l *Limiters) AllowN(key string, now time.Time, n int64) bool {
	k := l.limiter(key, l.clock.now())
	return k != nil && k.AllowN(now, n)
}

// Take is AllowN with the numbers behind its answer. They are 0 for a key that finds no place.
func (l *Limiters) Take(key string, now time.Time, n int64) Result {
	if k := l.limiter(key, l.clock.now()); k != nil {
		return k.Take(now, n)
	}
	return Result{}
}

// SetLimit sets how many events of each key pass in one window, from the next decision on.
func (l *Limiters) SetLimit(newLimit int64) {
	for i := range l.parts {
		p := &l.parts[i]
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
	for i := range l.parts {
		p := &l.parts[i]
		p.mu.Lock()
		n += len(p.limiters)
		p.mu.Unlock()
	}
	return n
}

// Stop calls the stop functions of all windows, and forgets them. Keys used after that begin anew. What
// windows with one synchronizer have to tell goes together.
func (l *Limiters) Stop() {
	var limiters [parts]map[string]*keyed
	shared := map[*sharing][]*SyncWindow{}
	for i := range l.parts {
		limiters[i] = l.parts[i].empty()
		for _, k := range limiters[i] {
			if k.shared != nil && k.shared.share != nil {
				shared[k.shared.share] = append(shared[k.shared.share], k.shared)
			}
		}
	}
	for s, windows := range shared {
		if len(windows) > 1 {
			s.stop(windows)
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

// empty forgets all limiters and returns them.
func (p *part) empty() map[string]*keyed {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiters := p.limiters
	p.limiters = map[string]*keyed{}
	p.ends.last, p.ends.next = &p.ends, &p.ends
	return limiters
}

func (l *Limiters) part(key string) *part {
	return &l.parts[maphash.String(l.seed, key)%parts]
}

// limiter returns the limiter of key, made now if there is none, and forgets some that are idle. It
// returns nil if there is no place for one more.
func (l *Limiters) limiter(key string, now int64) *Limiter {
	p := l.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.limiters[key]
	if k != nil {
		k.last.next, k.next.last = k.next, k.last
	}
	for range forgetsPerCall {
		if !p.forgetOne(now, l.size) {
			break
		}
	}
	if k == nil {
		if len(p.limiters) >= keysPerPart {
			return nil
		}
		key = strings.Clone(key) // it may be cut out of something large
		k = &keyed{key: key}
		k.Limiter, k.stop = NewLimiter(l.size, p.limit, func() (Window, StopFunc) { return l.newWindow(key) })
		p.limiters[key] = k
	}
	k.called = now
	k.last, k.next = p.ends.last, &p.ends
	k.last.next, p.ends.last = k, k
	return k.Limiter
}

// forgetOne forgets the limiter called longest ago, if that is long enough ago.
func (p *part) forgetOne(now int64, size time.Duration) bool {
	k := p.ends.next
	if idle := now - k.called; k == &p.ends || idle/2 <= int64(size) {
		return false
	}
	k.last.next, k.next.last = k.next, k.last
	delete(p.limiters, k.key)
	if k.foreign != nil || k.shared != nil || k.strict != nil {
		go k.stop() // ends when the store has what it has not been told, or takes too long
	}
	return true
}
