package http

import (
	"sync/atomic"
	"time"
)

// patience is how long a request that may wait in line keeps its goroutine: most are decided by then, also by
// a store that is asked over the network, and parking costs more than that takes.
const patience = 20 * time.Millisecond

// fewPatient is how many requests keep their goroutine so at once if the last one that did was not decided
// in time. With its stack and buffers one takes ten times what a parked connection does, and where thousands
// come to wait for long, most of the server's memory would go to that.
const fewPatient = 32

// A patienceLimit bounds how many requests keep their goroutine for a moment.
type patienceLimit struct {
	count  atomic.Int64 // that do
	prompt atomic.Bool  // the last one was decided in time
}

// begin reports whether one more request may keep its goroutine. end is due for it in any case.
func (l *patienceLimit) begin() bool { return l.count.Add(1) <= fewPatient || l.prompt.Load() }

func (l *patienceLimit) end() { l.count.Add(-1) }

// note notes whether a request was decided in time. Many note the same, so it is written if it is another.
func (l *patienceLimit) note(inTime bool) {
	if l.prompt.Load() != inTime {
		l.prompt.Store(inTime)
	}
}

// leaveHandler notes that the handler waits no longer, unless the request was decided meanwhile. The channel
// goes: one that waits for hours needs none.
func (w *waiter) leaveHandler() (decided bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.early = nil
	return w.hasDecision
}
