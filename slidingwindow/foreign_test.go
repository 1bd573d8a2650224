package slidingwindow_test

import (
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// A foreignWindow is a Window of somebody else's.
type foreignWindow struct {
	start time.Time
	count int64
	syncs int
}

func (w *foreignWindow) Start() time.Time           { return w.start }
func (w *foreignWindow) Count() int64               { return w.count }
func (w *foreignWindow) AddCount(n int64)           { w.count += n }
func (w *foreignWindow) Reset(s time.Time, c int64) { w.start, w.count = s, c }
func (w *foreignWindow) Sync(time.Time)             { w.syncs++ }

func TestForeignWindowIsSynced(t *testing.T) {
	w := new(foreignWindow)
	l := newLimiter(t, limits{size: time.Second, limit: 1}, func() (sw.Window, sw.StopFunc) { return w, nil })
	allows(t, l, 0, 1)
	denies(t, l, 0, 1)
	if w.syncs != 2 || w.count != 1 || !w.start.Equal(epoch()) {
		t.Errorf("window = %+v, want 2 syncs, a count of 1 and a start of %v", w, epoch())
	}
}

// A wrapper is a Synchronizer of somebody else's that passes everything on.
type wrapper struct {
	sw.Synchronizer
	syncs int
}

func (w *wrapper) Sync(now time.Time, makeReq sw.MakeFunc, handleResp sw.HandleFunc) {
	w.syncs++
	w.Synchronizer.Sync(now, makeReq, handleResp)
}

// Who wraps a synchronizer gets its answers all the same.
func TestWrappedSynchronizer(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := m.store()
				wrapped := &wrapper{Synchronizer: m.synchronizer(store, 200*time.Millisecond)}
				a := newLimiter(t, tenPerSecond(), func() (sw.Window, sw.StopFunc) {
					return sw.NewSyncWindow("test", wrapped)
				})
				b := m.limiter(t, tenPerSecond(), store)
				allows(t, b, 0, 4)
				synctest.Wait()
				allows(t, a, 0, 3) // its exchange begins
				synctest.Wait()
				allows(t, a, 0.1, 0) // its answer is taken
				denies(t, a, 0.1, 4)
				allows(t, a, 0.1, 3)
				allows(t, a, 0.2, 0)
				synctest.Wait()
				if got := counts.count("test", 0); got != 10 || wrapped.syncs != 5 {
					t.Errorf("count = %d after %d syncs, want 10 after 5", got, wrapped.syncs)
				}
			})
		})
	}
}

// A slowSynchronizer is one of somebody else's that may be called by one goroutine at a time.
type slowSynchronizer struct {
	calls         int
	begun, finish chan struct{}
	handled       sw.HandleFunc
	request       sw.SyncRequest
}

func (s *slowSynchronizer) Start() {}
func (s *slowSynchronizer) Stop()  {}
func (s *slowSynchronizer) Sync(_ time.Time, makeReq sw.MakeFunc, handleResp sw.HandleFunc) {
	s.calls++
	s.request, s.handled = makeReq(), handleResp
	close(s.begun)
	<-s.finish
}

// While somebody else's synchronizer takes its time, other callers do not wait, nor call it.
func TestForeignSynchronizerHoldsNobodyUp(t *testing.T) {
	s := &slowSynchronizer{begun: make(chan struct{}), finish: make(chan struct{})}
	l := newLimiter(t, tenPerSecond(), func() (sw.Window, sw.StopFunc) { return sw.NewSyncWindow("test", s) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.AllowN(at(0), 2)
	}()
	<-s.begun
	allows(t, l, 0.1, 3)
	want := sw.SyncRequest{Key: "test", Start: epoch().UnixNano(), Count: 2, Changes: 2}
	if s.request != want {
		t.Errorf("request = %+v, want %+v", s.request, want)
	}
	s.handled(sw.SyncResponse{OK: true, Start: epoch().UnixNano(), Changes: 2, OtherChanges: 4})
	denies(t, l, 0.1, 2) // 5 here, 4 elsewhere
	s.handled(sw.SyncResponse{OK: true, Start: epoch().UnixNano(), OtherChanges: -9})
	denies(t, l, 0.1, 2)
	allows(t, l, 0.1, 1)
	close(s.finish)
	<-done
	if s.calls != 1 {
		t.Errorf("calls = %d, want 1", s.calls)
	}
}
