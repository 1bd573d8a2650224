//go:build linux || darwin

package election

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

func TestOpenRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redis://h/k", `election: etcd address: scheme is "redis://"`},
		{"etcd://h", "election: etcd address: no key"},
		{"etcd://h/k?delay=1s", `election: etcd address: parameter "delay" is unknown, want ttl`},
		{"etcd://h/k?ttl=", `election: etcd address: ttl is [""], want whole seconds from 1s to 1h`},
		{"etcd://h/k?ttl=10", `election: etcd address: ttl is ["10"], want whole`},
		{"etcd://h/k?ttl=0s", `election: etcd address: ttl is ["0s"]`},
		{"etcd://h/k?ttl=999ms", `election: etcd address: ttl is ["999ms"]`},
		{"etcd://h/k?ttl=1500ms", `election: etcd address: ttl is ["1500ms"]`},
		{"etcd://h/k?ttl=-1s", `election: etcd address: ttl is ["-1s"]`},
		{"etcd://h/k?ttl=3601s", `election: etcd address: ttl is ["3601s"]`},
		{"etcd://h/k?ttl=1s&ttl=2s", `election: etcd address: ttl is ["1s" "2s"]`},
	} {
		e, err := Open(c.url)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("Open(%q) = %v, want an error of %q", c.url, err, c.want)
		}
		if err == nil {
			_ = e.Close()
		}
	}
	for url, want := range map[string]time.Duration{
		"etcd://h/k": 10 * time.Second, "etcd://h/k?ttl=1s": time.Second, "etcd://h/k?ttl=1h": time.Hour,
	} {
		e, err := Open(url)
		if err != nil || e.ttl != want {
			t.Fatalf("Open(%q) = %+v, %v, want a ttl of %v", url, e, err, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// However the address is written, it is one election.
func TestNameIsTheSameForAll(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"etcd://h2,h1:2379/k/l?ttl=1s": "h1:2379,h2:2379/k/l",
		"etcd://h1,h2:2379/k%2Fl":      "h1:2379,h2:2379/k/l",
		"etcd://[::2]:7,[::1]/k":       "[::1]:2379,[::2]:7/k",
	} {
		e, err := Open(url)
		if err != nil || e.Name() != want {
			t.Fatalf("Open(%q) = %+v, %v, want the name %s", url, e, err, want)
		}
		_ = e.Close() // nothing is open
	}
}

func TestRunRefusesNoName(t *testing.T) {
	t.Parallel()
	e, err := Open("etcd://127.0.0.1:1/k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for _, name := range []string{"", strings.Repeat("a", MaxCandidate+1)} {
		if err := e.Run(t.Context(), name, func(MasterStatus) {}); err == nil {
			t.Errorf("Run with a name of %d bytes = nil, want an error", len(name))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx, strings.Repeat("a", MaxCandidate), func(MasterStatus) {}); err != nil {
		t.Errorf("Run with a name of %d bytes = %v, want none", MaxCandidate, err)
	}
}

// Without etcd there is no master, and Run says why and goes on; it ends when it is told to.
func TestNoEtcd(t *testing.T) {
	t.Parallel()
	c := enter(t, "etcd://127.0.0.1:1/k?ttl=1s", "a")
	s := c.hears(t, "an error", func(s MasterStatus) bool { return s.Err != nil })
	if s.Leading || s.Leader != "" {
		t.Errorf("without etcd it was told %+v, want nobody to lead", s.MasterStatus)
	}
	began := time.Now()
	c.leave(t)
	if took := time.Since(began); took > stall {
		t.Errorf("leaving took %v, want it at once", took)
	}
}

func TestOneLeadsAndOthersAreTold(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/gatehouse/master?ttl=15s")
	a := enter(t, url, "a:1")
	s := a.leads(t)
	if left := s.Until.Sub(s.at); left < 13500*time.Millisecond-stall || left > 13500*time.Millisecond ||
		s.Leader != "a:1" {
		t.Errorf("a leads for %v by the name %q, want up to 13.5 s (15 s less a tenth) and a:1",
			left, s.Leader)
	}
	b, c := enter(t, url, "b:2"), enter(t, url, "c:3")
	b.follows(t, "a:1")
	c.follows(t, "a:1")
	a.hears(t, "a later end", func(now MasterStatus) bool { return now.Until.After(s.Until) })

	// Who leaves gives back what it has: the next need not wait for the lease to end.
	began := time.Now()
	a.leave(t)
	if got, _ := a.last(); got.Leading {
		t.Errorf("who left was told %+v last, want not to lead", got.MasterStatus)
	}
	next := b.hears(t, "a leader", func(s MasterStatus) bool { return s.Leader != "" && s.Leader != "a:1" })
	c.hears(t, "the same leader", func(s MasterStatus) bool { return s.Leader == next.Leader })
	if took := time.Since(began); took > stall { // the lease has twice as long to go
		t.Errorf("the next led after %v, want it at once", took)
	}
	apart(t, a, b, c)
}

// Nothing happens in etcd for longer than a watch may be silent. That is no trouble to anybody: after a time,
// as a busy machine may make some, there is none for so long.
func TestNothingHappens(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=3s")
	a := enter(t, url, "a")
	a.leads(t)
	b := enter(t, url, "b")
	b.follows(t, "a")
	began := time.Now()
	for calm := false; !calm; {
		_, changed := b.last()
		for range 5 { // so often the master renews meanwhile, one renewal a second
			now, _ := a.last()
			a.hears(t, "a later end", func(s MasterStatus) bool { return s.Until.After(now.Until) })
		}
		select {
		case <-changed:
		default:
			calm = true
		}
		if time.Since(began) > patience {
			t.Fatalf("b was told this for %v, want nothing but that somebody leads:\n%s", patience, b)
		}
	}
	if s, _ := b.last(); s.Err != nil {
		t.Errorf("b was told of trouble last, want that somebody leads:\n%s", b)
	}
}

// Two who were given the same name are two all the same.
func TestSameNameTwice(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=5s")
	first := enter(t, url, "a")
	first.leads(t)
	second := enter(t, url, "a")
	third := enter(t, url, "b")
	third.follows(t, "a") // so would the second have been told by now
	third.leave(t)
	if s, _ := second.last(); s.Leading || s.Leader != "" {
		t.Errorf("the second was told %+v, want nobody to lead that it could name", s.MasterStatus)
	}
	first.leave(t)
	second.leads(t)
	apart(t, first, second)
}

// An operator who deletes the key takes the mastership away, though the lease lives.
func TestKeyTakenAway(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	client := etcd.Client(t)
	a := enter(t, etcd.URL("/k?ttl=60s"), "a") // no renewal comes in time to notice
	first := a.leads(t)
	if _, err := client.Delete(t.Context(), "/k"); err != nil {
		t.Fatal(err)
	}
	a.lost(t)
	if second := a.leads(t); !second.Until.After(first.Until) {
		t.Errorf("it leads again until %v, want a term of its own after %v", second.Until, first.Until)
	}
	if _, err := client.Put(t.Context(), "/k", "somebody"); err != nil {
		t.Fatal(err)
	}
	a.follows(t, "somebody")
}

// The key of an earlier life cannot be asked to answer: nobody is known until it is gone.
func TestOwnNameFromEarlier(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	client := etcd.Client(t)
	if _, err := client.Put(t.Context(), "/k", "a"); err != nil {
		t.Fatal(err)
	}
	a, b := enter(t, etcd.URL("/k?ttl=2s"), "a"), enter(t, etcd.URL("/k?ttl=2s"), "b")
	b.follows(t, "a")
	if s, _ := a.last(); s.Leading || s.Leader != "" {
		t.Errorf("a was told %+v, want nobody to lead", s.MasterStatus)
	}
	if _, err := client.Delete(t.Context(), "/k"); err != nil {
		t.Fatal(err)
	}
	a.hears(t, "somebody", func(s MasterStatus) bool { return s.Leader != "" })
}
