package http

import (
	"net"
	"sync"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
)

const waitingGrant = `{"id":"w","want":[{"semaphore":"s"},{"gcra":"a"}]}`

// A grant that waits is parked as any request is, and its connection goes on with the next one.
func TestGrantWaits(t *testing.T) {
	for _, body := range []string{waitingGrant, `{"want":[{"gcra":"a"}]}`} {
		fake := new(fakeGrants)
		r := newRig(t, Config{Gate: fake})
		c := r.dial(t)
		c.post(grantsPath, body)
		c.send("/counter/behind/count")
		asked := fake.asked(t, 1)
		await.True(t, "the connection waits", r.hasWaiter)
		grants(asked)
		asked.Decision.Want = nil
		asked.Decided(asked)
		if asked.Command.ID != "" {
			c.want(200, `{"id":"w","fence":7,"expires_in":60000}`)
		} else {
			c.want(200, `{}`)
		}
		c.want(200, "1")
		fake.cancels(t, 0)
	}
}

// A client that hangs up while its grant waits is taken out of line, however it does so, and one that is
// granted at that moment is taken back.
func TestGrantOfAClientThatHangsUp(t *testing.T) {
	for name, hangUp := range map[string]func(*net.TCPConn) error{
		"close":      (*net.TCPConn).Close,
		"reset":      func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
		"half-close": (*net.TCPConn).CloseWrite,
	} {
		fake := new(fakeGrants)
		r := newRig(t, Config{Gate: fake})
		c := r.dial(t)
		c.post(grantsPath, waitingGrant)
		asked := fake.asked(t, 1)
		if err := hangUp(c.Conn.(*net.TCPConn)); err != nil {
			t.Fatal(name, err)
		}
		fake.cancels(t, 1)
		grants(asked)
		asked.Decided(asked) // it comes too late for the client, and the gate takes it back
		fake.cancels(t, 1)
	}
}

// A grant that is decided just when its client has left is taken back: nobody would release it.
func TestGrantAtTheInstantOfHangUp(t *testing.T) {
	fake := new(fakeGrants)
	r := newRig(t, Config{Gate: fake})
	for i := range 50 {
		c := r.dial(t)
		c.post(grantsPath, waitingGrant)
		asked := fake.asked(t, i+1)
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Close() })
		wg.Go(func() {
			grants(asked)
			asked.Decided(asked)
		})
		wg.Wait()
	}
	await.True(t, "no connection is open", func() bool { return r.open.Load() == 0 })
}

// A client that left before its request was looked at gets nothing that is held.
func TestGrantOfAClientThatHasLeft(t *testing.T) {
	hold := make(chan struct{})
	fake := &fakeGrants{decide: func(r *gate.GrantRequest) {
		<-hold
		grants(r)
	}}
	r := newRig(t, Config{Gate: fake})
	c := r.dial(t)
	c.post(grantsPath, `{"want":[{"gcra":"a"}]}`)
	c.post(grantsPath, waitingGrant)
	fake.asked(t, 1)
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	close(hold)
	await.True(t, "the connection has ended", func() bool { return r.open.Load() == 0 })
	fake.asked(t, 1)
	fake.cancels(t, 0)
}

// A topup whose client is gone before the answer is taken back, though it never waited in line: a client that
// asks again would pay for it twice.
func TestTopUpOfAClientThatHangsUp(t *testing.T) {
	for _, late := range []bool{false, true} {
		hold := make(chan struct{})
		fake := &fakeGrants{decide: func(r *gate.GrantRequest) {
			<-hold
			grants(r)
		}}
		if late {
			fake.decide = nil
		}
		r := newRig(t, Config{Gate: fake})
		c := r.dial(t)
		c.post(grantsPath+"/w/topup", `{"gcra/a":2}`)
		asked := fake.asked(t, 1)
		_ = c.Conn.(*net.TCPConn).SetLinger(0) // a reset, so that the answer cannot be sent
		_ = c.Close()
		if late {
			grants(asked)
			asked.Decided(asked)
		}
		close(hold)
		fake.cancels(t, 1)
	}
}

// A topup whose client has left before the store is asked takes nothing.
func TestTopUpOfAClientThatHasLeft(t *testing.T) {
	hold := make(chan struct{})
	fake := &fakeGrants{decide: func(r *gate.GrantRequest) {
		<-hold
		grants(r)
	}}
	r := newRig(t, Config{Gate: fake})
	c := r.dial(t)
	c.post(grantsPath, `{"want":[{"gcra":"a"}]}`)
	c.post(grantsPath+"/w/topup", `{"gcra/a":2}`)
	fake.asked(t, 1)
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	close(hold)
	await.True(t, "the connection has ended", func() bool { return r.open.Load() == 0 })
	fake.asked(t, 1)
}

// hasWaiter reports whether the connection of a request waits.
func (r *rig) hasWaiter() (waits bool) {
	told := make(chan bool)
	r.conns.forEach(func(c *httpConn) {
		if c.addTask(func() { told <- c.waiter != nil }) && <-told {
			waits = true
		}
	})
	return waits
}
