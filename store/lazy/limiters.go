package lazy

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync"

	"github.com/gatehousehq/gatehouse"
)

// shards is how many locks the names are spread over.
const shards = 64

// A shard is some of the names.
type shard struct {
	mu    sync.RWMutex
	names map[gatehouse.Key]*namedLimiter
}

// errForgotten says that a name was forgotten between being found and being used.
var errForgotten = errors.New("the name was forgotten")

func (s *Store) shardOf(key gatehouse.Key) *shard {
	h := maphash.String(s.seed, key.Name) + uint64(key.Kind)
	return &s.shards[h%shards]
}

// findLimiter is what is known of a name; nil when nothing is.
func (s *Store) findLimiter(key gatehouse.Key) *namedLimiter {
	sh := s.shardOf(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.names[key]
}

// InChunks reports whether a kind can be taken from the store in chunks: the limiters that refill at an
// instant, by which what is left of a chunk is worth nothing.
func InChunks(kind gatehouse.Kind) bool {
	return kind == gatehouse.TokenBucket || kind == gatehouse.FixedWindow
}

// limiterFor is what is known of a name, from now on if nothing is yet; nil when it is left to the store.
func (s *Store) limiterFor(key gatehouse.Key) *namedLimiter {
	if !key.Kind.Limiter() {
		return nil
	}
	if n := s.findLimiter(key); n != nil {
		return n
	}
	rule := s.config.Rule(key)
	if rule.Interval <= 0 || rule.Chunk > 0 && !InChunks(key.Kind) {
		return nil
	}
	// Counted before the lock is taken, so that the bound holds over all shards. The caller that loses
	// the race below subtracts again.
	if s.count.Add(1) > int64(s.config.Names) {
		s.count.Add(-1)
		return nil
	}
	sh := s.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.names[key]
	if n != nil {
		s.count.Add(-1)
		return n
	}
	n = &namedLimiter{store: s, key: key, rule: rule, exchangeLock: make(chan struct{}, 1)}
	n.exchanges = rand.Uint64() >> 1 // so that no number is one from before the name was forgotten
	sh.names[key] = n
	return n
}

// forgetLimiter drops a name that is not used. It is called with the name's locks held.
func (s *Store) forgetLimiter(n *namedLimiter) {
	n.forgotten, n.state, n.chunk, n.refused = true, nil, nil, nil
	sh := s.shardOf(n.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.names, n.key)
	s.count.Add(-1)
}

// allLimiters are the names at present.
func (s *Store) allLimiters() []*namedLimiter {
	var all []*namedLimiter
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for _, n := range sh.names {
			all = append(all, n)
		}
		// A name's own lock is taken before that of its shard, so that the caller must not use the names
		// under this one.
		sh.mu.RUnlock()
	}
	return all
}
