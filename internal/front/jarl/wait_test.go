package jarl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// reset makes the limiter forget all that was taken, by another door than JARL's.
func (l *listener) reset(t *testing.T) {
	t.Helper()
	d, err := l.gate.Do(t.Context(), l.key(), gatehouse.Command{Op: gatehouse.OpReset})
	if err != nil || d.Outcome != gatehouse.Granted {
		t.Errorf("reset = %v, %v, want it granted", d.Outcome, err)
	}
}

// stand has somebody wait in line at another door.
func (l *listener) stand(n int64) (leave func()) {
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: n, Interval: time.Second}, Cost: 1, MaxWait: gatehouse.Forever,
	}
	r := &gate.Request{Key: l.key(), Command: cmd}
	l.gate.Submit(r)
	return func() { l.gate.Cancel(r) }
}

// waiting waits until so many stand in line.
func (l *listener) waiting(t *testing.T, n int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d wait", n), func() bool { return l.gate.Waiting() == n })
}

// full is a listener of three a second whose places are taken, and somebody waits for one at another
// door.
func full(t *testing.T) *listener {
	t.Helper()
	l := listen(t, 3, "reserve")
	for range 3 {
		l.ask(t)
	}
	l.stand(3)
	l.waiting(t, 1)
	return l
}

// Nobody overtakes those who wait at another door: the answer comes when it is the client's turn.
func TestLine(t *testing.T) {
	l := full(t)
	first := l.dial(t)
	l.waiting(t, 2)
	second := l.dial(t)
	l.waiting(t, 3)
	l.reset(t) // which makes room for three
	for _, conn := range []net.Conn{first, second} {
		if got := rest(t, conn); got != "0.0" {
			t.Errorf("a client whose turn it is was told %q, want 0.0", got)
		}
	}
	if got := l.ask(t); got != "1.000" {
		t.Errorf("the next client was told %q, want 1.000", got)
	}
}

// A client that polls is told when to ask again.
func TestLineBeforePoll(t *testing.T) {
	l := listen(t, 3, "poll")
	for range 3 {
		l.ask(t)
	}
	leave := l.stand(3)
	l.waiting(t, 1)
	if got := delay(t, l.ask(t)); got < time.Second {
		t.Errorf("behind one who waits a client was told %s, want at least a second", got)
	}
	leave()
	l.waiting(t, 0)
	if got := l.ask(t); got != "1.000" {
		t.Errorf("behind nobody a client was told %q, want 1.000", got)
	}
}

func TestHangUpInLine(t *testing.T) {
	for name, hangUp := range map[string]func(*net.TCPConn) error{
		"close":         (*net.TCPConn).Close,
		"stop sending":  (*net.TCPConn).CloseWrite,
		"send no end":   babble,
		"reset":         reset,
		"send and go":   func(c *net.TCPConn) error { return errors.Join(send(c, 9), c.Close()) },
		"go on waiting": nil,
	} {
		t.Run(name, func(t *testing.T) {
			l := full(t)
			conn := l.dial(t)
			l.waiting(t, 2)
			if hangUp == nil {
				return // the end of the listener sends it away
			}
			if err := hangUp(conn); err != nil {
				t.Fatal(err)
			}
			l.waiting(t, 1)
			l.reset(t)
			l.waiting(t, 0)
			l.left(t, 2) // what the one at the other door took
		})
	}
}

// babble sends until the other side has had enough.
func babble(conn *net.TCPConn) error {
	for {
		if _, err := conn.Write(make([]byte, 4096)); err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				return err
			}
			return nil
		}
	}
}

// A client that hangs up while it is granted has either been answered or taken nothing.
func TestHangUpAtTheInstantOfGrant(t *testing.T) {
	l := listen(t, 1, "reserve")
	answered := 0
	late := func(i int) { // by up to some 5 µs, during which it can go either way
		for end := time.Now().Add(time.Duration(i%50) * 100); time.Now().Before(end); {
			continue
		}
	}
	for i := range 600 {
		l.ask(t)
		leave := l.stand(1)
		l.waiting(t, 1)
		conn := l.dial(t)
		l.waiting(t, 2)
		leave()
		l.waiting(t, 1)
		var both sync.WaitGroup
		both.Go(func() { late(i); _ = conn.CloseWrite() })
		both.Go(func() { l.reset(t) })
		both.Wait()
		answer, err := io.ReadAll(conn)
		if err != nil || len(answer) != 0 && string(answer) != "0.0" {
			t.Fatalf("the client was told %q, %v, want 0.0 or nothing", answer, err)
		}
		if len(answer) > 0 {
			answered++
		}
		l.waiting(t, 0)
		l.left(t, 1-int64(len(answer)/3))
		l.reset(t)
	}
	t.Logf("%d of 600 were answered", answered)
}

// taken is how many starts of the present second are promised.
func (l *listener) taken(t *testing.T) int64 {
	t.Helper()
	d, err := l.gate.Do(t.Context(), l.key(), gatehouse.Command{Op: gatehouse.OpPeek, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit - d.Remaining
}

// left waits until so many are left: a grant is taken back behind the back of whoever asked.
func (l *listener) left(t *testing.T, want int64) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d are left", want), func() bool {
		d, err := l.gate.Do(t.Context(), l.key(), gatehouse.Command{Op: gatehouse.OpPeek, Cost: 1})
		return err == nil && d.Remaining == want
	})
}

// When the server stops, those in line get no answer: any number would let them go.
func TestStopSendsTheLineAway(t *testing.T) {
	l := full(t)
	conn := l.dial(t)
	l.waiting(t, 2)
	l.server.Stopping()
	l.gate.Close()
	if got := rest(t, conn); got != "" {
		t.Errorf("a client in line was told %q when the server stopped, want nothing", got)
	}
}

// Who is still in line when the time is up is cut.
func TestShutdownCuts(t *testing.T) {
	l := full(t)
	conn := l.dial(t)
	l.waiting(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := l.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown with one in line = %v, want that the time was up", err)
	}
	l.waiting(t, 1)
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("the client was told %q, want nothing", answer)
	}
}

// A server that has no room for the name answers nothing, says so once, and says when that is over.
func TestNoDecision(t *testing.T) {
	log := make(chan string, 9)
	limit := jarl.PaceLimit{Name: "api", Requests: 1, Period: time.Second}
	l := newListener(t, limit, memory.Config{Names: 1}, lines(log))
	other := gatehouse.Key{Kind: gatehouse.Pace, Name: "other"}
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Interval: time.Minute}, Cost: 1,
	}
	if _, err := l.gate.Do(t.Context(), other, cmd); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := l.ask(t); got != "" {
			t.Errorf("without room for the name a client was told %q, want nothing", got)
		}
	}
	l.set(time.Hour) // the other name means nothing any more
	if got := l.ask(t); got != "0.0" {
		t.Errorf("with room again a client got %q, want 0.0", got)
	}
	for _, want := range []string{"all 1 names of this server are in use", "responses again"} {
		select {
		case line := <-log:
			if !strings.Contains(line, want) {
				t.Errorf("the log says %q, want %q", line, want)
			}
		case <-time.After(patience):
			t.Errorf("the log does not say %q", want)
		}
	}
	l.end(t)
	if len(log) > 0 {
		t.Errorf("the log goes on with %q, want no more", <-log)
	}
}

// lines is where a log is written, line by line.
type lines chan string

// Write passes a line on.
func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
