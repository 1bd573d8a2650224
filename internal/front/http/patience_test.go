package http

import "testing"

// Few keep their goroutine until one was decided in time, and again when one was not.
func TestPatience(t *testing.T) {
	var l patienceLimit
	begun := 0
	begin := func() bool {
		begun++
		return l.begin()
	}
	for i := range fewPatient {
		if !begin() {
			t.Errorf("request %d may not keep its goroutine, want %d that do", i, fewPatient)
		}
	}
	for _, inTime := range []bool{false, true, true, false} {
		l.note(inTime)
		if begin() != inTime {
			t.Errorf("after one that was decided in time: %t, request %d may keep its goroutine: %t",
				inTime, begun, !inTime)
		}
	}
	for range begun {
		l.end()
	}
	if !begin() {
		t.Error("a request may not keep its goroutine though no other does")
	}
}
