package cas

import (
	"hash/maphash"
	"sync"

	"github.com/gatehousehq/gatehouse"
)

// cacheParts is how many locks the names are spread over.
const cacheParts = 64

// A cache remembers the last known records, and is where commands for one key meet. Each part of it has two
// generations: what was used since the young one was begun is in it, and when that is full, the old one is
// forgotten. So a name that is used is kept, without a list of who was used last.
type cache struct {
	most  int // names, in all
	once  sync.Once
	seed  maphash.Seed
	parts [cacheParts]cachePart
}

// A cachePart is some of the names under one lock.
type cachePart struct {
	mu         sync.Mutex
	young, old map[gatehouse.Key]*entry
}

func (c *cache) partOf(key gatehouse.Key) *cachePart {
	c.once.Do(func() { c.seed = maphash.MakeSeed() })
	h := maphash.String(c.seed, key.Name) + uint64(key.Kind)
	return &c.parts[h%cacheParts]
}

// entryFor returns what is known of a name.
func (c *cache) entryFor(key gatehouse.Key) *entry {
	p := c.partOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.young[key]; e != nil {
		return e
	}
	e := p.old[key]
	if e == nil {
		e = newEntry(key)
	}
	// The young generation is full: it becomes the old one, and what was not used since the last such turn
	// is forgotten.
	if p.young == nil || len(p.young) >= max(1, c.most/cacheParts) {
		p.old, p.young = p.young, make(map[gatehouse.Key]*entry)
	}
	p.young[key] = e
	delete(p.old, key)
	return e
}

// markStale has a name read again before it is decided on; the zero key means all names.
func (c *cache) markStale(key gatehouse.Key) {
	if key != (gatehouse.Key{}) {
		p := c.partOf(key)
		p.mu.Lock()
		e := p.young[key]
		if e == nil {
			// It is not moved to the young generation: a wake is no use of the name.
			e = p.old[key]
		}
		p.mu.Unlock()
		if e != nil {
			e.stale.Store(true)
		}
		return
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, e := range p.young {
			e.stale.Store(true)
		}
		for _, e := range p.old {
			e.stale.Store(true)
		}
		p.mu.Unlock()
	}
}

func (c *cache) countNames() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += len(p.young) + len(p.old)
		p.mu.Unlock()
	}
	return n
}
