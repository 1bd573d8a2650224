package redis_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// together swaps several records, and returns the replies without their times.
func together(t *testing.T, b *redis.Backend, keys []gatehouse.Key, changes []cas.RecordChange) []cas.Reply {
	t.Helper()
	replies, err := b.SwapTogether(soonest(t), keys, changes)
	if err != nil {
		t.Fatalf("SwapTogether(%v, %+v): %v", keys, changes, err)
	}
	for i := range replies {
		if passed := time.Since(replies[i].Now); passed < -time.Second || passed > time.Minute {
			t.Errorf("SwapTogether(%v).Now is %v ago, want the present time", keys[i], passed)
		}
		replies[i].Now = time.Time{}
	}
	return replies
}

// Several records are replaced if each of them is the one that was read, and otherwise none.
func TestSwapTogether(t *testing.T) {
	t.Parallel()
	b := open(t, "redis://"+redistest.Start(t).Address)
	keys := []gatehouse.Key{key("a"), key("b"), key("c")}
	const never = 1<<64 - 1 // a version that no record has
	put := func(version, nonce uint64) cas.RecordChange {
		return cas.RecordChange{If: version, Next: record(nonce, "x"), Nonce: nonce, Keep: time.Minute}
	}
	read := func(version uint64) cas.RecordChange { return cas.RecordChange{If: version, Read: true} }
	is := func(version uint64) cas.Reply { return cas.Reply{Swapped: true, Version: version} }
	now := func(nonce uint64) cas.Reply { return cas.Reply{Record: record(nonce, "x"), Version: nonce} }
	claims := put(9, 9)
	claims.Claim, claims.Server = time.Hour, 7
	claims.Claim = cas.MaxClaim
	mine := put(2, 8)
	mine.Claim, mine.Server = time.Second, 7
	mineToo := mine
	mineToo.If = 5
	steps := []struct {
		what    string
		changes []cas.RecordChange
		want    []cas.Reply
	}{
		{"read none", []cas.RecordChange{read(never), read(0), read(never)}, []cas.Reply{{}, is(0), {}}},
		{"make two", []cas.RecordChange{put(0, 1), put(0, 1), read(0)}, []cas.Reply{is(1), is(1), is(0)}},
		{
			"one is there", []cas.RecordChange{put(1, 3), put(0, 3), put(0, 3)},
			[]cas.Reply{is(1), now(1), is(0)},
		},
		{"one is not read", []cas.RecordChange{put(1, 3), put(1, 3), read(4)}, []cas.Reply{is(1), is(1), {}}},
		{"replace", []cas.RecordChange{put(1, 2), read(1), put(0, 2)}, []cas.Reply{is(2), is(1), is(2)}},
		{
			"delete", []cas.RecordChange{put(2, 5), {If: 1, Nonce: 5}, read(2)},
			[]cas.Reply{is(5), is(0), is(2)},
		},
		{
			"claim those that are there", []cas.RecordChange{claims, claims, claims},
			[]cas.Reply{now(5), {}, now(2)},
		},
		{"confirm what is claimed", []cas.RecordChange{read(5), read(0), read(2)},
			[]cas.Reply{is(5), is(0), is(2)}},
		{"its own claim", []cas.RecordChange{mineToo, read(0), mine}, []cas.Reply{is(8), is(0), is(8)}},
	}
	for _, s := range steps {
		if got := together(t, b, keys, s.changes); !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s: %+v, want %+v", s.what, got, s.want)
		}
	}
}

// A claim bars a change of several records, which then claims none of the others; it takes them all or none.
func TestClaimBarsSeveral(t *testing.T) {
	t.Parallel()
	b := open(t, "redis://"+redistest.Start(t).Address)
	for _, name := range []string{"a", "b"} {
		ask(t, b, key(name), &cas.RecordChange{Next: record(1, "x"), Nonce: 1, Keep: time.Minute})
	}
	ask(t, b, key("a"), &cas.RecordChange{
		If: 9, Next: record(2, "x"), Nonce: 2, Keep: time.Minute, Claim: 5 * time.Second, Server: 7,
	})
	change := cas.RecordChange{
		If: 1, Next: record(3, "x"), Nonce: 3, Keep: time.Minute, Claim: 5 * time.Second, Server: 8,
	}
	got := together(t, b, []gatehouse.Key{key("a"), key("b")}, []cas.RecordChange{change, change})
	if got[0].Swapped || got[0].Claimed <= 0 || got[0].Version != 1 || !got[1].Swapped {
		t.Errorf("with one claimed by another server: %+v", got)
	}
	if r := ask(t, b, key("b"), &cas.RecordChange{
		If: 1, Next: record(4, "x"), Nonce: 4, Keep: time.Minute, Server: 9,
	}); !r.Swapped {
		t.Errorf("the other one is claimed: %+v", r)
	}
}

// Without memory, or without the right to tell another server, nothing of several records is replaced.
func TestSeveralAreRefusedTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	keys := []gatehouse.Key{key("a"), key("b")}
	put := func(version, nonce uint64) cas.RecordChange {
		return cas.RecordChange{If: version, Next: record(nonce, "x"), Nonce: nonce, Keep: time.Minute}
	}
	together(t, b, keys, []cas.RecordChange{put(0, 1), put(0, 1)})
	refused := func(b *redis.Backend, why string, changes ...cas.RecordChange) {
		t.Helper()
		if _, err := b.SwapTogether(soonest(t), keys, changes); !errors.Is(err, cas.ErrRefused) {
			t.Errorf("%s: %v, want it refused", why, err)
		}
		for _, k := range keys {
			if r := ask(t, b, k, &cas.RecordChange{If: 1, Read: true}); !r.Swapped {
				t.Errorf("%s: %s was replaced: %+v", why, k, r)
			}
		}
	}
	server.CLI(t, "CONFIG", "SET", "maxmemory", "1")
	refused(b, "no memory", put(1, 2), put(1, 2))
	// What removes a record is allowed, and then all of the change is.
	got := together(t, b, keys, []cas.RecordChange{{If: 1, Nonce: 3}, put(1, 3)})
	server.CLI(t, "CONFIG", "SET", "maxmemory", "0")
	if !got[0].Swapped || got[1].Version != 3 || got[0].Version != 0 {
		t.Errorf("a change that removes a record without memory: %+v", got)
	}
	together(t, b, keys, []cas.RecordChange{put(0, 1), put(3, 1)})
	server.CLI(t, "ACL", "SETUSER", "gate", "on", ">secret", "~*", "resetchannels", "+@all")
	mute := open(t, "redis://gate:secret@"+server.Address)
	tells := put(1, 4)
	tells.Wake = []uint32{7}
	refused(mute, "no channel", put(1, 4), tells)
}

// grantNames are four names, of limiters and semaphores.
func grantNames() []gatehouse.Key {
	return []gatehouse.Key{
		{Kind: gatehouse.TokenBucket, Name: "t"}, {Kind: gatehouse.FixedWindow, Name: "w"},
		{Kind: gatehouse.Semaphore, Name: "s"}, {Kind: gatehouse.Semaphore, Name: "u"},
	}
}

// grantOf is a command for one of each of these names, of at most size.
func grantOf(id string, size int64, keys []gatehouse.Key) *gatehouse.GrantCommand {
	cmd := &gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Minute}
	for _, k := range keys {
		m := gatehouse.Member{Key: k, Cost: 1, Rule: gatehouse.Rule{Size: size}}
		if k.Kind.Limiter() {
			m.Interval = time.Hour
		}
		cmd.Want = append(cmd.Want, m)
	}
	return cmd
}

// applyParts puts parts to a store.
func applyParts(s *cas.Store, parts []control.Part) (granted bool, err error) {
	done := make(chan error, 1)
	c := &control.JointChange{Parts: parts, Done: func(err error) { done <- err }}
	s.ApplyJoint(c)
	err = <-done
	return c.Granted, err
}

// decideGrant puts a command for a grant to a store.
func decideGrant(s *cas.Store, cmd *gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	var p control.GrantParts
	p.Acquire(cmd)
	granted, err := applyParts(s, p.Parts)
	if err == nil {
		err = p.Decide(granted, &d)
	}
	return d, err
}

// freeOf is how much is free of a name.
func freeOf(t *testing.T, s *server, k gatehouse.Key, size int64) int64 {
	t.Helper()
	cmd := gatehouse.Command{Op: gatehouse.OpStats}
	if k.Kind.Limiter() {
		cmd = gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: size, Interval: time.Hour}}
	}
	d, err := s.Do(soonest(t), k, cmd)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// Two servers on one Redis grant over four names at once: no name gives more than it has, and what was
// granted is taken from all of them.
func TestGrantsOfTwoServers(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t).Address
	checkGrantsOfTwoServers(t, []string{address, address})
}

func checkGrantsOfTwoServers(t *testing.T, addresses []string) {
	t.Helper()
	const size, each, callers = 60, 10, 4
	keys := grantNames()
	var servers []*server
	for i, address := range addresses {
		b := open(t, "redis://"+address)
		redistest.Until(t, func() bool { return b.Ping(soonest(t)) == nil })
		servers = append(servers, newPatientServer(t, b, uint32(i+1))) // few
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	granted := int64(0)
	for n, s := range servers {
		for c := range callers {
			work.Go(func() {
				for i := range each {
					d, err := decideGrant(s.store, grantOf(fmt.Sprint(n, "-", c, "-", i), size, keys))
					mu.Lock()
					switch {
					case err != nil:
						t.Error(err)
					case d.Outcome == gatehouse.Granted:
						granted++
					case d.Outcome != gatehouse.Refused:
						t.Errorf("%+v", d)
					}
					mu.Unlock()
				}
			})
		}
	}
	work.Wait()
	if granted != size {
		t.Errorf("%d were granted of %d asked for, want %d", granted, each*callers*len(servers), size)
	}
	for _, k := range keys {
		if n := freeOf(t, servers[0], k, size); n != 0 {
			t.Errorf("%s: %d are free, want 0", k, n)
		}
	}
}

// A Redis that stands still while grants are under way, or that is killed, leaves nothing half granted: what
// the names have is what the records of grants say.
func TestGrantsWhileRedisIsFrozenOrKilled(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		redisServer := redistest.Start(t)
		s := newServers(t, redisServer.Address, 1)[0]
		keys, size := grantNames(), int64(1000)
		if _, err := decideGrant(s.store, grantOf("first", size, keys)); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var work sync.WaitGroup
		var mu sync.Mutex
		known, failed := int64(1), 0
		for c := range 3 {
			work.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					d, err := decideGrant(s.store, grantOf(fmt.Sprint(c, "-", i), size, keys))
					mu.Lock()
					if err != nil {
						failed++
					} else if d.Outcome == gatehouse.Granted {
						known++
					}
					mu.Unlock()
				}
			})
		}
		grew := func() bool { mu.Lock(); defer mu.Unlock(); return known > 20 }
		redistest.Until(t, grew)
		if killed {
			redisServer.Kill()
		} else {
			redisServer.Freeze()
		}
		redistest.Until(t, func() bool { mu.Lock(); defer mu.Unlock(); return failed > 0 })
		close(stop)
		work.Wait()
		if killed {
			if err := redisServer.Again(); err != nil {
				t.Fatal(err)
			}
			known = 0 // it held everything in memory
		} else {
			redisServer.Thaw()
		}
		redistest.Until(t, func() bool { return s.store.PendingUndos() == 0 })
		redistest.Until(t, func() bool {
			_, err := decideGrant(s.store, grantOf("last", size, keys))
			return err == nil
		})
		for _, k := range keys {
			if n := freeOf(t, s, k, size); n != size-known-1 {
				t.Errorf("%s, killed %t: %d are free of %d, want %d", k, killed, n, size, size-known-1)
			}
		}
	}
}

// A server where somebody waits is woken when a grant over the name ends at another one, and a server where a
// grant waits when the name comes free.
func TestGrantsWakeOtherServers(t *testing.T) {
	t.Parallel()
	servers := newServers(t, redistest.Start(t).Address, 2)
	keys := []gatehouse.Key{theSemaphore(), {Kind: gatehouse.Semaphore, Name: "b"}}
	if d, err := decideGrant(servers[0].store, grantOf("a", 1, keys)); err != nil ||
		d.Outcome != gatehouse.Granted {
		t.Fatal(d, err)
	}
	woken := make(chan gatehouse.Decision, 1)
	go func() { woken <- servers[1].take(t, "waiter") }()
	servers[1].waits(t, 1)
	end := grantOf("a", 1, keys)
	var p control.GrantParts
	p.Peek(end)
	if _, err := applyParts(servers[0].store, p.Parts); err != nil {
		t.Fatal(err)
	}
	record := p.Parts[0].Turn.Decision.Grant
	end.Op, end.Want = gatehouse.OpRelease, nil
	if err := p.Follow(end, record); err != nil {
		t.Fatal(err)
	}
	if granted, err := applyParts(servers[0].store, p.Parts); err != nil || !granted {
		t.Fatal(granted, err)
	}
	<-woken
	// Now a grant waits, without blocking others, at the name that is held.
	wakes := make(chan struct{}, 100)
	stop := servers[0].store.Watch(theSemaphore(), func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
	defer stop()
	wait := grantOf("b", 1, keys)
	wait.MaxWait = gatehouse.Forever
	p.Acquire(wait)
	for i := range p.Parts {
		p.Parts[i].Turn.Ticket, p.Parts[i].NonBlocking = cas.FirstTicket(1)+100, true
	}
	if granted, err := applyParts(servers[0].store, p.Parts); err != nil || granted {
		t.Fatal(granted, err)
	}
	for len(wakes) > 0 {
		<-wakes
	}
	began := time.Now()
	servers[1].release(t, "waiter")
	select {
	case <-wakes:
		t.Logf("woken after %s", time.Since(began))
	case <-time.After(patience):
		t.Error("a grant that waits is not woken")
	}
}
