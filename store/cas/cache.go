package cas

import (
	"hash/maphash"
	"sync"

	"github.com/gatehousehq/gatehouse"
)

// parts is how many locks the names are spread over.
const parts = 64

// A cache remembers the last known records, and is where commands for one key meet. Each part of it has two
// generations: what was used since the young one was begun is in it, and when that is full, the old one is
// forgotten. So a name that is used is kept, without a list of who was used last.
type cache struct {
	most  int // names, in all
	once  sync.Once
	seed  maphash.Seed
	parts [parts]part
}

// A part is some of the names under one lock.
type part struct {
	mu         sync.Mutex
	young, old map[gatehouse.Key]*entry
}

func (c *cache) part(key gatehouse.Key) *part {
	c.once.Do(func() { c.seed = maphash.MakeSeed() })
	h := maphash.String(c.seed, key.Name) + uint64(key.Kind)
	return &c.parts[h%parts]
}

// entry returns what is known of a name.
func (c *cache) entry(key gatehouse.Key) *entry {
	p := c.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.young[key]; e != nil {
		return e
	}
	e := p.old[key]
	if e == nil {
		e = &entry{key: key}
	}
	if p.young == nil || len(p.young) >= max(1, c.most/parts) {
		p.old, p.young = p.young, make(map[gatehouse.Key]*entry)
	}
	p.young[key] = e
	delete(p.old, key)
	return e
}

// doubt has a name read anew before it is decided on; the zero key means all names.
func (c *cache) doubt(key gatehouse.Key) {
	if key != (gatehouse.Key{}) {
		p := c.part(key)
		p.mu.Lock()
		e := p.young[key]
		if e == nil {
			e = p.old[key]
		}
		p.mu.Unlock()
		if e != nil {
			e.doubtful.Store(true)
		}
		return
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, e := range p.young {
			e.doubtful.Store(true)
		}
		for _, e := range p.old {
			e.doubtful.Store(true)
		}
		p.mu.Unlock()
	}
}

func (c *cache) len() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += len(p.young) + len(p.old)
		p.mu.Unlock()
	}
	return n
}
