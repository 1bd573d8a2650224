package asking

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// What is news of one limiter does not depend on what was reported of another.
func TestNoteReport(t *testing.T) {
	var l reportLog
	start := time.Now()
	key := func(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.GCRA, Name: name} }
	success := gatehouse.Feedback{Status: 200}
	failure := gatehouse.Feedback{Status: 429}
	left := gatehouse.Feedback{Status: 200, Remaining: 5, Reset: time.Minute}
	none := gatehouse.Feedback{Status: 200, Reset: time.Minute}
	for i, step := range []struct {
		after time.Duration
		name  string
		f     gatehouse.Feedback
		news  bool
	}{
		{0, "a", success, false},
		{0, "a", failure, true},
		{0, "b", failure, true},
		{0, "a", failure, true},
		{0, "a", success, true}, // it makes the next pause short again
		{0, "a", success, false},
		{0, "b", success, true},
		{0, "b", gatehouse.Feedback{Status: 503}, false},
		{time.Second, "a", left, true},
		{time.Second, "c", left, true},
		{time.Second + time.Millisecond, "c", left, false},
		{time.Second + time.Millisecond, "c", none, true},
		{2*time.Second + time.Millisecond, "c", left, true},
	} {
		if news := l.noteReport(key(step.name), &step.f, start.Add(step.after)); news != step.news {
			t.Errorf("step %d: %+v of %s is news: %t", i, step.f, step.name, news)
		}
	}
	for i := range 2 * maxReported {
		l.noteReport(key(fmt.Sprint(i)), &failure, start)
		if len(l.last) > maxReported {
			t.Fatalf("%d limiters are remembered, want at most %d", len(l.last), maxReported)
		}
	}
}
