package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what a limiter knows of chunks: what servers have taken from it to let it through by
// themselves. The limiter does not know how much of a chunk was let through until its holder says so. So all
// of it counts as taken: after a reset, after a refund, in the limiter that follows a deleted one, and in
// every window that begins before the chunk ends.

// A chunk is what one holder has taken, at most.
type chunk struct {
	holder uint64 // 0 when nobody can give it back any more
	n      int64
	until  int64 // when its holder may use it no more
}

// maxChunks is the most chunks that are kept apart. Of more, the oldest are put together and cannot be given
// back.
const maxChunks = 1000

// A lender is a meter that chunks may be taken from.
type lender interface {
	meter

	// atLeast has the meter count no less than n at an instant.
	atLeast(now, n int64)
}

func (b *bucket) atLeast(now, n int64) {
	b.roll(now)
	b.taken = max(b.taken, n)
}

func (w *fixedWindow) atLeast(now, n int64) {
	w.roll(now)
	w.count = max(w.count, n)
}

// base is the limiter itself, for those who have a state of unknown type.
func (l *limiter) base() *limiter { return l }

// Absent reports whether there is no controller: none at all, or a deleted one of which chunks are left.
func Absent(s State) bool {
	if s == nil {
		return true
	}
	l, ok := s.(interface{ base() *limiter })
	return ok && l.base().created == 0
}

// remains is what is left of a controller when it is deleted: its chunks; nil when there are none.
func remains(now time.Time, kind gatehouse.Kind, s State) State {
	l, ok := s.(interface{ base() *limiter })
	if !ok || l.base().more == nil {
		return nil
	}
	chunks := l.base().more.chunksAt(now.UnixNano())
	if len(chunks) == 0 {
		return nil
	}
	left := New(kind)
	left.(interface{ base() *limiter }).base().more = &more{chunks: chunks}
	return left
}

// chunksAt are the chunks that can still be used at an instant.
func (m *more) chunksAt(now int64) []chunk {
	return slices.DeleteFunc(slices.Clone(m.chunks), func(c chunk) bool { return c.until <= now })
}

// chunked is how much is out in chunks at an instant.
func (m *more) chunked(now int64) (n int64) {
	for _, c := range m.chunks {
		if c.until > now {
			n = plus(n, c.n)
		}
	}
	return n
}

// countChunks has all meters count what is out in chunks, after they may have forgotten it.
func (l *limiter) countChunks(first meter, now int64) {
	if l.more == nil || l.created == 0 {
		return
	}
	if n := l.more.chunked(now); n > 0 {
		for _, m := range l.meters(first) {
			m.(lender).atLeast(now, n)
		}
	}
}

// takePromise takes what was promised in a meter, which counts the chunks of the window in which that is.
func (m *more) takePromise(meter meter, now int64, p *promise) {
	if n := m.chunked(p.at); n > 0 {
		meter.(lender).atLeast(p.at, n)
	}
	meter.take(now, p.at, p.n)
}

// keepChunks forgets the chunks that have ended.
func (l *limiter) keepChunks(first meter, now int64) {
	if l.more.chunks == nil {
		return
	}
	l.more.chunks = l.more.chunksAt(now)
	if len(l.more.chunks) == 0 {
		l.more.chunks = nil
		l.settlePromises(now)
		return
	}
	l.countChunks(first, now)
}

// chunk is where a holder's chunk is in the list, -1 when it has none.
func (l *limiter) chunk(holder uint64) int {
	if l.more == nil {
		return -1
	}
	return slices.IndexFunc(l.more.chunks, func(c chunk) bool { return c.holder == holder })
}

// left is how much a holder has of its chunk, by what it says and by what is known.
func (l *limiter) left(c *gatehouse.Chunk) int64 {
	if i := l.chunk(c.Holder); i >= 0 {
		return min(c.Left, l.more.chunks[i].n)
	}
	return 0
}

// lend notes that a holder has taken a chunk, besides what it had left of the one before. d is the grant.
func (l *limiter) lend(cmd *gatehouse.Command, d *gatehouse.Decision) {
	c := chunk{cmd.Chunk.Holder, cmd.Cost, d.At.Add(d.ResetAfter).UnixNano()}
	l.passed += cmd.Chunk.Commands
	if l.more == nil {
		l.more = new(more)
	}
	if i := l.chunk(c.holder); i >= 0 {
		// Until the holder hears of this, it goes by what it had.
		if left := l.left(cmd.Chunk); left > 0 {
			c.n, c.until = c.n+left, max(c.until, l.more.chunks[i].until)
		}
		l.more.chunks = slices.Delete(l.more.chunks, i, i+1)
	}
	if len(l.more.chunks) >= maxChunks {
		one, other := &l.more.chunks[0], l.more.chunks[1]
		*one = chunk{0, plus(one.n, other.n), max(one.until, other.until)}
		l.more.chunks = slices.Delete(l.more.chunks, 1, 2)
	}
	l.more.chunks = append(l.more.chunks, c)
	d.Value = c.n
}

// endChunk takes back what a holder did not let through of its chunk. What it did counts as before: in the
// limiter that follows a deleted one too.
func (l *limiter) endChunk(first meter, now int64, cmd *gatehouse.Command) {
	i := l.chunk(cmd.Chunk.Holder)
	if i < 0 || l.more.chunks[i].until <= now {
		return // it counts no more
	}
	c := &l.more.chunks[i]
	n := min(cmd.Cost, c.n)
	if l.created == 0 {
		c.holder, c.n = 0, c.n-n
		return
	}
	l.more.chunks = slices.Delete(l.more.chunks, i, i+1)
	l.passed += cmd.Chunk.Commands
	l.refund(first, now, n)
	l.settlePromises(now)
}

// codeChunks codes the chunks, of which the first form knew nothing.
func (l *limiter) codeChunks(c *codec, first meter) {
	n := 0
	if l.more != nil {
		n = len(l.more.chunks)
	}
	n = c.items(n, 10)
	if n == 0 {
		return
	}
	if _, ok := first.(lender); !ok {
		c.fail("chunks of a limiter that has none")
		return
	}
	if l.more == nil {
		l.more = new(more)
	}
	if c.reading {
		l.more.chunks = make([]chunk, n)
	}
	for i := range l.more.chunks {
		one := &l.more.chunks[i]
		c.uint64(&one.holder)
		c.upTo(&one.n, noTime)
		c.instant(&one.until)
	}
}
