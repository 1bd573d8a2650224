//go:build linux || darwin

// Package holds kills, stops and cuts off real processes that hold a lock, and their server, and sees that no
// two of them ever hold it at once.
package holds

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/servertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerAddress) != "" {
		runWorker()
		return
	}
	os.Exit(m.Run())
}

// workers is how many processes want the lock.
const workers = 3

// rounds is how many holds are seen with faults, and how many without: few, unless HOLDS says how many.
func rounds() (calm, faulty int) {
	if n, err := strconv.Atoi(os.Getenv("HOLDS")); err == nil && n > 0 {
		return n, n
	}
	return 100, 20
}

// A holding is what a worker said of one hold.
type holding struct {
	fence         uint64
	worker        int
	begin, last   time.Duration // when it was known to be held, and when its holder acted last
	known         time.Duration // when its holder knew that it was over; 0 if it was killed before
	lost, stopped bool
}

// A fleet is a server, the network before it and its clients.
type fleet struct {
	t       *testing.T
	binary  string
	folder  string
	faults  bool
	port    string
	random  *rand.Rand
	server  *exec.Cmd
	lines   []*line
	clients []*exec.Cmd
	inputs  []io.WriteCloser
	readers sync.WaitGroup

	mu       sync.Mutex
	holdings map[uint64]*holding
	clean    int // workers that left nothing behind
}

// TestHolds has processes hold one lock in turn, at first undisturbed, and then while they, the server and
// what is between them are killed, stopped and cut off.
func TestHolds(t *testing.T) {
	binary, err := servertest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	calm, faulty := rounds()
	t.Run("calm", func(t *testing.T) { playHolds(t, binary, calm, false) })
	t.Run("faults", func(t *testing.T) { playHolds(t, binary, faulty, true) })
}

func playHolds(t *testing.T, binary string, wanted int, faults bool) {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	f := &fleet{
		t: t, binary: binary, folder: t.TempDir(), faults: faults, holdings: map[uint64]*holding{},
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // no secret is made of it
	}
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	f.port = address[strings.LastIndex(address, ":")+1:]
	f.startServer()
	defer func() { f.stopServer() }()
	for i := range workers {
		f.lines = append(f.lines, openLine(t, "localhost:"+f.port))
		f.clients, f.inputs = append(f.clients, nil), append(f.inputs, nil)
		f.startWorker(i)
	}
	counts := map[string]int{}
	for f.seen() < wanted {
		seen := f.seen()
		if faults {
			counts[f.disturb()]++
			// A fault meets what goes on: so it waits until something does again.
			await.True(t, "the lock is held again", func() bool { return f.seen() > seen })
			continue
		}
		await.True(t, "enough have held the lock", func() bool { return f.seen() >= wanted })
	}
	f.stopWorkers()
	f.judge(counts)
}

func (f *fleet) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.holdings)
}

// startServer starts the server, with what it had on its disk before.
func (f *fleet) startServer() {
	f.t.Helper()
	f.server = exec.CommandContext(context.WithoutCancel(f.t.Context()), f.binary, "serve",
		"--http", "localhost:"+f.port, "--resp", "", "--grpc", "", "--store", "disk:"+f.folder)
	if err := f.server.Start(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) stopServer() {
	_ = f.server.Process.Kill()
	_ = f.server.Wait() // it was killed
}

// startWorker starts a client, and reads what it says.
func (f *fleet) startWorker(i int) {
	f.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), workerAddress+"="+f.lines[i].address())
	if f.faults {
		cmd.Env = append(cmd.Env, workerLong+"=1")
	}
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	f.inputs[i], err = cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.clients[i] = cmd
	f.readers.Go(func() {
		for said := bufio.NewScanner(output); said.Scan(); {
			f.note(i, said.Text())
		}
	})
}

// note notes what a worker said. The last line of one that was killed may be half of one.
func (f *fleet) note(worker int, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var h holding
	reason := ""
	if n, _ := fmt.Sscanf(text, "begin %d %d", &h.fence, &h.begin); n == 2 {
		h.worker, h.last = worker, h.begin
		f.holdings[h.fence] = &h
		return
	}
	n, _ := fmt.Sscanf(text, "end %d %d %d %t %t %q", &h.fence, &h.last, &h.known, &h.lost, &h.stopped,
		&reason)
	known := f.holdings[h.fence]
	switch {
	case n == 6 && known != nil:
		known.last, known.known, known.lost, known.stopped = h.last, h.known, h.lost, h.stopped
	case text == "left nothing":
		f.clean++
	case strings.HasPrefix(text, "left"):
		f.t.Errorf("worker %d: %s", worker, text)
	}
}

// stopWorkers ends the clients in order.
func (f *fleet) stopWorkers() {
	f.t.Helper()
	for _, input := range f.inputs {
		_ = input.Close()
	}
	f.readers.Wait()
	for _, cmd := range f.clients {
		if err := cmd.Wait(); err != nil {
			f.t.Errorf("a worker ended with %v", err)
		}
	}
	for _, l := range f.lines {
		l.close()
	}
	if f.clean != workers {
		f.t.Errorf("%d of %d workers left nothing behind", f.clean, workers)
	}
}

// upTo is a random time.
func (f *fleet) upTo(most time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(most)))
}

// disturb has one thing go wrong, for a time, and returns what it was.
func (f *fleet) disturb() (what string) {
	i := f.random.IntN(workers)
	worker, between := f.clients[i], f.lines[i]
	time.Sleep(f.upTo(term / 2))
	switch f.random.IntN(6) {
	case 0:
		_ = worker.Process.Signal(syscall.SIGSTOP)
		time.Sleep(f.upTo(3 * term))
		_ = worker.Process.Signal(syscall.SIGCONT)
		return "client stopped"
	case 1:
		_ = worker.Process.Kill()
		_ = worker.Wait() // it was killed
		f.startWorker(i)
		return "client killed"
	case 2:
		_ = f.server.Process.Signal(syscall.SIGSTOP)
		time.Sleep(f.upTo(2 * term))
		_ = f.server.Process.Signal(syscall.SIGCONT)
		return "server stopped"
	case 3:
		f.stopServer()
		time.Sleep(f.upTo(term))
		f.startServer()
		return "server killed"
	case 4:
		between.cut()
		return "connections cut"
	}
	between.hang(true)
	time.Sleep(f.upTo(3 * term))
	between.hang(false)
	return "line silent"
}

// judge looks whether each hold was over for its holder before the next one began.
func (f *fleet) judge(faults map[string]int) {
	f.t.Helper()
	all := make([]*holding, 0, len(f.holdings))
	for _, h := range f.holdings {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *holding) int { return int(a.begin - b.begin) })
	lost, stopped, least := 0, 0, time.Hour
	for i, h := range all {
		if h.stopped {
			stopped++
		}
		if h.lost {
			lost++
		}
		if i == 0 {
			continue
		}
		before := all[i-1]
		if before.fence >= h.fence {
			f.t.Errorf("hold %d begins behind %d", h.fence, before.fence)
		}
		if before.last > h.begin {
			f.t.Errorf("two at once: worker %d acts on hold %d %s after worker %d has got %d", before.worker,
				before.fence, before.last-h.begin, h.worker, h.fence)
		}
		// A process that does not run knows nothing.
		if before.lost && !before.stopped && before.known > 0 {
			least = min(least, h.begin-before.known)
		}
	}
	known := "no loss to be measured"
	if least < time.Hour {
		known = fmt.Sprintf("a loss was known %s before the next hold and more", least)
	}
	f.t.Logf("%d holds, %d lost, in %d of all the process was stopped; %s; faults: %v", len(all), lost,
		stopped, known, faults)
	if least < 0 {
		f.t.Errorf("a loss was known %s after the next hold began", -least)
	}
}
