package capacity_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// An asker is a server below a parent that tests play, which gives everybody what they want.
type asker struct {
	*capacity.Server
	t   *testing.T
	now time.Time
}

func newAsker(t *testing.T) *asker {
	t.Helper()
	a := &asker{capacity.NewServer(capacity.Limits{}), t, time.Unix(1_800_000_000, 0)}
	a.Follow(a.now)
	a.Lead(a.now.Add(-time.Hour), time.Time{})
	return a
}

// want has a client want so much of a resource.
func (a *asker) want(resource string, wants float64) {
	a.t.Helper()
	r := capacity.Request{Resource: resource, Demands: []capacity.Demand{{Clients: 1, Wants: wants}}}
	if _, err := a.Lease(a.now, "client", &r); err != nil {
		a.t.Fatal(err)
	}
}

// asks are the resources it asks for when its time has come, and how long that takes.
func (a *asker) asks() (names []string, after time.Duration) {
	a.t.Helper()
	next := a.NextAsk()
	if next.IsZero() {
		a.t.Fatal("it does not mean to ask, want it to")
	}
	if after = next.Sub(a.now); after > 0 {
		a.now = next
	}
	for _, r := range a.Asks(a.now) {
		names = append(names, r.Resource)
	}
	return names, after
}

// gives answers for some resources, and gives each so much.
func (a *asker) gives(amount float64, names ...string) {
	shared := template(100).Algorithm
	shared.LeaseLength, shared.RefreshInterval = 300*time.Second, 60*time.Second
	lease := capacity.Lease{
		Expiry: a.now.Add(shared.LeaseLength), Refresh: shared.RefreshInterval, Capacity: amount,
	}
	var answers []capacity.Grant
	for _, name := range names {
		answers = append(answers, capacity.Grant{Resource: name, Algorithm: &shared, Lease: lease})
	}
	a.Told(a.now, answers)
}

// A parent that answers something else has not answered.
func TestAnswersNobodyAskedForAreNone(t *testing.T) {
	a := newAsker(t)
	a.want("r", 10)
	a.asks()
	a.gives(10, "other", "another")
	if names, after := a.asks(); !slices.Equal(names, []string{"r"}) || after > 5*time.Second {
		t.Errorf("it asks for %v after %v, want r after 5 s at most", names, after)
	}
}

// Of many resources one gets no answer, or one that is there twice instead. It is asked for again soon, and
// the others are not.
func TestUnansweredResourceIsAskedForAlone(t *testing.T) {
	a := newAsker(t)
	all := func() {
		for i := range 10 {
			a.want(fmt.Sprint("r", i), 10)
		}
	}
	all()
	names, _ := a.asks()
	a.gives(10, append(names[:9:9], "r0")...)
	all() // now by leases of 300 s
	for range 3 {
		if names, after := a.asks(); !slices.Equal(names, []string{"r9"}) || after != 5*time.Second {
			t.Fatalf("it asks for %v after %v, want r9 after 5 s", names, after)
		}
		a.gives(10)
	}
	a.asks()
	a.gives(10, "r9")
	all()
	if names, after := a.asks(); len(names) != 10 || after != 40*time.Second {
		t.Errorf("it asks for %v after %v, want all after 40 s: 60 s after they were answered", names, after)
	}
}

// A resource that gets less than it wants is asked for after 1, 2, 4, ... seconds, however often others are.
func TestOthersDoNotHastenAResource(t *testing.T) {
	a := newAsker(t)
	a.want("short", 100)
	a.asks()
	a.gives(10, "short")
	asked := 0
	for i := range 30 {
		a.want("busy", float64(1+i%2*50))
		names, _ := a.asks()
		for _, name := range names {
			if name == "short" {
				asked++
				a.gives(10, "short")
			}
		}
		a.gives(100, "busy")
		a.now = a.now.Add(time.Second)
	}
	if asked > 6 {
		t.Errorf("it was asked for %d times in 30 s, want 6 at most", asked)
	}
}

// A parent whose clock is ahead is told of its lease by its own clock. So it believes the claim when it has
// begun anew, and does not take the server's capacity for free.
func TestParentKnowsItsLeaseByItsOwnClock(t *testing.T) {
	const ahead = time.Hour
	for _, said := range []time.Duration{ahead, 0} { // also when it does not say that it is ahead
		a := newAsker(t)
		a.want("r", 10)
		a.asks()
		shared := template(100).Algorithm
		lease := capacity.Lease{
			Expiry: a.now.Add(shared.LeaseLength + ahead), Refresh: shared.RefreshInterval, Capacity: 10,
		}
		a.Told(a.now, []capacity.Grant{{Resource: "r", Lease: lease, Ahead: said, Algorithm: &shared}})
		if status, _ := a.Find(a.now, "r"); !status.ParentExpiry.Equal(a.now.Add(shared.LeaseLength)) {
			t.Errorf("the parent's lease ends at %v, want %v from now", status.ParentExpiry,
				shared.LeaseLength)
		}
		a.now = a.NextAsk()
		asks := a.Asks(a.now)
		if len(asks) != 1 || !asks[0].Has.Expiry.Equal(lease.Expiry) {
			t.Errorf("asks %+v, want one for a lease until %v", asks, lease.Expiry)
		}
	}
}
