package http

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/access/accesstest"
)

// A new policy that comes when the answer is on its way changes nothing: what was granted is not taken back,
// so the answer must not say that it was refused.
func TestDeniedTooLate(t *testing.T) {
	w := &waiter{user: new(waiterUser), finished: true}
	w.deny(errors.New("denied"))
	if err := w.deniedOr(nil); err != nil {
		t.Errorf("the answer is %v, want the decision", err)
	}
}

// TestDeniedAtTheInstantOfGrant takes the right away from a request while it is granted. Whoever is told that
// it may not has nothing.
func TestDeniedAtTheInstantOfGrant(t *testing.T) {
	const may, mayNot = "may: [{on: '*', do: use}]", "may: [{on: 'counter/*', do: use}]"
	users := access.NewUsers(accesstest.Policy(t, may), time.Now)
	r := newRig(t, Config{Users: users})
	c := r.dial(t)
	key := gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}
	do := func(op gatehouse.Op, holder string) gatehouse.Decision {
		t.Helper()
		got, err := r.gate.Do(t.Context(), key, gatehouse.Command{Op: op, Cost: 1, Holder: holder})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const grant = `{"expires":600000,"want":[{"lock":"a"}]}`
	for range 100 {
		for path, body := range map[string]string{"lock/a/acquire?key=k&expires=0": "", "grants": grant} {
			do(gatehouse.OpAcquire, "other")
			_, _ = fmt.Fprintf(c, "POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"+
				"Authorization: Bearer secret\r\n\r\n%s", path, len(body), body)
			r.waiting(t, 1)
			done, next := make(chan bool), accesstest.Policy(t, mayNot)
			go func() { // ends when the policy is in force
				users.SetPolicy(next)
				close(done)
			}()
			do(gatehouse.OpRelease, "other")
			resp, err := http.ReadResponse(c.reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			<-done
			users.SetPolicy(accesstest.Policy(t, may))
			if resp.StatusCode == http.StatusForbidden {
				do(gatehouse.OpStats, "") // behind what takes the hold back
				next := do(gatehouse.OpAcquire, "next")
				wantGranted(t, next, path)
			}
			do(gatehouse.OpDelete, "")
		}
	}
}

// TestDeniedCountsUntilAnswered denies a request that waits. What it asked for counts for the quota until it
// is answered: a client that hangs up at the same time ends that, too, and it may not be ended twice.
func TestDeniedCountsUntilAnswered(t *testing.T) {
	policy := accesstest.Policy(t, "may: [{on: '*', do: use}], at-most: {holders: 1}")
	users := access.NewUsers(policy, time.Now)
	r := newRig(t, Config{Users: users})
	enter := func(name string) (*waiter, error) {
		w := &waiter{server: r.Server, user: new(waiterUser)}
		w.Key = gatehouse.Key{Kind: gatehouse.Lock, Name: name}
		w.Command = gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "k", Cost: 1}
		pass, err := policy.User("ci").Enter(&w.Key, &w.Command)
		w.user.pass = pass
		return w, err
	}
	w, err := enter("a")
	if err != nil {
		t.Fatal(err)
	}
	w.deny(errors.New("denied"))
	if _, err := enter("b"); gatehouse.CodeOf(err) != gatehouse.CodeQuota {
		t.Errorf("another hold before the answer: %v, want a refusal", err)
	}
	w.leaveUser()
	if _, err := enter("b"); err != nil {
		t.Errorf("another hold after the answer: %v, want none", err)
	}
}

// wantGranted wants a lock to be free after a request for it was forbidden.
func wantGranted(t *testing.T, next gatehouse.Decision, forbidden string) {
	t.Helper()
	if next.Outcome != gatehouse.Granted {
		t.Fatalf("%s was forbidden, and the lock is held", forbidden)
	}
}
