// Package doors holds what every gate must do, whatever stands in front of it.
package doors

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/front/resp"
	"github.com/gatehousehq/gatehouse/internal/servertest"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// How much is tried, and from what. The seed is the whole report of a fault: it makes the same sequence.
const (
	operations = 10_000
	seed       = 1
)

// TestDoors puts one sequence of random operations to five gates: by Go calls, over HTTP, over RESP, now
// over HTTP and now over RESP, and by the Go calls of a client. The gates share one clock, which stands
// still during an operation. Every decision, and all that a wire tells about it, must be the same.
func TestDoors(t *testing.T) {
	t.Parallel()
	clock := newClock(time.Date(2026, time.March, 27, 22, 0, 0, 1, time.UTC))
	inside, shared := newGate(clock), newGate(clock)
	doors := []door{
		openHTTP(t, newGate(clock)), openRESP(t, newGate(clock)),
		&turns{doors: []door{openHTTP(t, shared), openRESP(t, shared)}},
		openClient(t, newGate(clock)),
	}
	made := newGenerator(rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // no secret is made of it
	seen := tally{}
	for i := range operations {
		op := made.next()
		d, err := inside.Do(t.Context(), op.key, op.cmd)
		want := answerOf(&op, d, err)
		seen.note("go", &op, want)
		for _, door := range doors {
			got, err := door.ask(&op)
			if err != nil {
				t.Fatalf("operation %d of seed %d, %s, by %s: %v", i, seed, &op, door.name(), err)
			}
			seen.note(door.name(), &op, got)
			if bad := want.compare(got); bad != "" {
				t.Fatalf("operation %d of seed %d, %s, at %s:\n%s tells %s\nGo says %s\nnot the same: %s",
					i, seed, &op, clock.now(), door.name(), got, want, bad)
			}
		}
		clock.advance(made.pause())
	}
	seen.check(t)
	for kind := gatehouse.TokenBucket; kind < gatehouse.Grant; kind++ {
		want, err := inside.Names(t.Context(), kind, "", 1000)
		if err != nil || len(want) == 0 {
			t.Fatalf("names of %s = %q, %v, want some", kind, want, err)
		}
		for _, door := range doors {
			if got, err := door.list(kind); err != nil || !slices.Equal(got, want) {
				t.Errorf("names of %s by %s = %q, %v, want %q", kind, door.name(), got, err, want)
			}
		}
	}
}

// A door is a way to a gate.
type door interface {
	name() string
	// ask does an operation, and returns what the wire tells of the decision.
	ask(op *operation) (answer, error)
	// list returns the names of a kind.
	list(kind gatehouse.Kind) ([]string, error)
}

// Turns are two doors to one gate, taken in turns: one name is one controller at both.
type turns struct {
	doors []door
	asked int
}

func (w *turns) name() string { return "both" }

func (w *turns) ask(op *operation) (answer, error) {
	w.asked++
	return w.doors[w.asked%len(w.doors)].ask(op)
}

func (w *turns) list(kind gatehouse.Kind) ([]string, error) { return w.doors[0].list(kind) }

// A clock goes when it is told to.
type clock struct{ at atomic.Int64 }

func newClock(start time.Time) *clock {
	c := new(clock)
	c.at.Store(start.UnixNano())
	return c
}

func (c *clock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// newGate returns a gate on a store of its own that has the clock. Names are forgotten by real timers,
// which must not fire meanwhile.
func newGate(c *clock) *gate.Gate {
	return gate.New(memory.New(memory.Config{Now: c.now, Linger: 24 * time.Hour}), gate.Config{})
}

func openHTTP(t *testing.T, g *gate.Gate) door {
	t.Helper()
	return newHTTPDoor(t, serveHTTP(t, g))
}

func openClient(t *testing.T, g *gate.Gate) door {
	t.Helper()
	return newClientDoor(t, serveHTTP(t, g))
}

// serveHTTP runs a gate behind HTTP until the test ends.
func serveHTTP(t *testing.T, g *gate.Gate) (address string) {
	t.Helper()
	server, err := httpfront.New(httpfront.Config{Gate: g, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Serve(t, server)
}

func openRESP(t *testing.T, g *gate.Gate) door {
	t.Helper()
	server, err := resp.New(resp.Config{Gate: g, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return newRESPDoor(t, servertest.Serve(t, server))
}

// A tally counts what was seen, so that a test that compares nothing does not pass.
type tally map[string]int

func (s tally) note(door string, op *operation, a answer) {
	s[door+" "+a.outcome]++
	s[fmt.Sprintf("%s %s %s", door, op.key.Kind, a.outcome)]++
	s[fmt.Sprintf("%s %s %s", door, op.key.Kind, op.cmd.Op)]++
	for figure := range a.figures {
		name, _, _ := strings.Cut(figure, " ")
		s[door+" "+name]++
	}
}

// told are the figures that each wire is to tell.
var told = map[string][]string{
	"HTTP": {
		"limit", "remaining", "retry_s", "reset_s", "delay_ms", "value", "fence", "key", "message", "text",
		"stat", "expires_ms",
	},
	"RESP": {
		"limit", "remaining", "retry_ms", "reset_ms", "delay_ms", "value", "fence", "key", "message", "text",
		"stat", "expires_ms", "cell_retry", "cell_reset",
	},
	"client": {
		"limit", "remaining", "retry_ms", "reset_ms", "delay_ms", "value", "fence", "key", "message", "text",
		"stat", "expires_ms",
	},
}

// few is how often everything is to be met at least.
const few = 3

// check looks whether every operation and outcome, and everything that a wire can tell, was met.
func (s tally) check(t *testing.T) {
	t.Helper()
	var wanted []string
	for kind := gatehouse.TokenBucket; kind < gatehouse.Grant; kind++ {
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			// What operators do and look at is POST alone in one door. It has tests of its own, and so have
			// reports of third parties, which would pause most of what follows.
			operators := op >= gatehouse.OpEvict && op <= gatehouse.OpWaiters
			if kind.Has(op) && !operators && op != gatehouse.OpFeedback {
				wanted = append(wanted, fmt.Sprintf("go %s %s", kind, op))
			}
		}
		if kind != gatehouse.Counter {
			wanted = append(wanted, fmt.Sprintf("go %s refused", kind))
		}
	}
	for door, figures := range told {
		for _, what := range slices.Concat(figures, []string{
			"granted", "refused", "conflict", "missing", "invalid",
		}) {
			wanted = append(wanted, door+" "+what)
		}
	}
	for _, what := range wanted {
		if s[what] < few {
			t.Errorf("%q was met %d times, want at least %d", what, s[what], few)
		}
	}
}
