package http

import "sync"

// answerWriters write answers to parked connections, with up to maxBusy goroutines, and none while there is
// nothing to write. They keep slow sockets away from the gate, and let every core take part when many waiters
// are woken at once.
type answerWriters struct {
	mu      sync.Mutex
	queue   []*waiter
	busy    int
	maxBusy int
}

// enqueueWaiter has a waiter answered soon. It does not block.
func (ws *answerWriters) enqueueWaiter(w *waiter) {
	ws.mu.Lock()
	ws.queue = append(ws.queue, w)
	start := ws.busy < ws.maxBusy
	// Outside the lock, which onDecision's callers must not hold longer than needed.
	if start {
		ws.busy++
	}
	ws.mu.Unlock()
	if start {
		go ws.writeQueued() // ends when the queue is empty
	}
}

// writeQueued answers waiters until the queue is empty.
func (ws *answerWriters) writeQueued() {
	for {
		// Leaving is decided under the lock, with busy: a waiter that is enqueued just now starts a new
		// goroutine. The array is dropped too, as it may have grown large.
		ws.mu.Lock()
		if len(ws.queue) == 0 {
			ws.busy--
			ws.queue = nil
			ws.mu.Unlock()
			return
		}
		w := ws.queue[0]
		ws.queue[0] = nil
		ws.queue = ws.queue[1:]
		ws.mu.Unlock()
		w.writeAnswer()
	}
}
