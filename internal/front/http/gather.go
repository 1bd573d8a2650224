package http

import (
	"runtime"
	"sync/atomic"
)

// A gathering delays writes a little, so that answers that are made together are written together, as Redis
// does. The write that finds a client asleep wakes it, which costs more than the rest of a request. A client
// of many connections, such as a proxy, is woken once then, and finds its other answers there.
type gathering struct {
	processors uint64        // on which Go runs goroutines
	writes     atomic.Uint64 // that are about to begin, or have begun
	until      atomic.Uint64 // the write before which others are expected to be ready
}

// lookEach is after how many writes it is tried again whether others are ready. Where none is, to yield gains
// nothing, and wakes a processor that has nothing to do.
const lookEach = 64

// awaitOthers is called before a write. It returns when the goroutines that are ready now wait for something,
// or have come to a write, too.
func (g *gathering) awaitOthers() {
	n := g.writes.Add(1)
	if n%lookEach != 0 && n >= g.until.Load() {
		return
	}
	runtime.Gosched()
	// Other processors may have come to one write each. More have been let go first by this one.
	if g.writes.Load()-n >= g.processors {
		g.until.Store(n + lookEach)
	}
}
