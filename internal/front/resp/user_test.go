package resp

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/access/accesstest"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// TestPolicyWithinAPipeline has a new file come between commands that are decided together: those before it
// are about the names of the old one, and those behind it about the names of the new one.
func TestPolicyWithinAPipeline(t *testing.T) {
	const line = "at-most: {rate: 100/1s}, may: [{on: '*', do: use}], prefix: "
	before, after := accesstest.Policy(t, line+"old/"), accesstest.Policy(t, line+"new/")
	var users *access.Users
	var asked atomic.Int64
	// The clock is read where each command is counted, and before it is judged.
	users = access.NewUsers(before, func() time.Time {
		if asked.Add(1) == 3 {
			users.SetPolicy(after)
		}
		return time.Unix(1e9, 0)
	})
	d := open(t, Config{Users: users})
	c := d.dial(t)
	c.want("AUTH secret", "OK")
	asked.Store(0)
	c.send(strings.Repeat("CL.THROTTLE a 9 10 3600\r\n", 5))
	for range 5 {
		c.answer()
	}
	for name, want := range map[string]int64{"old/a": 10 - 3, "new/a": 10 - 2} {
		got, err := d.gate.Do(t.Context(), gatehouse.Key{Kind: gatehouse.GCRA, Name: name},
			gatehouse.Command{Op: gatehouse.OpPeek, Cost: 0, Rule: gatehouse.Rule{Size: gatehouse.InForce}})
		if err != nil || got.Remaining != want {
			t.Errorf("%s has %d left, %v, want %d", name, got.Remaining, err, want)
		}
	}
}

// TestPolicyWithinACommand has a file without the user come when a command was let in and is not judged yet:
// the policy that let it in judges it, and the next command is refused, as its sender is not known any more.
func TestPolicyWithinACommand(t *testing.T) {
	without, err := access.ParsePolicy("users.yaml", []byte("users: [{name: other}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, want string }{
		{"CL.THROTTLE a 9 10 3600", "[0 10 9 -1 360]"},
		{"GH.ACQUIRE gcra/b SIZE 1", "OK"},
		{"GH.GRANT WANT gcra/c SIZE 1 WITH DETAILS", "[granted"},
		{"GH.LIST gcra", "["},
		{"GH.DELETEPREFIX gcra a CONFIRM gcra", "[0 "},
		{"GH.EXPLAIN LAST", "null"},
		{"CLIENT LIST", "id="},
		{"ACL WHOAMI", "ci"},
	} {
		users := access.NewUsers(accesstest.Policy(t, "may: [{on: '*', do: manage}]"), time.Now)
		d := newDoor(t, Config{Users: users}, memory.New(memory.Config{}))
		known := d.commands[strings.Fields(c.command)[0]]
		run := known.run
		known.run = func(s *session, args [][]byte) {
			users.SetPolicy(without)
			run(s, args)
		}
		d.start(t)
		conn := d.dial(t)
		conn.want("AUTH secret", "OK")
		conn.send(c.command + "\r\nPING\r\n")
		if got := conn.answer(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s = %s, want %s", c.command, got, c.want)
		}
		if got := conn.answer(); got != "-NOAUTH Authentication required." {
			t.Errorf("PING behind %s = %s, want NOAUTH", c.command, got)
		}
	}
}

// TestCertificateThatIsGone has a file without the user of a connection's certificate come: it is ended, as
// one with a token is.
func TestCertificateThatIsGone(t *testing.T) {
	users := access.NewUsers(accesstest.Policy(t, "certificates: ['CN=me']"), time.Now)
	d := openTLS(t, Config{Users: users, ReadTimeout: time.Hour})
	c := d.dialTLS(t, 0, d.ca.Issue("me", time.Hour))
	c.want("PING", "PONG")
	users.SetPolicy(accesstest.Policy(t, "may: []"))
	c.want("PING", "-NOAUTH Authentication required.")
	c.over()
}

// TestUserInClientInfo has CLIENT INFO name the user, whether that is known by a token or by a certificate.
func TestUserInClientInfo(t *testing.T) {
	users := access.NewUsers(accesstest.Policy(t, "certificates: ['CN=me'], may: []"), time.Now)
	d := openTLS(t, Config{Users: users, ReadTimeout: time.Hour})
	token, certificate := d.dialTLS(t, 0), d.dialTLS(t, 0, d.ca.Issue("me", time.Hour))
	token.want("AUTH secret", "OK")
	certificate.want("CLIENT SETNAME x", "OK")
	certificate.want("RESET", "RESET")
	for name, c := range map[string]*client{"token": token, "certificate": certificate} {
		if got := c.ask("CLIENT INFO"); !strings.Contains(got, " name= flags=N db=0 user=ci ") {
			t.Errorf("CLIENT INFO of a connection with a %s = %s, want user=ci", name, got)
		}
	}
}

// TestDeniedAtTheInstantOfGrant takes the right away from a command while it is granted. Whoever is told that
// it may not has nothing.
func TestDeniedAtTheInstantOfGrant(t *testing.T) {
	const may, mayNot = "may: [{on: '*', do: use}]", "may: [{on: 'counter/*', do: use}]"
	users := access.NewUsers(accesstest.Policy(t, may), time.Now)
	d := open(t, Config{Users: users})
	c := d.dial(t)
	c.want("AUTH secret", "OK")
	key := gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}
	do := func(op gatehouse.Op, holder string) gatehouse.Decision {
		t.Helper()
		got, err := d.gate.Do(t.Context(), key, gatehouse.Command{Op: op, Cost: 1, Holder: holder})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 200 {
		for _, command := range []string{
			"GH.ACQUIRE lock/a KEY k EXPIRES 0\r\n", "GH.GRANT EXPIRES 600000 WANT lock/a\r\n",
		} {
			do(gatehouse.OpAcquire, "other")
			c.send(command)
			d.inLine(t, 1)
			done, next := make(chan bool), accesstest.Policy(t, mayNot)
			go func() { // ends when the policy is in force
				users.SetPolicy(next)
				close(done)
			}()
			do(gatehouse.OpRelease, "other")
			answer := c.answer()
			<-done
			users.SetPolicy(accesstest.Policy(t, may))
			if strings.HasPrefix(answer, "-") {
				do(gatehouse.OpStats, "") // behind what takes the hold back
				next := do(gatehouse.OpAcquire, "next")
				wantGranted(t, next, command)
			}
			do(gatehouse.OpDelete, "")
		}
	}
}

// wantGranted wants a lock to be free after a command for it was forbidden.
func wantGranted(t *testing.T, next gatehouse.Decision, forbidden string) {
	t.Helper()
	if next.Outcome != gatehouse.Granted {
		t.Fatalf("%s was forbidden, and the lock is held", forbidden)
	}
}
