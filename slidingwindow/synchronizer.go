package slidingwindow

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A Synchronizer exchanges the counts of SyncWindows with a store.
type Synchronizer interface {
	// Start is called once for every window that uses it.
	Start()

	// Stop ends the exchange, and waits for what is under way.
	Stop()

	// Sync exchanges counts if that is due at now: it may call the first function to get the request, and the
	// second one with the response, during this call or a later one. A SyncWindow makes one such call at a
	// time, and none under the limiter's lock.
	Sync(now time.Time, makeReq MakeFunc, handleResp HandleFunc)
}

// A SyncRequest is what a window knows: all events it has counted or learned of, and how many of them the
// store has not confirmed yet.
type SyncRequest struct {
	Key     string
	Start   int64
	Count   int64
	Changes int64
}

// A SyncResponse is the reply of the store.
type SyncResponse struct {
	// OK says that the exchange succeeded.
	OK    bool
	Start int64
	// Changes is how many of the window's own events the store has counted.
	Changes int64
	// OtherChanges is how many events of others the window did not know of.
	OtherChanges int64
}

// MakeFunc returns what a window wants to exchange.
type MakeFunc func() SyncRequest

// HandleFunc gives a window the answer.
type HandleFunc func(SyncResponse)

// A BlockingSynchronizer exchanges counts in the goroutine of the caller whose call makes an exchange
// due. That caller waits for the store, up to a second, but after its decision was made; other callers
// do not wait. In a new window it first reads how the last one ended, and with an interval of 0 it
// exchanges before every decision as well, which makes it exact as long as callers come one by one.
//
// It may be shared by many windows. Without calls, their counts are exchanged all the same.
type BlockingSynchronizer struct{ syncGroup }

// NewBlockingSynchronizer returns one that exchanges the counts of each window every syncInterval.
func NewBlockingSynchronizer(store Datastore, syncInterval time.Duration) *BlockingSynchronizer {
	return &BlockingSynchronizer{newSyncGroup(store, syncInterval, true)}
}

// A NonblockingSynchronizer exchanges counts in the background. No caller ever waits for the store.
// All exchanges of a process, of however many windows, are made by one goroutine, which lives only as
// long as there are any to make.
//
// It may be shared by many windows. Without calls, their counts are exchanged all the same.
type NonblockingSynchronizer struct{ syncGroup }

// NewNonblockingSynchronizer returns one that exchanges the counts of each window every syncInterval.
func NewNonblockingSynchronizer(store Datastore, syncInterval time.Duration) *NonblockingSynchronizer {
	return &NonblockingSynchronizer{newSyncGroup(store, syncInterval, false)}
}

// A syncGroup is the windows that share one store and interval, which is what both synchronizers are.
type syncGroup struct {
	store    Datastore
	batch    Exchanger // the store, if it is one
	interval time.Duration
	blocking bool

	mu      sync.Mutex
	windows []*SyncWindow
	foreign map[string]*foreignSync
}

// Start does nothing: exchanges begin with the first call.
func (s *syncGroup) Start() {}

// Stop sends the store the counts that it has not confirmed yet and ends the exchange for all windows.
func (s *syncGroup) Stop() {
	s.mu.Lock()
	windows := slices.Clone(s.windows)
	s.mu.Unlock()
	s.stopWindows(windows)
}

// Sync exchanges the counts of a window that is no SyncWindow, or whose synchronizer wraps this one. A
// BlockingSynchronizer returns when that is done; a NonblockingSynchronizer begins an exchange, and gives the
// window the answer to an earlier one.
func (s *syncGroup) Sync(now time.Time, makeReq MakeFunc, handleResp HandleFunc) {
	s.syncForeign(unixNano(now), makeReq, handleResp)
}

func newSyncGroup(store Datastore, interval time.Duration, blocking bool) syncGroup {
	batch, _ := store.(Exchanger)
	return syncGroup{
		store: store, batch: batch, interval: max(interval, 0), blocking: blocking,
		foreign: map[string]*foreignSync{},
	}
}

// syncGroupOf returns the group of a synchronizer of this package, nil of any other.
func syncGroupOf(syncer Synchronizer) *syncGroup {
	switch s := syncer.(type) {
	case *BlockingSynchronizer:
		return &s.syncGroup
	case *NonblockingSynchronizer:
		return &s.syncGroup
	default:
		return nil
	}
}

func (s *syncGroup) addWindow(w *SyncWindow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.position = len(s.windows)
	s.windows = append(s.windows, w)
}

func (s *syncGroup) removeWindow(w *SyncWindow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.windows) - 1
	// The last window moves into the gap.
	moved := s.windows[end]
	s.windows[w.position], moved.position = moved, w.position
	s.windows[end] = nil
	s.windows = s.windows[:end]
}

// dispatch sends a request: in the background, or before it returns, but not for longer than storeTimeout.
func (s *syncGroup) dispatch(e storeRequest) {
	if s.blocking {
		s.runBlocking([]storeRequest{e})
		return
	}
	processSyncer.submitJobs(syncJob{s, e})
}

// runBlocking sends requests and returns when they are answered or the store takes too long. In that case
// they get their replies when it answers after all.
func (s *syncGroup) runBlocking(requests []storeRequest) {
	if s.batch != nil {
		s.runRequests(requests) // it keeps the time itself
		return
	}
	if !callInTime(s.store, requests, func() { s.runRequests(requests) }) {
		failRequests(requests, errStillWaiting)
	}
}

// stopWindows ends the exchange of windows, and sends the store the counts that it has not confirmed yet. It
// waits for the store twice at most: for what is under way, and for the rest.
func (s *syncGroup) stopWindows(windows []*SyncWindow) {
	// All windows stop before the first wait, so the waits are for all of them together.
	underWay := make([]chan struct{}, 0, len(windows))
	stopped := make([]*SyncWindow, 0, len(windows))
	for _, w := range windows {
		settled, first := w.stopExchange()
		if !first {
			continue
		}
		s.removeWindow(w)
		processSyncer.unwatch(w, true)
		stopped = append(stopped, w)
		if settled != nil {
			underWay = append(underWay, settled)
		}
	}
	end := monotonicNow().Add(storeTimeout) // for all of them together
	for _, settled := range underWay {
		if !closesWithin(settled, end.Sub(monotonicNow())) {
			break
		}
	}
	// What was under way has been answered, or is late. In the latter case finalRequest has nothing to send:
	// the store may have counted it, and a second push could count it twice.
	var requests []storeRequest
	for _, w := range stopped {
		if e, ok := w.finalRequest(); ok {
			requests = append(requests, e)
		}
	}
	if len(requests) > 0 {
		s.runBlocking(requests)
	}
}

// A foreignSync stands for a window that is not a SyncWindow of this package, or one whose synchronizer is
// wrapped in another: all that is known of it is a key and two functions. Each key has its own pace and
// replies, so that windows that share a synchronizer do not get one another's.
type foreignSync struct {
	group  *syncGroup
	source uint64

	// The lock of the group guards what follows.
	pace     syncPace
	start    int64 // of the window that pushed belongs to
	pushed   int64
	request  SyncRequest
	response *SyncResponse
}

// syncForeign exchanges the counts of a foreign window: to the end if the synchronizer blocks, and otherwise
// so that one of the next calls gets the reply.
func (s *syncGroup) syncForeign(now int64, makeReq MakeFunc, handleResp HandleFunc) {
	request := makeReq()
	st, answer := s.foreignOf(request.Key)
	if answer != nil {
		handleResp(*answer)
		request = makeReq()
	}
	e, due := st.beginExchange(now, request)
	if !due {
		return
	}
	s.dispatch(e)
	if !s.blocking {
		return
	}
	_, answer = s.foreignOf(request.Key)
	if answer != nil {
		handleResp(*answer)
	}
}

// foreignOf returns the foreign window with this key, and takes its response if there is one.
func (s *syncGroup) foreignOf(key string) (*foreignSync, *SyncResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.foreign[key]
	if st == nil {

		st = &foreignSync{group: s, source: rand.Uint64()}
		s.foreign[key] = st
	}
	answer := st.response
	st.response = nil
	return st, answer
}

func (st *foreignSync) beginExchange(now int64, r SyncRequest) (e storeRequest, due bool) {
	st.group.mu.Lock()
	defer st.group.mu.Unlock()
	if !st.pace.isDue(now) {
		return e, false
	}
	st.pace.beginExchange(now, st.group.interval)
	// A new window: nothing of it has been pushed. The sum lets a store that remembers it count a repeated
	// push once.
	if r.Start != st.start {
		st.start, st.pushed = r.Start, 0
	}
	st.request = r
	// The request comes from a wrapper or a foreign window: its numbers are not trusted.
	changes := max(r.Changes, 0)
	return storeRequest{st, []Push{{
		Key: r.Key, Start: r.Start, Source: st.source, Sum: addSaturating(st.pushed, changes), Delta: changes,
	}}}, true
}

// onLate does nothing: the interface has no way to report it.
func (st *foreignSync) onLate() {}

// onReply applies the reply to an exchange.
func (st *foreignSync) onReply(pushes []Push) {
	st.group.mu.Lock()
	defer st.group.mu.Unlock()
	p := &pushes[0]
	st.pace.endExchange(p.Err, st.group.interval)
	st.response = &SyncResponse{}
	// Without a confirmation the same changes are pushed again, with the same sum.
	if p.Err == nil {
		st.pushed = p.Sum
		others := max(p.Total-st.request.Count, 0)
		*st.response = SyncResponse{OK: true, Start: p.Start, Changes: p.Delta, OtherChanges: others}
	}
}
