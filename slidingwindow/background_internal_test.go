package slidingwindow

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A countingStore counts how often it is asked.
type countingStore struct{ asked atomic.Int64 }

func (s *countingStore) Add(string, int64, int64) (int64, error) { return s.asked.Add(1), nil }
func (s *countingStore) Get(string, int64) (int64, error)        { return s.asked.Add(1), nil }

// Left says what the courier of this process still has, and nothing if it is at rest.
func Left() string {
	c := &processSyncer
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && c.timer == nil && len(c.queue)+len(c.intervals)+len(c.lateCalls) == 0 {
		return ""
	}
	return fmt.Sprintf("the courier has %d errands, %d rounds, %d late calls, running: %v; want it at rest",
		len(c.queue), len(c.intervals), len(c.lateCalls), c.running)
}

// A timer that fires before its time is not the last.
func TestTimerFiresEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 200 * time.Millisecond
		store, c := new(countingStore), new(backgroundSyncer)
		w, stop := NewSyncWindow("test", NewNonblockingSynchronizer(store, interval))
		w.setLimiter(newWindowGrid(time.Hour), 10)
		w.callers.noteExchange(wallClock(), wallClock())
		c.watchWindow(w)
		c.mu.Lock()
		c.intervals[interval].next = c.intervals[interval].next.Add(10 * time.Millisecond)
		c.mu.Unlock()
		<-time.After(10 * interval)
		synctest.Wait()
		if n := store.asked.Load(); n < 6 {
			t.Errorf("asked %d times in 10 intervals, want more", n)
		}
		c.unwatch(w, true)
		stop()
	})
}
