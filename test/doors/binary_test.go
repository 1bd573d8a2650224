package doors

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/servertest"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// TestBinary puts a sequence of random operations to the built program, now over HTTP and now over RESP,
// and to a gate in this process. Its clock cannot be set; so nothing here comes back by itself within
// the test, and times are not compared.
func TestBinary(t *testing.T) {
	t.Parallel()
	addresses := launch(t)
	built := &turns{doors: []door{newHTTPDoor(t, addresses["HTTP"]), newRESPDoor(t, addresses["RESP"])}}
	inside := gate.New(memory.New(memory.Config{}), gate.Config{})
	made := newGenerator(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // no secret is made of it
	made.still = true
	seen := tally{}
	for i := range operations / 3 {
		op := made.next()
		d, err := inside.Do(t.Context(), op.key, op.cmd)
		want := answerOf(&op, d, err)
		got, err := built.ask(&op)
		if err != nil {
			t.Fatalf("operation %d of seed %d, %s: %v", i, seed, &op, err)
		}
		got.forgetTimes()
		seen.note("both", &op, got)
		if bad := want.compare(got); bad != "" {
			t.Fatalf("operation %d of seed %d, %s:\nthe program tells %s\nGo says %s\nnot the same: %s",
				i, seed, &op, got, want, bad)
		}
	}
	for _, what := range []string{
		"granted", "refused", "conflict", "missing", "invalid", "limit", "remaining", "value", "key",
		"message", "text", "stat",
	} {
		if seen["both "+what] < few {
			t.Errorf("%q was met %d times, want at least %d", what, seen["both "+what], few)
		}
	}
}

// forgetTimes drops the figures that depend on when something happened, and the id of a refusal, which a gate
// without a server has not.
func (a answer) forgetTimes() {
	for name := range a.figures {
		figure, stat, _ := strings.Cut(name, " ")
		if strings.HasSuffix(figure, "_s") || strings.HasSuffix(figure, "_ms") || figure == "fence" ||
			figure == "decision" || strings.HasPrefix(figure, "cell_") ||
			stat == "created_at" || stat == "last_kick" {
			delete(a.figures, name)
		}
	}
}

// launch builds the program and starts it with both doors open. At the end of the test it must stop
// without complaint. It returns the addresses by protocol.
func launch(t *testing.T) map[string]string {
	t.Helper()
	binary, err := servertest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	cmd := exec.CommandContext(ctx, binary, "serve",
		"--http", "localhost:0", "--resp", "localhost:0", "--grpc", "", "--log-format", "json",
		"--max-connections", "200")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GATEHOUSE_") || strings.HasPrefix(variable, "BOUNCER_")
	})
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	journal := bufio.NewScanner(pipe)
	t.Cleanup(func() {
		defer cancel()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait tells
		said := ""
		for journal.Scan() {
			said += journal.Text() + "\n"
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v and said\n%s", err, said)
		}
	})
	addresses := map[string]string{}
	for len(addresses) < 2 {
		if !journal.Scan() {
			t.Fatalf("the program told the addresses %v and no more, want HTTP and RESP", addresses)
		}
		var entry struct{ Msg, Address string }
		if json.Unmarshal(journal.Bytes(), &entry) != nil || entry.Address == "" {
			t.Fatalf("the program said %q, want where it serves", journal.Text())
		}
		addresses[strings.TrimPrefix(entry.Msg, "serving ")] = entry.Address
	}
	return addresses
}
