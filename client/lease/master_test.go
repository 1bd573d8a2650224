package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
)

// sendsTo is a server that sends everybody elsewhere.
func sendsTo(t *testing.T, to *string) *scripted {
	t.Helper()
	return (&scripted{get: func(int, *request) (*response, error) {
		return redirect(*to), nil
	}}).start(t)
}

// TestFollowsRedirects: at once, and stays there.
func TestFollowsRedirects(t *testing.T) {
	t.Parallel()
	master := address(t)
	serve(t, master, shared(30*second))
	s := sendsTo(t, &master)
	failed := make(chan error, 100) // after each there is a pause
	c := newClient(t, lease.Config{
		Servers: []string{s.address}, OnError: func(err error) { failed <- err },
	})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	if len(failed) > 0 || c.Master() != master {
		t.Errorf("lease after %d pauses by %q, want at once by %q", len(failed), c.Master(), master)
	}
	if err := r.Want(50); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, 50)
	if s.asked() != 1 {
		t.Errorf("asked where it is not the master %d times, want once", s.asked())
	}
}

// TestServersThatNameEachOther: both are asked once, then there is a pause.
func TestServersThatNameEachOther(t *testing.T) {
	t.Parallel()
	one, two := address(t), address(t)
	a, b := &scripted{address: one}, &scripted{address: two}
	a.get = func(int, *request) (*response, error) {
		return redirect(two), nil
	}
	b.get = func(int, *request) (*response, error) {
		return redirect(one), nil
	}
	a.start(t)
	b.start(t)
	asked := make(chan [2]int, 1000) // how often each was, before each pause
	c := newClient(t, lease.Config{Servers: []string{one}, OnError: func(error) {
		asked <- [2]int{a.asked(), b.asked()}
	}})
	begun := time.Now()
	r := claim(t, c, "r", 40)
	if n := <-asked; n != [2]int{1, 1} {
		t.Errorf("asked %d times before the pause, want once each", n)
	}
	for range 3 {
		<-asked
	}
	most := 2 + int(2*time.Since(begun)/second)
	if a.asked() > most || b.asked() > most || r.Capacity() != 0 {
		t.Errorf("asked %d and %d times and got %g, want %d times at most and nothing",
			a.asked(), b.asked(), r.Capacity(), most)
	}
}

// TestServersThatSendOnAndOn: a chain without an end is given up after a few.
func TestServersThatSendOnAndOn(t *testing.T) {
	t.Parallel()
	chain := make([]*scripted, 20)
	for i := range chain {
		chain[i] = &scripted{address: address(t)}
	}
	for i, s := range chain {
		next := chain[(i+1)%len(chain)].address
		s.get = func(int, *request) (*response, error) {
			return redirect(next), nil
		}
		s.start(t)
	}
	asked := make(chan int, 1000) // how many were, before each pause
	config := lease.Config{Servers: []string{chain[0].address}, OnError: func(error) {
		sum := 0
		for _, s := range chain {
			sum += s.asked()
		}
		asked <- sum
	}}
	claim(t, newClient(t, config), "r", 40)
	if n := <-asked; n != 6 {
		t.Errorf("asked %d servers, want 6", n)
	}
}

// TestWaitsForAMaster: servers that know none are asked again after a pause, and it is found.
func TestWaitsForAMaster(t *testing.T) {
	t.Parallel()
	var elected atomic.Bool
	s := (&scripted{get: func(_ int, r *request) (*response, error) {
		if !elected.Load() {
			return redirect(""), nil
		}
		return grants(r, 5, time.Now().Add(time.Minute)), nil
	}}).start(t)
	failed := make(chan struct{}, 100)
	config := lease.Config{Servers: []string{s.address}, OnError: func(error) { failed <- struct{}{} }}
	begun := time.Now()
	r := claim(t, newClient(t, config), "r", 40)
	<-failed
	<-failed
	if time.Since(begun) < 600*time.Millisecond {
		t.Errorf("asked again after %s, want a pause", time.Since(begun))
	}
	elected.Store(true)
	becomes(t, r, 5)
}

// TestTriesAllServersInTurn: whoever of them is there, and the next when that one dies.
func TestTriesAllServersInTurn(t *testing.T) {
	t.Parallel()
	one, two := address(t), address(t)
	kill := serve(t, two, shared(time.Minute))
	c := newClient(t, lease.Config{Servers: []string{one, two}})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	if c.Master() != two {
		t.Errorf("Master = %q, want the second, %q", c.Master(), two)
	}
	kill()
	heir := shared(time.Minute)
	heir.Capacity = 30
	serve(t, one, heir)
	becomes(t, r, 30)
	if c.Master() != one || !r.Leased() {
		t.Errorf("Master = %q, want the first, %q", c.Master(), one)
	}
}

// TestLeavesAMasterThatDied: a server that still names the dead one does not keep the client from the heir.
func TestLeavesAMasterThatDied(t *testing.T) {
	t.Parallel()
	dead, heir := address(t), address(t)
	stale := sendsTo(t, &dead)
	serve(t, heir, shared(20*second))
	failed := make(chan error, 100) // after each there is a pause
	c := newClient(t, lease.Config{
		Servers: []string{stale.address, heir}, OnError: func(err error) { failed <- err },
	})
	becomes(t, claim(t, c, "r", 40), 40)
	if len(failed) > 0 || c.Master() != heir {
		t.Errorf("lease after %d pauses by %q, want at once by %q", len(failed), c.Master(), heir)
	}
}

// TestDiscover: who asks for the master first sends no other request elsewhere.
func TestDiscover(t *testing.T) {
	t.Parallel()
	master := address(t)
	serve(t, master, shared(30*second))
	c := newClient(t, lease.Config{Servers: []string{address(t), master}, Discover: true})
	becomes(t, claim(t, c, "r", 40), 40)
	if c.Master() != master {
		t.Errorf("Master = %q, want %q", c.Master(), master)
	}
}

// TestClockThatIsOff: the client's clock is off by so much. Gatehouse says what time it is, so the lease of
// a minute holds for a minute. Where a server does not, the lease does not end before the next request, is
// not kept for ever, and the user is told.
func TestClockThatIsOff(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		for _, known := range []bool{true, false} {
			at := address(t)
			want := time.Minute
			if known {
				serve(t, at, shared(want))
			} else {
				want = map[bool]time.Duration{true: time.Hour, false: 40 * second}[off < 0]
				s := &scripted{address: at, get: func(n int, r *request) (*response, error) {
					if n > 1 {
						return redirect(""), nil
					}
					answer := grants(r, 40, time.Now().Add(time.Minute))
					*answer.Response[0].Gets.RefreshInterval = 40
					return answer, nil
				}}
				s.start(t)
			}
			told := make(chan error, 100)
			c := newClient(t, lease.Config{
				Servers: []string{at}, OnError: func(err error) { told <- err },
				Now: func() time.Time { return time.Now().Add(off) },
			})
			r := claim(t, c, "r", 40)
			if err := r.Ready(in(t, patience)); err != nil {
				t.Fatal(err)
			}
			left := r.Lease().Expiry.Sub(time.Now().Add(off))
			if left > want || left < want-prompt {
				t.Errorf("off by %s, known %t: lease for %s, want %s", off, known, left, want)
			}
			if !known && <-told == nil {
				t.Errorf("off by %s, not known: told nothing, want an error", off)
			}
			if known && len(told) > 0 {
				t.Errorf("off by %s, known: told %v, want nothing", off, <-told)
			}
		}
	}
}

// TestLeaseAfterALongSearch: a lease counts from when the server that gave it was asked, not from when those
// before it were, which did not answer for longer than it lasts.
func TestLeaseAfterALongSearch(t *testing.T) {
	t.Parallel()
	at := address(t)
	serve(t, at, shared(8*second))
	c := newClient(t, lease.Config{
		Servers: []string{silent(t), silent(t), at}, Timeout: 5 * second, MinRefresh: time.Hour,
	})
	r := claim(t, c, "r", 40)
	if err := r.Ready(in(t, patience)); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(r.Lease().Expiry); left <= 0 {
		t.Errorf("lease of 8 s is over in %s, want it in force", left)
	}
}
