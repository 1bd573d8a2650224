// Package budget bounds what all listeners of one server have in memory together: the bytes that wait to be
// sent or have been received in part, and the costly answers that are made at the same time.
package budget

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// DefaultBytes is the most that is buffered by default: it leaves a container of 512 MiB most of its memory
// for names and connections.
const DefaultBytes = 128 << 20

// How much one connection may have in memory, of answers and of what has come. Up to Tiny is not counted
// over HTTP, and never refused: the answer to a decision is that, and the number of connections bounds it.
// What is more than Small may have three quarters of a budget, and what is not, seven eighths, so that those
// that leave large answers unread do not keep others from theirs. The rest is for metrics.
const (
	Tiny  = 4 << 10
	Small = 64 << 10
)

// A Budget is shared by all listeners of a server. Its methods may be called from many goroutines.
type Budget struct {
	most    int64
	large   int64 // of that, what may be used for more than Small
	small   int64 // and for others, but metrics
	used    atomic.Int64
	refused atomic.Int64

	// One answer of each sort is made at a time. They are written outside of the turn. Deletions of many
	// names have a turn of their own, so that lists cannot keep people from making room.
	List, Page, Scrape, Deletion Mutex
}

// New returns a budget of that many bytes; 0 means DefaultBytes.
func New(most int64) *Budget {
	most = cmp.Or(most, DefaultBytes)
	return &Budget{
		most: most, large: most - most/4, small: most - most/8,
		List: newMutex(), Page: newMutex(), Scrape: newMutex(), Deletion: newMutex(),
	}
}

// Take takes bytes from the budget for something that is this large, which Release gives back. It reports
// false, and takes nothing, when there are not as many left. What is not more than Tiny is always to be had:
// those who leave much unread must not keep others from asking.
func (b *Budget) Take(bytes int) bool {
	switch {
	case bytes > Small:
		return b.takeBelow(bytes, b.large)
	case bytes > Tiny:
		return b.takeBelow(bytes, b.small)
	}
	// Counted all the same, as it leaves less for others.
	b.used.Add(int64(bytes))
	return true
}

// TakeLast is Take for metrics, which are missed most while the budget is used up.
func (b *Budget) TakeLast(bytes int) bool { return b.takeBelow(bytes, b.most) }

func (b *Budget) takeBelow(bytes int, most int64) bool {
	if b.used.Add(int64(bytes)) <= most {
		return true
	}
	// Added before it is compared, so that two at a time are not both let in for the last bytes.
	b.used.Add(-int64(bytes))
	b.refused.Add(1)
	return false
}

// Move notes that what a connection has, and has already, has changed by a number of bytes and is held now.
// It reports false when the budget is exceeded and that is more than a fair share of it; it is noted all the
// same.
func (b *Budget) Move(change, held int) bool {
	// The bytes are there already, so they are noted even where they are too many.
	used := b.used.Add(int64(change))
	return held <= Tiny || used <= b.large || held <= Small && used <= b.small
}

// Release gives back bytes that were taken.
func (b *Budget) Release(bytes int) { b.used.Add(-int64(bytes)) }

// Refuse counts a client that is cut off or turned away because of Move.
func (b *Budget) Refuse() { b.refused.Add(1) }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Most is how many bytes there are in all.
func (b *Budget) Most() int64 { return b.most }

// Refused is how often there were too few.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// A Mutex is held by one caller at a time. Waiting for it can end with a context, unlike for sync.Mutex.
type Mutex struct{ held chan struct{} }

func newMutex() Mutex { return Mutex{make(chan struct{}, 1)} }

// Begin waits for the turn. It reports false when ctx ends first; otherwise End must be called.
func (t Mutex) Begin(ctx context.Context) bool {
	select {
	case t.held <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// BeginWithin is Begin for a caller that waits no longer than that.
func (t Mutex) BeginWithin(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.Begin(ctx)
}

// End lets the next one have the turn.
func (t Mutex) End() { <-t.held }
