package disk

import (
	"sync/atomic"
	"time"
)

// Statistics count what a store wrote since it was opened.
type Statistics struct {
	// Commits are the transactions, each of which the disk had to confirm, and Records what was written by
	// them, those about limiters included.
	Commits, Records uint64

	// Flush is how long the last writing down of limiters took; 0 when there was none.
	Flush time.Duration

	// Full says that the disk is, so that what needs room is refused.
	Full bool
}

type writeCounters struct {
	commits, records atomic.Uint64
	flush            atomic.Int64 // ns
}

// Statistics returns the counts.
func (s *Store) Statistics() Statistics {
	trouble := s.trouble.Load()
	return Statistics{
		Commits: s.counters.commits.Load(), Records: s.counters.records.Load(),
		Flush: time.Duration(s.counters.flush.Load()), Full: trouble != nil && trouble.full,
	}
}

// countCommit notes one transaction.
func (c *writeCounters) countCommit(records int) {
	c.commits.Add(1)
	c.records.Add(uint64(records)) // from 0
}

// setFlushTime notes that limiters were written down.
func (c *writeCounters) setFlushTime(took time.Duration) { c.flush.Store(int64(took)) }
