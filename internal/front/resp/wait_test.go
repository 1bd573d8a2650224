package resp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// stat is one figure of a controller; 0 when there is none.
func (c *client) stat(place, name string) string {
	c.t.Helper()
	fields := strings.Fields(strings.Trim(c.ask("GH.STATS "+place), "[]{}"))
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == name {
			return fields[i+1]
		}
	}
	return "0"
}

// A command that waits blocks its own connection and no other, like BLPOP: what its client sends behind
// it is not looked at before.
func TestWaitBlocksItsConnectionAlone(t *testing.T) {
	d := open(t, Config{})
	keeper, waiter := d.dial(t), d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	waiter.send(wire("PING") + wire("GH.ACQUIRE", "lock/a", "KEY", "waiter") + wire("GH.COUNT", "counter/c"))
	if got := waiter.answer(); got != "PONG" {
		t.Fatalf("what came before the wait = %s, want PONG while that waits", got)
	}
	d.inLine(t, 1)
	keeper.want("GH.VALUE counter/c", "0")
	keeper.want("GH.RELEASE lock/a KEY keeper", "OK")
	for _, want := range []string{"waiter", "1"} {
		if got := waiter.answer(); got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
	}
	keeper.want("GH.VALUE counter/c", "1")
}

// Several waits on one connection are answered one after the other.
func TestWaitsInAPipeline(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	const waits = 50
	c.send(strings.Repeat(wire("GH.ACQUIRE", "gcra/p", "SIZE", "1", "INTERVAL", "5", "BURST", "0"), waits))
	for i := range waits {
		if got := c.answer(); got != "OK" {
			t.Fatalf("answer %d = %s, want OK", i, got)
		}
	}
	c.want("PING", "PONG")
}

func TestWaitEnds(t *testing.T) {
	d := open(t, Config{})
	keeper := d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	c := d.dial(t)
	began := time.Now()
	c.want("GH.ACQUIRE lock/a KEY c MAXWAIT 50", "null")
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("a wait of at most 50 ms took %s", took)
	}
	c.send(wire("GH.ACQUIRE", "lock/a", "KEY", "c"))
	d.inLine(t, 1)
	keeper.want("GH.DELETE lock/a", "OK")
	if got, want := c.answer(), "-DELETED lock/a was deleted while this request waited"; got != want {
		t.Errorf("the answer to a wait at what is deleted = %s, want %s", got, want)
	}
	c.send(wire("GH.WAIT", "event/e", "WITH", "DETAILS"))
	d.inLine(t, 1)
	keeper.want("GH.SEND event/e MESSAGE hello", "OK")
	if got, want := c.answer(), "[granted 1 message hello]"; got != want {
		t.Errorf("the answer to a wait for an event = %s, want %s", got, want)
	}
}

// A client that goes away while it waits takes nothing, and what it sent behind is not done.
func TestHangUpWhileWaiting(t *testing.T) {
	d := open(t, Config{})
	keeper, next := d.dial(t), d.dial(t)
	keeper.want("GH.ACQUIRE semaphore/s KEY keeper", "keeper")
	gone := d.dial(t)
	gone.send(wire("GH.ACQUIRE", "semaphore/s", "KEY", "gone", "EXPIRES", "0") +
		wire("GH.COUNT", "counter/c"))
	d.inLine(t, 1)
	next.send(wire("GH.ACQUIRE", "semaphore/s", "KEY", "next"))
	d.inLine(t, 2)
	_ = gone.Close()
	d.inLine(t, 1)
	keeper.want("GH.RELEASE semaphore/s KEY keeper", "OK")
	if got := next.answer(); got != "next" {
		t.Errorf("next in line behind a client that left = %s, want next", got)
	}
	if got := keeper.ask("GH.RELEASE semaphore/s KEY gone"); !strings.HasPrefix(got, "-CONFLICT ") {
		t.Errorf("a release of what the client that left would hold = %s, want a conflict", got)
	}
	keeper.want("GH.VALUE counter/c", "0")
}

// The dangerous instant: the lock is released while its next holder hangs up. Whichever comes first, in
// the end the lock is held by a client that was told so, or by nobody.
func TestGrantToAClientThatLeaves(t *testing.T) {
	d := open(t, Config{})
	const workers, rounds = 8, 400
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			keeper, heir := d.dial(t), d.dial(t)
			for round := range rounds {
				place := fmt.Sprintf("lock/%d-%d", worker, round)
				d.passing(t, keeper, place, round%2 == 0)
				// With the holder gone the next gets it at once: nobody else was told that it has it.
				heir.want("GH.ACQUIRE "+place+" KEY heir MAXWAIT 10000", "heir")
				heir.want("GH.DELETE "+place, "OK")
			}
		})
	}
	all.Wait()
}

// passing has a client wait for a lock that keeper holds, and hang up before keeper releases it, or at
// about the same time.
func (d *door) passing(t *testing.T, keeper *client, place string, before bool) {
	t.Helper()
	keeper.want("GH.ACQUIRE "+place+" KEY keeper EXPIRES 0", "keeper")
	gone := d.dial(t)
	gone.send(wire("GH.ACQUIRE", place, "KEY", "gone", "EXPIRES", "0"))
	until(t, "it waits", func() bool { return keeper.stat(place, "waiting") == "1" })
	left := make(chan struct{})
	go func() {
		for range rand.IntN(3000) { // so that the two meet in all ways
		}
		_ = gone.Close()
		close(left)
	}()
	if before {
		<-left
	}
	keeper.want("GH.RELEASE "+place+" KEY keeper", "OK")
	<-left
	if !before {
		// The answer may have been written before the client left, which nobody can see. Then the
		// client had its key, and whoever has that can give the lock back.
		_ = keeper.ask("GH.RELEASE " + place + " KEY gone")
	}
}

// The same for clients that leave without being seen to wait first, by the thousand.
func TestManyClientsLeave(t *testing.T) {
	d := open(t, Config{})
	keeper := d.dial(t)
	keeper.want("GH.ACQUIRE semaphore/many KEY keeper EXPIRES 0", "keeper")
	const clients = 1000
	var all sync.WaitGroup
	gate := make(chan struct{}, 100)
	for i := range clients {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			var dialer net.Dialer
			conn, err := dialer.DialContext(t.Context(), "tcp", d.address)
			if err != nil {
				t.Error(err)
				return
			}
			key := strconv.Itoa(i)
			_, _ = conn.Write([]byte(wire("GH.ACQUIRE", "semaphore/many", "KEY", key, "EXPIRES", "0")))
			_ = conn.Close()
		})
	}
	all.Wait()
	until(t, "all have come and gone", func() bool {
		return d.last.Load() == 1+clients && d.open.Load() == 1
	})
	keeper.want("GH.RELEASE semaphore/many KEY keeper", "OK")
	if held := keeper.stat("semaphore/many", "held"); held != "0" {
		t.Errorf("%s slots are held when everybody has left, want 0", held)
	}
}

// A grant whose answer is still in our buffers when its client goes away, because that did not read, is
// taken back.
func TestGrantThatIsNotTaken(t *testing.T) {
	d := open(t, Config{WriteTimeout: time.Hour})
	keeper, deaf := d.dial(t), d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	// More answers than the system takes for a client that does not read, and not too many for us.
	deaf.send(strings.Repeat(wire("ECHO", strings.Repeat("x", 16_000)), 500) +
		wire("GH.ACQUIRE", "lock/a", "KEY", "deaf", "EXPIRES", "0"))
	d.inLine(t, 1)
	keeper.want("GH.RELEASE lock/a KEY keeper", "OK")
	keeper.want("GH.ACQUIRE lock/a KEY keeper MAXWAIT 0", "null")
	if d.config.Budget.Used() == 0 {
		t.Fatal("all answers were taken, want some that are not")
	}
	_ = deaf.Close()
	keeper.want("GH.ACQUIRE lock/a KEY keeper MAXWAIT 20000", "keeper")
}

// When the gate closes, who waits is told so.
func TestShutdownAnswersWhoWaits(t *testing.T) {
	d := open(t, Config{})
	idle, waiter := d.dial(t), d.dial(t)
	idle.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	waiter.send(wire("GH.ACQUIRE", "lock/a", "KEY", "waiter") + wire("PING"))
	d.inLine(t, 1)
	d.shut(t)
	if got, want := waiter.answer(), "-UNAVAILABLE lock/a: the server is stopping"; got != want {
		t.Errorf("who waited was told %s, want %s", got, want)
	}
	waiter.over()
	idle.over()
}

// A command that is on its way when the server ends is still answered.
func TestShutdownLetsCommandsFinish(t *testing.T) {
	d := open(t, Config{})
	c, other := d.dial(t), d.dial(t)
	c.send("*1\r\n$4\r\nPI")
	other.want("PING", "PONG")
	done := make(chan struct{})
	go func() { d.shut(t); close(done) }()
	other.over() // by now the server is ending
	c.send("NG\r\n")
	if got := c.answer(); got != "PONG" {
		t.Errorf("the command that was on its way = %s, want PONG", got)
	}
	c.over()
	<-done
}
