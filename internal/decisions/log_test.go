package decisions_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// refuse tells the recorder of a refusal of a name, and returns its number.
func refuse(r *decisions.Recorder, name string) uint64 {
	d := &gatehouse.Decision{At: time.Unix(int64(len(name)), 0), Remaining: int64(len(name))}
	request := &gate.Request{Decision: d, Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: name}}
	request.Command = gatehouse.Command{Op: gatehouse.OpAcquire, Cost: int64(len(name)), Holder: "secret"}
	r.ObserveRequests([]*gate.Request{request}, 1, len(name))
	return d.Number
}

// The last refusals are kept, as many as were asked for, and each number finds its own.
func TestKept(t *testing.T) {
	const kept = 10
	r := newRecorder(kept)
	var numbers []uint64
	for i := range 3 * kept {
		numbers = append(numbers, refuse(r, fmt.Sprint("name-", i)))
	}
	for i, number := range numbers {
		e, ok := r.Find(number)
		switch want := fmt.Sprint("name-", i); {
		case ok != (i >= 2*kept):
			t.Errorf("the refusal %d of %d is kept: %t", i, len(numbers), ok)
		case ok && (e.Key.Name != want || e.Number != number || e.Waiting != len(want)):
			t.Errorf("refusal %d is of %q with %d, want %q and %d", i, e.Key.Name, e.Number, want, number)
		case ok && e.Command.Holder != "":
			t.Errorf("the refusal %d has the holder's key", i)
		}
		if !r.HadNumber(number) {
			t.Errorf("number %d was not given, want that it was", number)
		}
	}
	for _, never := range []uint64{0, 1, numbers[0] - 1, numbers[len(numbers)-1] + 1} {
		if e, ok := r.Find(never); ok || r.HadNumber(never) {
			t.Errorf("number %d, which was never given, finds %v", never, e)
		}
	}
	if other, ok := newRecorder(kept).Find(numbers[len(numbers)-1]); ok {
		t.Errorf("the id of one server finds %v on another", other)
	}
}

func TestNoneKept(t *testing.T) {
	r := newRecorder(0)
	if number := refuse(r, "a"); number != 0 || r.Kept() != 0 || r.HadNumber(1) {
		t.Errorf("a refusal has number %d of %d kept, want none", number, r.Kept())
	}
	if _, ok := r.Find(1); ok {
		t.Error("a refusal is found where none is kept")
	}
}

// An id never explains another refusal than its own, whatever others write meanwhile, and a refusal is never
// seen half written.
func TestKeptTogether(t *testing.T) {
	const kept, writers, each = 8, 4, 3000
	r := newRecorder(kept)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				name := strings.Repeat(string(rune('a'+w)), 1+i%50)
				number := refuse(r, name)
				if e, ok := r.Find(number); ok && (e.Key.Name != name || e.Number != number) {
					t.Errorf("number %d of %q explains %d of %q", number, name, e.Number, e.Key.Name)
				}
			}
		})
	}
	for range writers {
		all.Go(func() {
			last := refuse(r, "x")
			for i := range each {
				e, ok := r.Find(last + uint64(i))
				n := int64(len(e.Key.Name))
				if ok && (e.Command.Cost != n || e.Decision.Remaining != n || e.Waiting != int(n) ||
					e.Decision.At.Unix() != n) {
					t.Errorf("a refusal is mixed of two: %+v", e)
				}
			}
		})
	}
	all.Wait()
}

// What a gate decides is told with what can be known of it: of several limits, of a wait, and of a grant.
func TestExplained(t *testing.T) {
	r := newRecorder(100)
	g := gate.New(memory.New(memory.Config{}), gate.Config{Observer: r})
	owner := &gatehouse.Owner{Name: "bob"}
	limits, err := gatehouse.ParseLimits("1/1m,5/1h")
	if err != nil {
		t.Fatal(err)
	}
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Limits: limits}, Owner: owner,
		Origin: &gatehouse.Origin{RequestID: "request-1", User: "ci"},
	}
	key := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "api"}
	_, _ = g.Do(t.Context(), key, cmd)
	d, err := g.Do(t.Context(), key, cmd)
	if err != nil || d.Outcome != gatehouse.Refused {
		t.Fatalf("Do = %v, %v, want refused", d.Outcome, err)
	}
	e, ok := r.Find(d.Number)
	passes := d.At.Add(d.RetryAfter).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	want := "slidinglog/api: acquire was refused; 0 of 1 were free, and it wanted 1; 1/1m allowed " +
		"no more; it could pass from " + passes + " on"
	if !ok || e.Sentence() != want || e.Asked() != "1/1m,5/1h" || e.Command.Owner != owner ||
		e.Command.Origin.User != "ci" || len(e.Decision.Windows) != 2 {
		t.Errorf("%t, %s (asked %s), %+v, want %s", ok, e.Sentence(), e.Asked(), e, want)
	}

	// Of two names only the semaphore has no room.
	slot := gatehouse.Key{Kind: gatehouse.Semaphore, Name: "db"}
	_, _ = g.Do(t.Context(), slot, gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1}, Holder: "a", Expires: time.Hour,
	})
	joint, err := g.DoGrant(t.Context(), gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Minute, Want: []gatehouse.Member{
			{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "rpm"}, Cost: 3,
				Rule: gatehouse.Rule{Size: 10, Interval: time.Minute, Burst: 9}},
			{Key: slot, Cost: 1, Rule: gatehouse.Rule{Size: 1}},
		},
	})
	if err != nil || joint.Outcome != gatehouse.Refused {
		t.Fatalf("DoGrant = %v, %v, want refused", joint.Outcome, err)
	}
	e, ok = r.Find(joint.Number)
	if !ok || e.Key.String() != "grant/g" || e.Name() != slot || len(e.Members) != 2 || e.Asked() != "1" ||
		!strings.HasPrefix(e.Sentence(), "grant/g: acquire was refused by semaphore/db; 0 of 1 were free") {
		t.Errorf("%t, %s, %+v, want a refusal of grant/g by semaphore/db", ok, e.Sentence(), e)
	}
	// A caller may rename them for its user. The next caller finds them as they were.
	for _, key := range e.Keys() {
		key.Name = "mine"
	}
	if e, _ = r.Find(joint.Number); e.Key.Name != "g" || e.Name() != slot {
		t.Errorf("the refusal is of %s by %s, want of grant/g by %s as before", e.Key, e.Name(), slot)
	}
}
