package cas

import (
	"testing"
	"time"
)

// A record whose end need not be moved is kept as long as is noted, also by a backend that moves it.
func TestKeptRecordIsKeptAsNoted(t *testing.T) {
	r := &retention{linger: time.Minute}
	first, second := new(recordUpdate), new(recordUpdate)
	var c RecordChange
	r.setKeep(&c, new(knownRecord), first)
	if c.Kept || int64(c.Keep) != first.keptUntil {
		t.Fatalf("a first change: kept %t for %s, want %s", c.Kept, c.Keep, time.Duration(first.keptUntil))
	}
	second.now = int64(time.Second)
	c = RecordChange{}
	r.setKeep(&c, &knownRecord{keptUntil: first.keptUntil}, second)
	if want := second.keptUntil - second.now; !c.Kept || int64(c.Keep) != want {
		t.Errorf("a second change: kept %t for %s, want true for %s", c.Kept, c.Keep, time.Duration(want))
	}
}
