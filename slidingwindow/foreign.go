package slidingwindow

import "math/rand/v2"

// A foreignSync is a window that is no SyncWindow of this package, or one whose synchronizer is wrapped in
// another: all that is known of it is a key and two functions. Each key has its own pace and answers,
// so that windows that share a synchronizer do not get one another's.
type foreignSync struct {
	group  *syncGroup
	source uint64

	// The lock of sharing guards what follows.
	pace     syncPace
	start    int64 // of the window pushed is of
	pushed   int64
	request  SyncRequest
	response *SyncResponse
}

// syncForeign exchanges the counts of a stranger: at once and to the end if the synchronizer blocks,
// and otherwise with an answer that one of the next calls takes.
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

// foreignOf returns the one with this key, and takes its answer if there is one.
func (s *syncGroup) foreignOf(key string) (*foreignSync, *SyncResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.foreign[key]
	if st == nil {
		if s.foreign == nil {
			s.foreign = map[string]*foreignSync{}
		}
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
	if r.Start != st.start {
		st.start, st.pushed = r.Start, 0
	}
	st.request = r
	changes := max(r.Changes, 0)
	return storeRequest{st, []Push{{
		Key: r.Key, Start: r.Start, Source: st.source, Sum: addSaturating(st.pushed, changes), Delta: changes,
	}}}, true
}

// onLate does nothing: there is nobody to tell.
func (st *foreignSync) onLate() {}

// onReply takes the answer to an exchange.
func (st *foreignSync) onReply(pushes []Push) {
	st.group.mu.Lock()
	defer st.group.mu.Unlock()
	p := &pushes[0]
	st.pace.endExchange(p.Err, st.group.interval)
	st.response = &SyncResponse{}
	if p.Err == nil {
		st.pushed = p.Sum
		st.response = &SyncResponse{
			OK: true, Start: p.Start, Changes: p.Delta, OtherChanges: max(p.Total-st.request.Count, 0),
		}
	}
}
