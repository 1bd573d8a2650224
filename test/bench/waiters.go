package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// waiters measures connections that wait for an event: their memory, and what waking them costs.
func waiters(ctx context.Context, b *bench) (text string, rows []row, err error) {
	count, err := b.waiterCount()
	if err != nil {
		return "", nil, err
	}
	var floor, ours waitResults
	// Not race: one round of one server yields five figures at once.
	for range b.rounds {
		if err := b.waitRound(ctx, &floor, b.role("sockets"), count); err != nil {
			return "", nil, err
		}
		if err := b.waitRound(ctx, &ours, b.gatehouse, count); err != nil {
			return "", nil, err
		}
	}
	memory := budget{most: 2.5 * (1 << 10), absolute: true}
	wake := budget{most: 11e3, absolute: true}
	rows = []row{
		{"resident memory, each", floor.resident, ours.resident, bytes, memory, "bouncer: 20 KiB"},
		{"heap and stacks after a collection, each", nil, ours.inUse, bytes, memory, ""},
		{"CPU of all while they wait for " + b.idle().String(), nil, ours.idle, nanoseconds, budget{}, ""},
		{"CPU to wake them, each", floor.wake, ours.wake, nanoseconds, wake, "bouncer: 30 to 40 µs"},
		{"from the send to the last answer", floor.last, ours.last, nanoseconds, budget{}, ""},
	}
	text = fmt.Sprintf("%d connections wait for one event, which is then sent. The server has one core;\n"+
		"the clients, all in one other process, have another. The floor is a server that keeps the bare\n"+
		"connections in a slice and answers each with one `Write`. The memory that the kernel has for\n"+
		"each socket is in none of the figures. bouncer was measured elsewhere.", count)
	return text, rows, nil
}

func (b *bench) idle() time.Duration { return time.Duration(b.scale(5, 1)) * time.Second }

// waiterCount is 10000, or as many as may be open.
func (b *bench) waiterCount() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("asking for the limit of open files: %w", err)
	}
	// The server needs some descriptors besides its connections: its files, its listener, and those for the
	// metrics.
	const others = 100
	return min(b.scale(10_000, 1_000), int(limit.Max)-others), nil //nolint:gosec // far below 1<<63
}

// waitResults are the figures of one server, a round each.
type waitResults struct {
	resident, inUse  series // bytes of each waiter
	idle, wake, last series // nanoseconds: of all, of each, of all
}

// waitRound measures one server once.
func (b *bench) waitRound(
	ctx context.Context, results *waitResults, command func(string) []string, count int,
) error {
	s, err := b.start(ctx, command)
	if err != nil {
		return err
	}
	defer s.stop()
	// What the server occupies without waiters is not theirs; the difference is.
	before, err := s.memory(ctx)
	if err != nil {
		return err
	}
	c, err := b.startClients(ctx, "clients", s.address, count)
	if err != nil {
		return err
	}
	defer c.stop()
	time.Sleep(time.Duration(b.scale(3, 1)) * time.Second) // goroutines kept for the next request end
	// After the rest above, so that the work of accepting the connections is not in it.
	idle, err := s.cpuWhile(func() error { time.Sleep(b.idle()); return nil })
	if err != nil {
		return err
	}
	after, err := s.memory(ctx)
	if err != nil {
		return err
	}
	// 0 is a server that does not tell. Any other number below count means that some were refused or
	// answered early.
	if after.waiting != 0 && after.waiting != float64(count) {
		return fmt.Errorf("%.0f wait, want %d", after.waiting, count)
	}
	// Two figures of one event: the CPU time of the server, and the time on the clock until the last client
	// has its answer.
	last := time.Duration(0)
	wake, err := s.cpuWhile(func() (err error) { last, err = c.send(); return err })
	if err != nil {
		return err
	}
	n := float64(count)
	results.resident = append(results.resident, (after.resident-before.resident)/n)
	results.inUse = append(results.inUse, (after.inUse-before.inUse)/n)
	results.idle = append(results.idle, float64(idle))
	results.wake = append(results.wake, float64(wake)/n)
	results.last = append(results.last, float64(last))
	return nil
}

// cpuWhile returns the CPU time that the server uses while do runs.
func (s *server) cpuWhile(do func() error) (time.Duration, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return after - before, err
}

// A serverUsage is what a server occupies.
type serverUsage struct {
	resident float64 // bytes
	inUse    float64 // bytes of heap and stacks after a collection; 0 when the server does not tell
	waiting  float64 // requests in line; 0 when the server does not tell
}

// memory asks for what a server occupies now. Resident is read first: the answers with the metrics
// are garbage. It is by asking for enough of them that the server is made to collect it, and the
// least that it tells meanwhile is what it has in use right after a collection.
func (s *server) memory(ctx context.Context) (u serverUsage, err error) {
	u.resident, err = s.resident()
	if err != nil {
		return u, err
	}
	m, err := s.metrics(ctx)
	// The floor has no metrics: the zeros in u then mean that it does not tell.
	if err != nil || m == nil {
		return u, err
	}
	const collections = "go_gc_duration_seconds_count"
	u.inUse = math.Inf(1)
	for first := m[collections]; m[collections] < first+3; {
		m, err = s.metrics(ctx)
		if err != nil {
			return u, err
		}
		u.inUse = min(u.inUse, m["go_memstats_heap_inuse_bytes"]+m["go_memstats_stack_inuse_bytes"])
	}
	u.waiting = m["gatehouse_waiting"]
	return u, nil
}

// metrics are the server's figures by name, nil when it has none.
func (s *server) metrics(ctx context.Context) (map[string]float64, error) {
	response, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it is read to its end, or of no use
	if response.StatusCode != http.StatusOK {
		return nil, nil //nolint:nilnil // no metrics and no failure
	}
	text, err := io.ReadAll(response.Body)
	all := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		// Lines of comments have no number behind the first space, so they drop out by themselves.
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if x, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = x
		}
	}
	return all, err
}

// clients are a process that has all the connections.
type clients struct {
	in   io.Writer
	out  *bufio.Reader
	stop func()
}

// startClients starts this program in a role that has connections, and returns when all have asked.
func (b *bench) startClients(ctx context.Context, role, address string, count int) (*clients, error) {
	_, core, err := cores()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := pinned(ctx, core, b.self, "-as", role, address, strconv.Itoa(count))
	// The clients and this program speak in lines over pipes: "ready" one way, "send" the other, the time
	// back.
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		cancel()
		return nil, fmt.Errorf("starting the clients: %w", err)
	}
	c := &clients{in, bufio.NewReader(out), func() { cancel(); _ = cmd.Wait() }}
	// The line comes when the last connection has asked. Measuring earlier would count the making of
	// connections.
	if _, err := c.out.ReadString('\n'); err != nil {
		c.stop()
		return nil, fmt.Errorf("waiting for the clients: %w", err)
	}
	return c, nil
}

// send has the event sent, and returns how long it took until all were answered.
func (c *clients) send() (time.Duration, error) {
	if _, err := fmt.Fprintln(c.in, "send"); err != nil {
		return 0, fmt.Errorf("telling the clients: %w", err)
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("waiting for the clients: %w", err)
	}
	return time.ParseDuration(strings.TrimSpace(answer))
}
