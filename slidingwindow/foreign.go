package slidingwindow

import "math/rand/v2"

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
		st.response = &SyncResponse{
			OK: true, Start: p.Start, Changes: p.Delta, OtherChanges: max(p.Total-st.request.Count, 0),
		}
	}
}
