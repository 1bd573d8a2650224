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

// A lentChunk is what one holder has taken, at most.
type lentChunk struct {
	holder uint64 // 0 when no holder can give it back any more
	n      int64
	until  int64 // when its holder may use it no more
}

// maxChunks is the most chunks that are kept apart. Of more, the oldest are put together and cannot be given
// back.
const maxChunks = 1000

// A chunkMeter is a meter that chunks may be taken from.
type chunkMeter interface {
	limitMeter

	// countAtLeast has the meter count no less than n at an instant.
	countAtLeast(now, n int64)
}

func (b *tokenBucketMeter) countAtLeast(now, n int64) {
	b.rollTo(now)
	b.taken = max(b.taken, n)
}

func (w *fixedWindowMeter) countAtLeast(now, n int64) {
	w.rollTo(now)
	w.count = max(w.count, n)
}

// limiterBase is the limiter itself, for callers that have a state of unknown type.
func (l *limiterCore) limiterBase() *limiterCore { return l }

// limiterOf is what all limiters share of a state that is one, nil of any other.
func limiterOf(s State) *limiterCore {
	if l, ok := s.(interface{ limiterBase() *limiterCore }); ok {
		return l.limiterBase()
	}
	return nil
}

// Absent reports whether there is no controller: none at all, or a deleted one of which chunks are left.
func Absent(s State) bool {
	if s == nil {
		return true
	}
	if r, ok := s.(*GrantRecord); ok {
		return r.last == nil
	}
	l := limiterOf(s)
	return l != nil && l.created == 0
}

// stateAfterDelete is what is left of a controller when it is deleted: its chunks; nil when there are none.
func stateAfterDelete(now time.Time, kind gatehouse.Kind, s State) State {
	l := limiterOf(s)
	if l == nil || l.extra == nil {
		return nil
	}
	chunks := l.extra.liveChunks(now.UnixNano())
	if len(chunks) == 0 {
		return nil
	}
	// A new state without a first use is treated as absent, but keeps the chunks: tokens that servers still
	// hold count in the limiter that follows.
	left := New(kind)
	limiterOf(left).extra = &limiterExtra{chunks: chunks}
	return left
}

// liveChunks are the chunks that can still be used at an instant.
func (m *limiterExtra) liveChunks(now int64) []lentChunk {
	return slices.DeleteFunc(slices.Clone(m.chunks), func(c lentChunk) bool { return c.until <= now })
}

// sumOfChunks is how much is out in chunks at an instant.
func (m *limiterExtra) sumOfChunks(now int64) (n int64) {
	if m == nil {
		return 0
	}
	for _, c := range m.chunks {
		if c.until > now {
			n = addSaturating(n, c.n)
		}
	}
	return n
}

// countChunks has all meters count what is out in chunks, after they may have forgotten it.
func (l *limiterStep) countChunks() {
	if n := l.extra.sumOfChunks(l.now); n > 0 && l.created != 0 {
		for _, m := range l.activeMeters() {
			m.(chunkMeter).countAtLeast(l.now, n)
		}
	}
}

// takeReservation takes a reservation in a meter, which counts the chunks of the window in which that is.
// m may be nil.
func (m *limiterExtra) takeReservation(meter limitMeter, now int64, p *reservation) {
	// The window of the reservation lies ahead, where the chunks have not been counted yet.
	if n := m.sumOfChunks(p.at); n > 0 {
		meter.(chunkMeter).countAtLeast(p.at, n)
	}
	meter.takeTokens(now, p.at, p.n)
}

// dropEndedChunks forgets the chunks that have ended.
func (l *limiterStep) dropEndedChunks() {
	if l.extra.chunks == nil {
		return
	}
	l.extra.chunks = l.extra.liveChunks(l.now)
	if len(l.extra.chunks) == 0 {
		l.extra.chunks = nil
		l.dropUnusedExtra(l.now)
		return
	}
	// The window may have changed since the last look, and the live chunks count in the new one as well.
	l.countChunks()
}

// findChunk is where a holder's chunk is in the list, -1 when it has none.
func (l *limiterCore) findChunk(holder uint64) int {
	if l.extra == nil {
		return -1
	}
	return slices.IndexFunc(l.extra.chunks, func(c lentChunk) bool { return c.holder == holder })
}

// leftInChunk is how much a holder has of its chunk, by what it says and by what is known.
func (l *limiterCore) leftInChunk(c *Chunk) int64 {
	if i := l.findChunk(c.Holder); i >= 0 {
		return min(c.Left, l.extra.chunks[i].n)
	}
	return 0
}

// lendChunk notes that a holder has taken a chunk, besides what it had left of the one before. d is the
// grant.
func (l *limiterStep) lendChunk() {
	c := lentChunk{l.turn.Chunk.Holder, l.turn.Cost, l.d.At.Add(l.d.ResetAfter).UnixNano()}
	// The holder reports here how many commands it has let through since the last report.
	l.passed += l.turn.Chunk.Commands
	l.ensureExtra()
	if i := l.findChunk(c.holder); i >= 0 {
		// Until the holder hears of this, it goes by what it had.
		if left := l.leftInChunk(l.turn.Chunk); left > 0 {
			c.n, c.until = c.n+left, max(c.until, l.extra.chunks[i].until)
		}
		l.extra.chunks = slices.Delete(l.extra.chunks, i, i+1)
	}
	// The list is full: the two oldest become one, which no holder can return any more. It still counts
	// until the later end of both.
	if len(l.extra.chunks) >= maxChunks {
		one, other := &l.extra.chunks[0], l.extra.chunks[1]
		*one = lentChunk{0, addSaturating(one.n, other.n), max(one.until, other.until)}
		l.extra.chunks = slices.Delete(l.extra.chunks, 1, 2)
	}
	l.extra.chunks = append(l.extra.chunks, c)
	l.d.Value = c.n
}

// returnChunk takes back what a holder did not let through of its chunk. What it did counts as before: in the
// limiter that follows a deleted one too.
func (l *limiterStep) returnChunk() {
	i := l.findChunk(l.turn.Chunk.Holder)
	if i < 0 || l.extra.chunks[i].until <= l.now {
		return // it counts no more
	}
	c := &l.extra.chunks[i]
	n := min(l.turn.Cost, c.n)
	// The limiter was deleted and not used since. There is no meter to refund, but what was used still
	// counts until the chunk ends.
	if l.created == 0 {
		c.holder, c.n = 0, c.n-n
		return
	}
	// The chunk goes before the refund, which would count it again otherwise.
	l.extra.chunks = slices.Delete(l.extra.chunks, i, i+1)
	l.passed += l.turn.Chunk.Commands
	l.refundTokens(n)
	l.dropUnusedExtra(l.now)
}

// codeChunks codes the chunks, which version 1 did not have.
func (l *limiterCore) codeChunks(c *stateCodec, first limitMeter) {
	n := 0
	if l.extra != nil {
		n = len(l.extra.chunks)
	}
	n = c.codeLength(n, 10)
	if n == 0 {
		return
	}
	// No other meter lends chunks, so that the record is damaged.
	if _, ok := first.(chunkMeter); !ok {
		c.failDecoding("chunks of a limiter that has none")
		return
	}
	// A limiter may have chunks and nothing else in its extra, of which the bool in front says nothing.
	l.ensureExtra()
	if c.reading {
		l.extra.chunks = make([]lentChunk, n)
	}
	for i := range l.extra.chunks {
		one := &l.extra.chunks[i]
		c.codeUint64(&one.holder)
		c.codeUpTo(&one.n, noTime)
		c.codeInstant(&one.until)
	}
}
