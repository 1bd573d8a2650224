package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// overlapVariable makes this program the command of a run; its value is the file that only one may hold.
const overlapVariable = "TESTED_OVERLAP"

// holdFile is the command: it holds the file for a while, and notes beside it when another one has it. The
// system lets go of the file when the process ends, however it does. Half of them ignore SIGTERM.
func holdFile(name string) int {
	if rand.N(2) == 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fail(os.WriteFile(fmt.Sprintf("%s.overlap.%d", name, os.Getpid()), nil, 0o600))
	}
	if err != nil {
		return fail(err)
	}
	time.Sleep(time.Duration(10+rand.N(60)) * time.Millisecond)
	return 0
}

// runRounds is how many rounds of runs are made: a few, or what RUN_ROUNDS says; a fifth of them with faults.
func runRounds() (calm, faulty int) {
	if rounds, err := strconv.Atoi(os.Getenv("RUN_ROUNDS")); err == nil {
		return rounds, rounds / 5
	}
	return 30, 10
}

// A roundOfRuns is what all rounds share.
type roundOfRuns struct {
	t    *testing.T
	at   string // where the server listens, also after a restart
	file string

	mu     sync.Mutex // one fault of the server at a time
	server *server
}

// TestRunsNeverOverlap has three hosts run one command after the other under one lock, kills and stops what
// takes part, and looks whether two commands were ever there at a time.
func TestRunsNeverOverlap(t *testing.T) {
	calm, faulty := runRounds()
	folder := t.TempDir()
	port := freePort(t)
	how := settings{flags: []string{"--http", "127.0.0.1:" + port, "--store", "disk:" + folder + "/data"}}
	r := &roundOfRuns{t: t, at: "127.0.0.1:" + port, file: filepath.Join(folder, "held")}
	s, err := launch(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	r.server = s
	t.Cleanup(func() {
		_ = r.server.process.Kill()
		<-r.server.ended
	})

	gap := watchClock(t.Context().Done())
	r.play(calm, "2s", func(*exec.Cmd) {})
	overlaps := r.overlaps()
	r.play(faulty, "500ms", func(run *exec.Cmd) { r.disturb(run, how) })
	all := r.overlaps()
	// A guard that did not run for a third of the term cannot keep it.
	apart := ""
	if longest := gap(); longest > 500*time.Millisecond/3 {
		apart = fmt.Sprintf("; a process stood still for %s, which is more than a third of the term", longest)
	}
	t.Logf("%d calm rounds and %d with faults ended; overlaps: %d and %d%s", calm, faulty, overlaps,
		all-overlaps, apart)
	if overlaps > 0 || all > overlaps && apart == "" {
		t.Error("two commands were there at a time")
	}
}

// overlaps is how often a command found another one there.
func (r *roundOfRuns) overlaps() int {
	found, err := filepath.Glob(r.file + ".overlap.*")
	if err != nil {
		r.t.Fatal(err)
	}
	return len(found)
}

// play makes rounds of runs, three at a time.
func (r *roundOfRuns) play(rounds int, term string, fault func(run *exec.Cmd)) {
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	// A name of its own, to be killed by.
	if err := os.Symlink(self, r.file+".command"); err != nil && !errors.Is(err, os.ErrExist) {
		r.t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(rounds))
	var hosts sync.WaitGroup
	for range 3 {
		hosts.Go(func() {
			for left.Add(-1) >= 0 {
				run := exec.CommandContext(r.t.Context(), binary(), "run", "--quiet", "--server", r.at,
					"--lock", "rounds", "--expires", term, "--wait", "30s", "--", r.file+".command")
				run.Env = append(os.Environ(), overlapVariable+"="+r.file)
				if err := run.Start(); err != nil {
					r.t.Error(err)
					return
				}
				fault(run)
				_ = run.Wait() // any status will do
			}
		})
	}
	hosts.Wait()
}

// disturb does something to a run or to the server, at a random time.
func (r *roundOfRuns) disturb(run *exec.Cmd, how settings) {
	time.Sleep(time.Duration(rand.N(150)) * time.Millisecond)
	switch rand.N(6) {
	case 0: // the wrapper dies
		_ = run.Process.Kill()
	case 1: // the wrapper stands still for longer than its term
		_ = run.Process.Signal(syscall.SIGSTOP)
		time.Sleep(700 * time.Millisecond)
		_ = run.Process.Signal(syscall.SIGCONT)
	case 2: // the command dies
		_ = exec.CommandContext(r.t.Context(), "pkill", "-KILL", "-f", "^"+r.file+".command$").Run()
	case 3: // the server starts again
		r.restartServer(how)
	case 4: // the server stands still
		r.stopServer()
	}
}

// restartServer kills the server and starts it again.
func (r *roundOfRuns) restartServer(how settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.process.Kill()
	<-r.server.ended
	s, err := launch(r.t.Context(), how)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.server = s
}

// stopServer has the server stand still for longer than the term of a run.
func (r *roundOfRuns) stopServer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.process.Signal(syscall.SIGSTOP)
	time.Sleep(700 * time.Millisecond)
	_ = r.server.process.Signal(syscall.SIGCONT)
}

// watchClock looks at the clock again and again until done. The function it returns tells the longest time
// for which this process was not given a processor.
func watchClock(done <-chan struct{}) (longest func() time.Duration) {
	var most atomic.Int64
	go func() {
		const pause = 5 * time.Millisecond
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			now := time.Now()
			most.Store(max(most.Load(), int64(now.Sub(last)-pause)))
			last = now
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}
