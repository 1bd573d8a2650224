package slidingwindow

import "math/rand/v2"

// A stranger is a window that is no SyncWindow of this package, or one whose synchronizer is wrapped in
// another: all that is known of it is a key and two functions. Each key has its own pace and answers,
// so that windows that share a synchronizer do not get one another's.
type stranger struct {
	sharing *sharing
	source  uint64

	// The lock of sharing guards what follows.
	pace    pace
	start   int64 // of the window pushed is of
	pushed  int64
	request SyncRequest
	answer  *SyncResponse
}

// syncStranger exchanges the counts of a stranger: at once and to the end if the synchronizer blocks,
// and otherwise with an answer that one of the next calls takes.
func (s *sharing) syncStranger(now int64, makeReq MakeFunc, handleResp HandleFunc) {
	request := makeReq()
	st, answer := s.stranger(request.Key)
	if answer != nil {
		handleResp(*answer)
		request = makeReq()
	}
	e, due := st.begin(now, request)
	if !due {
		return
	}
	s.carry(e)
	if !s.blocking {
		return
	}
	_, answer = s.stranger(request.Key)
	if answer != nil {
		handleResp(*answer)
	}
}

// stranger returns the one with this key, and takes its answer if there is one.
func (s *sharing) stranger(key string) (*stranger, *SyncResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.strangers[key]
	if st == nil {
		if s.strangers == nil {
			s.strangers = map[string]*stranger{}
		}
		st = &stranger{sharing: s, source: rand.Uint64()}
		s.strangers[key] = st
	}
	answer := st.answer
	st.answer = nil
	return st, answer
}

func (st *stranger) begin(now int64, r SyncRequest) (e errand, due bool) {
	st.sharing.mu.Lock()
	defer st.sharing.mu.Unlock()
	if !st.pace.due(now) {
		return e, false
	}
	st.pace.begin(now, st.sharing.interval)
	if r.Start != st.start {
		st.start, st.pushed = r.Start, 0
	}
	st.request = r
	changes := max(r.Changes, 0)
	return errand{st, []Push{{
		Key: r.Key, Start: r.Start, Source: st.source, Sum: plus(st.pushed, changes), Delta: changes,
	}}}, true
}

// owed does nothing: there is nobody to tell.
func (st *stranger) owed() {}

// settle takes the answer to an exchange.
func (st *stranger) settle(pushes []Push) {
	st.sharing.mu.Lock()
	defer st.sharing.mu.Unlock()
	p := &pushes[0]
	st.pace.end(p.Err, st.sharing.interval)
	st.answer = &SyncResponse{}
	if p.Err == nil {
		st.pushed = p.Sum
		st.answer = &SyncResponse{
			OK: true, Start: p.Start, Changes: p.Delta, OtherChanges: max(p.Total-st.request.Count, 0),
		}
	}
}
