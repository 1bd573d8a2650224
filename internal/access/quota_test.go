package access

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

const quotaToken = "a token of the user of a quotaBench"

// A quotaBench is one user with quotas, and a clock.
type quotaBench struct {
	*testing.T
	users *Users
	user  *User
	now   time.Time
}

func newQuotaBench(t *testing.T, quotas string) *quotaBench {
	t.Helper()
	p := parse(t, "users: [{name: u, tokens: ['"+hashToken([]byte(quotaToken)).String()+
		"'], at-most: {"+quotas+"}, may: [{on: '*', do: use}]}]")
	b := &quotaBench{T: t, now: time.Unix(1e9, 0)}
	b.users = NewUsers(p, func() time.Time { return b.now })
	b.user = p.User("u")
	return b
}

// logIn returns the login of the user.
func (b *quotaBench) logIn() *Login {
	b.Helper()
	login, _, err := b.users.LogIn([]byte(quotaToken), "", From{})
	if err != nil {
		b.Fatal(err)
	}
	return login
}

// enter puts a command as a front does, and returns the key and command that the gate is given.
func (b *quotaBench) enter(kind gatehouse.Kind, name string, cmd gatehouse.Command) (*entered, error) {
	key := gatehouse.Key{Kind: kind, Name: name}
	entry, err := b.user.Enter(&key, &cmd)
	return &entered{entry, key, cmd}, err
}

// An entered is a command that was let in.
type entered struct {
	entry Pass
	key   gatehouse.Key
	cmd   gatehouse.Command
}

func (e *entered) leave(d *gatehouse.Decision) { _ = e.entry.Leave(e.key, &e.cmd, d, nil) }

func (b *quotaBench) wantQuota(err error, word string) {
	b.Helper()
	if gatehouse.CodeOf(err) != gatehouse.CodeQuota || !strings.Contains(err.Error(), word) {
		b.Errorf("error = %v, want one about the quota of %s", err, word)
	}
}

func TestHolders(t *testing.T) {
	b := newQuotaBench(t, "holders: 3")
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Expires: time.Minute, Cost: 1}
	grant := gatehouse.Decision{Outcome: gatehouse.Granted, ExpiresAfter: time.Minute}
	hold := func(holder string) error {
		acquire.Holder = holder
		one, err := b.enter(gatehouse.Semaphore, "s", acquire)
		if err == nil {
			one.leave(&grant)
		}
		return err
	}
	for i := range 3 {
		if err := hold(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantQuota(hold("3"), "holders")
	// A hold that is there is no second one, and one that fails gives nothing up.
	acquire.Holder = "0"
	one, err := b.enter(gatehouse.Semaphore, "s", acquire)
	if err != nil {
		t.Fatal(err)
	}
	one.leave(nil)
	b.wantQuota(hold("3"), "holders")
	one, err = b.enter(gatehouse.Semaphore, "s", gatehouse.Command{Op: gatehouse.OpRelease, Holder: "1"})
	if err != nil {
		t.Fatal(err)
	}
	one.leave(&gatehouse.Decision{Outcome: gatehouse.Granted})
	if err := hold("3"); err != nil {
		t.Errorf("after a release: %v, want none", err)
	}
	b.wantQuota(hold("4"), "holders")
	b.now = b.now.Add(time.Minute)
	if err := hold("4"); err != nil {
		t.Errorf("after the holds have ended: %v, want none", err)
	}
	// Deleting a name ends the holds of it, also those that would not end by themselves.
	grant.ExpiresAfter = gatehouse.Forever
	for _, holder := range []string{"5", "6"} {
		if err := hold(holder); err != nil {
			t.Fatal(err)
		}
	}
	b.wantQuota(hold("7"), "holders")
	p := parse(t, "users: [{name: u, at-most: {holders: 3}, may: [{on: '*', do: manage}]}]")
	b.users.SetPolicy(p)
	b.user = p.User("u")
	one, err = b.enter(gatehouse.Semaphore, "s", gatehouse.Command{Op: gatehouse.OpDelete})
	if err != nil {
		t.Fatal(err)
	}
	one.leave(&gatehouse.Decision{Outcome: gatehouse.Granted})
	for _, holder := range []string{"8", "9", "10"} {
		if err := hold(holder); err != nil {
			t.Errorf("after the name was deleted: %v, want none", err)
		}
	}
}

// TestGrantInConflict has an answer that is about the names of another grant with the id.
func TestGrantInConflict(t *testing.T) {
	b := newQuotaBench(t, "holders: 2")
	lock := func(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: name} }
	for i := range 3 {
		cmd := gatehouse.GrantCommand{
			Op: gatehouse.OpAcquire, ID: "g", Expires: time.Minute,
			Want: []gatehouse.Member{{Key: lock(strconv.Itoa(i)), Cost: 1}, {Key: lock("x"), Cost: 1}},
		}
		entry, err := b.user.EnterGrant(&cmd)
		if err != nil {
			t.Fatalf("grant %d: %v, want none", i, err)
		}
		d := gatehouse.GrantDecision{
			Outcome: gatehouse.Conflict, Want: []gatehouse.MemberDecision{{Key: lock("other")}},
		}
		if err := entry.LeaveGrant(&cmd, &d, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.user.usage.holds.all); n != 0 {
		t.Errorf("%d holds count after conflicts, want 0", n)
	}
}

func TestNames(t *testing.T) {
	b := newQuotaBench(t, "names: 2")
	count := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1, Interval: 1}}
	for _, name := range []string{"a", "b", "a"} {
		one, err := b.enter(gatehouse.GCRA, name, count)
		if err != nil {
			t.Fatal(err)
		}
		one.leave(&gatehouse.Decision{Outcome: gatehouse.Granted, ResetAfter: time.Hour})
	}
	_, err := b.enter(gatehouse.GCRA, "c", count)
	b.wantQuota(err, "names")
	b.now = b.now.Add(time.Hour)
	if _, err := b.enter(gatehouse.GCRA, "c", count); err != nil {
		t.Errorf("after the names are forgotten: %v, want none", err)
	}
}

// What was decided counts for nothing if it was taken back, as when a new policy has ended the wait.
func TestTakenBack(t *testing.T) {
	b := newQuotaBench(t, "holders: 1")
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Expires: time.Hour, Cost: 1, Holder: "a"}
	granted := gatehouse.Decision{Outcome: gatehouse.Granted, ExpiresAfter: time.Hour}
	one, err := b.enter(gatehouse.Lock, "l", acquire)
	if err != nil {
		t.Fatal(err)
	}
	denied := errors.New("denied")
	if err := one.entry.Leave(one.key, &one.cmd, &granted, denied); !errors.Is(err, denied) {
		t.Errorf("Leave = %v, want %v", err, denied)
	}
	joint := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Hour,
		Want: []gatehouse.Member{{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: "m"}, Cost: 1}},
	}
	entry, err := b.user.EnterGrant(&joint)
	if err != nil {
		t.Fatalf("after the first was taken back: %v, want none", err)
	}
	d := gatehouse.GrantDecision{Outcome: gatehouse.Granted, ExpiresAfter: time.Hour}
	d.Want = []gatehouse.MemberDecision{{Key: joint.Want[0].Key}}
	if err := entry.LeaveGrant(&joint, &d, denied); !errors.Is(err, denied) {
		t.Errorf("LeaveGrant = %v, want %v", err, denied)
	}
	if _, err := b.enter(gatehouse.Lock, "n", acquire); err != nil {
		t.Errorf("after the grant was taken back: %v, want none", err)
	}
}

// A name counts when its first command is granted, however long that has waited in line.
func TestNameAfterAWait(t *testing.T) {
	b := newQuotaBench(t, "names: 1")
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Holder: "a", Expires: time.Hour}
	waiting, err := b.enter(gatehouse.Lock, "a", acquire)
	if err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Minute)
	other, err := b.enter(gatehouse.Lock, "b", acquire)
	if err != nil {
		t.Fatalf("while the first waits: %v, want none", err)
	}
	waiting.leave(&gatehouse.Decision{Outcome: gatehouse.Granted, ExpiresAfter: time.Hour})
	other.leave(&gatehouse.Decision{Outcome: gatehouse.Refused})
	b.now = b.now.Add(time.Minute)
	_, err = b.enter(gatehouse.Lock, "c", acquire)
	b.wantQuota(err, "names")
}

func TestRate(t *testing.T) {
	b := newQuotaBench(t, "rate: 10/1s")
	passed := 0
	for range 3000 { // three seconds, a request each millisecond
		if b.user.TakeRate() == nil {
			passed++
		}
		b.now = b.now.Add(time.Millisecond)
	}
	if passed < 38 || passed > 40 {
		t.Errorf("%d of 3000 requests in 3 s passed 10/1s, want 10 at once and 10 a second", passed)
	}
}

func TestAnonymousByAddress(t *testing.T) {
	p := parse(t, "users: [{name: anonymous, at-most: {connections: 1}}]")
	users := NewUsers(p, time.Now)
	at := func(address string) *User {
		_, user := users.Admit(From{Address: netip.MustParseAddr(address)})
		return user
	}
	if err := at("10.0.0.1").openConnection(); err != nil {
		t.Fatal(err)
	}
	if err := at("10.0.0.2").openConnection(); err != nil {
		t.Errorf("a connection from another address: %v, want none", err)
	}
	if at("10.0.0.1").openConnection() == nil || at("::ffff:10.0.0.1").openConnection() == nil {
		t.Error("a second connection from one address is let in, want a refusal")
	}
	// However many addresses there are, what is kept of them is bounded.
	for i := range 3 * maxAddresses {
		at(netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8),
			byte(i)}).String()).openConnection() //nolint:errcheck // one that is refused is as good here
	}
	if len(users.anon) > maxAddresses+1 || len(users.usage) > maxAddresses+2 {
		t.Errorf("%d addresses are kept, want at most %d", len(users.anon), maxAddresses+1)
	}
}

// What users have is remembered over new policies, and forgotten when a user is gone and has nothing.
func TestUsageOfUsersThatAreGone(t *testing.T) {
	users := NewUsers(parse(t, "users: [{name: anonymous}]"), time.Now)
	at := func(i int) *User {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		_, user := users.Admit(From{Address: address})
		return user
	}
	for i := range 100 {
		name := "u" + strconv.Itoa(i)
		users.SetPolicy(parse(t, "users: [{name: anonymous}, {name: "+name+"}]"))
		at(i)
	}
	if n := len(users.usage); n > 4 {
		t.Errorf("%d users are remembered after 100 policies, want the last two and an address", n)
	}
	busy := at(7)
	if err := busy.openConnection(); err != nil {
		t.Fatal(err)
	}
	users.SetPolicy(parse(t, "users: [{name: anonymous, at-most: {connections: 1}}]"))
	if at(7).openConnection() == nil {
		t.Error("with a new policy a second connection is let in, want the first one remembered")
	}
	busy.closeConnection()
	if err := at(7).openConnection(); err != nil {
		t.Errorf("after the first was closed: %v, want none", err)
	}
}

func TestWaitsEnd(t *testing.T) {
	b := newQuotaBench(t, "waiters: 1")
	refused := make(chan error, 1)
	login := b.logIn()
	key := gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}
	wait, err := b.users.BeginWait(b.user.NewWait(login, key, gatehouse.OpAcquire),
		func(err error) { refused <- err })
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.users.BeginWait(b.user.NewWait(login, key, gatehouse.OpAcquire), nil)
	b.wantQuota(err, "waiting requests")
	b.users.SetPolicy(parse(t, "users: [{name: u, tokens: ['"+hashToken([]byte(quotaToken)).String()+
		"'], may: [{on: '*', do: read}]}]"))
	if err := <-refused; gatehouse.CodeOf(err) != gatehouse.CodeForbidden {
		t.Errorf("the wait ends with %v, want one that is forbidden", err)
	}
	wait.End()
	if n := b.user.usage.waiters.Load(); n != 0 {
		t.Errorf("%d wait, want 0", n)
	}
}

// A name counts as long as a request waits for it, however long that is: the store keeps it.
func TestNamesThatAreWaitedForCount(t *testing.T) {
	b := newQuotaBench(t, "names: 2")
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: time.Hour}
	one, err := b.enter(gatehouse.Event, "a", wait)
	if err != nil {
		t.Fatal(err)
	}
	login := b.logIn()
	inLine, err := b.users.BeginWait(b.user.NewWait(login, one.key, gatehouse.OpWait), nil)
	if err != nil {
		t.Fatal(err)
	}
	// A grant that waits for a name that is waited for, and for another one.
	several := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, MaxWait: time.Hour, Want: []gatehouse.Member{
		{Key: one.key, Cost: 1}, {Key: gatehouse.Key{Kind: gatehouse.Event, Name: "b"}, Cost: 1},
	}}
	grantInLine, err := b.users.BeginWait(b.user.NewGrantWait(login, &several), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(30 * time.Minute)
	_, err = b.enter(gatehouse.Event, "c", wait)
	b.wantQuota(err, "names")
	grantInLine.End()
	if _, err := b.enter(gatehouse.Event, "c", wait); err != nil {
		t.Errorf("one of two is waited for: %v, want none", err)
	}
	inLine.End()
	one.leave(&gatehouse.Decision{Outcome: gatehouse.Refused})
	_, err = b.enter(gatehouse.Event, "d", wait)
	b.wantQuota(err, "names")
	b.now = b.now.Add(time.Minute)
	if !b.user.usage.isEmpty(b.users.elapsed()) {
		t.Errorf("a minute later %v count, want none", b.user.usage.names.all)
	}
}

// A name that is gone from the store, while two requests wait for it, counts once one of them is granted it.
func TestNameDroppedWhileWaitedForCounts(t *testing.T) {
	b := newQuotaBench(t, "names: 1")
	login := b.logIn()
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Expires: time.Hour, MaxWait: time.Hour}
	var waits [2]*Wait
	var asked [2]*entered
	for i, holder := range []string{"first", "second"} {
		acquire.Holder = holder
		var err error
		asked[i], err = b.enter(gatehouse.Lock, "a", acquire)
		if err != nil {
			t.Fatal(err)
		}
		b.user.usage.names.drop(asked[i].key)
		waits[i], err = b.users.BeginWait(b.user.NewWait(login, asked[i].key, gatehouse.OpAcquire), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, outcome := range []gatehouse.Outcome{gatehouse.Granted, gatehouse.Refused} {
		waits[i].End()
		asked[i].leave(&gatehouse.Decision{Outcome: outcome, ExpiresAfter: time.Hour, Fence: 7})
	}
	_, err := b.enter(gatehouse.Lock, "b", acquire)
	b.wantQuota(err, "names")
}
