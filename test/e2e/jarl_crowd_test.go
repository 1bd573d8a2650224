package e2e

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A promise is when a client may call: not before the one and not after the other, for nobody but the
// server knows when exactly it was asked. Counted from the beginning of the test.
type promise struct{ earliest, latest time.Duration }

// crowd has many clients ask, each so many times, one after the other as fast as they are answered.
func (s *server) crowd(t *testing.T, clients, times int) []promise {
	t.Helper()
	began := time.Now()
	starts := make([]promise, clients*times)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for j := range times {
				before := time.Since(began)
				answer, err := askJARL(t.Context(), s.address)
				delay, bad := strconv.ParseFloat(answer, 64)
				if err != nil || bad != nil {
					t.Errorf("an answer is %q, %v, want seconds", answer, err)
					return
				}
				wait := time.Duration(delay * float64(time.Second))
				starts[i*times+j] = promise{before + wait, time.Since(began) + wait}
			}
		})
	}
	all.Wait()
	return starts
}

// With clients by the hundred no second is promised to more than there may be, and none in between is
// left unused.
func TestJARLCrowd(t *testing.T) {
	t.Parallel()
	const n, clients, times = 100, 200, 20
	s := startJARL(t, "--requests", "100")
	starts := s.crowd(t, clients, times)
	earliest, latest := make([]time.Duration, len(starts)), make([]time.Duration, len(starts))
	for i, start := range starts {
		earliest[i], latest[i] = start.earliest, start.latest
	}
	slices.Sort(earliest)
	slices.Sort(latest)
	end := latest[n-1] // by then the first have come; the others follow them at the limit
	for i := n; i < len(starts); i++ {
		if span := latest[i] - earliest[i-n]; span < time.Second {
			t.Fatalf("start %d is at most %s after the one %d before it, want a second", i+1, span, n)
		}
		if due := end + time.Duration(i/n)*(time.Second+time.Millisecond); earliest[i] > due {
			t.Fatalf("start %d is at %s, want it by %s", i+1, earliest[i], due)
		}
	}
}

// Clients that connect by the thousand and neither read nor hang up, or send without end, keep nobody
// waiting.
func TestJARLHolders(t *testing.T) {
	t.Parallel()
	s := startJARL(t, "--requests", "1000000")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var rude sync.WaitGroup
	held := make(chan net.Conn, 6000)
	for i := range 4 {
		rude.Go(func() {
			for range cap(held) / 4 {
				var dialer net.Dialer
				conn, err := dialer.DialContext(ctx, "tcp", s.address)
				if err != nil {
					t.Errorf("connecting: %v", err)
					return
				}
				if i == 0 {
					_, _ = conn.Write(make([]byte, 8<<10))
				}
				held <- conn
			}
		})
	}
	for range 200 {
		asked := time.Now()
		if got := s.seconds(t); got != 0 {
			t.Errorf("the answer = %.3f, want 0", got)
		}
		if took := time.Since(asked); took > 10*time.Second {
			t.Errorf("a client was answered after %s, want at once", took)
		}
	}
	rude.Wait()
	close(held)
	for conn := range held {
		_ = conn.Close()
	}
}

// A process that runs out of file descriptors answers those that come later, and goes on.
func TestJARLWithoutDescriptors(t *testing.T) {
	t.Parallel()
	args := append([]string{"-c", `ulimit -n 30; exec "$0" "$@"`, binary()}, jarlFlags(freePort(t))...)
	s := startProcess(t, "bash", args...)
	if err := s.process.Signal(syscall.SIGSTOP); err != nil { // so that it finds all of them at once
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 300 { // that stay
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(conn)
		if _, bad := strconv.ParseFloat(string(answer), 64); err != nil || bad != nil {
			t.Fatalf("connection %d of %d got %q, %v, want seconds; the server said\n%s",
				i+1, len(conns), answer, err, s.journal)
		}
	}
	s.seconds(t)
	if !strings.Contains(s.journal.String(), "too many open files") {
		t.Errorf("the server did not run out of descriptors, or does not say so: it said\n%s", s.journal)
	}
	if lines, _, _ := s.journal.all(); len(lines) > 20 {
		t.Errorf("the log has %d lines, want no line for each connection", len(lines))
	}
}
