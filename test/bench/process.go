package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cores returns the core that servers run on and the one for their clients.
func cores() (server, client string, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return "", "", fmt.Errorf("asking for the cores there are: %w", err)
	}
	var all []string
	// Numbers of allowed cores may have gaps, so it counts what it has found.
	for i := 0; len(all) < allowed.Count(); i++ {
		if allowed.IsSet(i) {
			all = append(all, strconv.Itoa(i))
		}
	}
	// With a single core both are the same: the figures still come out, because they are CPU time of the
	// server.
	return all[0], all[len(all)-1], nil
}

// pinned is a program that runs on one core.
func pinned(ctx context.Context, core string, command ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", core}, command...)...)
	// taskset bounds where threads run, GOMAXPROCS how many Go uses: with more it would pay for switching
	// between them.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	// SIGTERM, not the SIGKILL of package exec: nginx has to stop its worker, which would live on.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// A server is a process that is measured.
type server struct {
	address string
	pid     int
	stop    func()
}

// start runs a server on its core until it, or b, is stopped. command gets the address to listen on.
func (b *bench) start(ctx context.Context, command func(address string) []string) (*server, error) {
	core, _, err := cores()
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := pinned(ctx, core, command(address)...)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting a server: %w", err)
	}
	// Registered before it listens, so that b.stop ends it also when it never does.
	s := &server{address: address, pid: cmd.Process.Pid, stop: func() {
		cancel()
		_ = cmd.Wait() // it was killed, and says so
	}}
	b.servers = append(b.servers, s)
	// Trying to connect is the only sign of readiness that all of these servers give.
	for range 500 {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return s, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("%v does not listen on %s after 5 s", cmd.Args, address)
}

// stop stops all servers that still run.
func (b *bench) stop() {
	for _, s := range b.servers {
		s.stop()
	}
	b.servers = nil
}

func freeAddress(ctx context.Context) (string, error) {
	// The kernel picks a port and it is free again at once. Another process could take it meanwhile, which
	// here is only unlikely.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// role is a command that runs this program as something else.
func (b *bench) role(name string) func(address string) []string {
	return func(address string) []string { return []string{b.self, "-as", name, address} }
}

// manyPerAddress lets all connections come from one address.
const manyPerAddress = "--max-connections-per-address=20000"

// gatehouse is a command that runs the server built from here.
func (b *bench) gatehouse(address string) []string {
	return []string{
		b.ours, "serve", "--log-level", "error", "--http", address, "--resp", "", "--grpc", "", manyPerAddress,
	}
}

// cpu returns the CPU time, in user mode and in the kernel, that the server has used, its child
// processes included. Unlike the sum in /proc/PID/stat it is not in steps of 10 ms.
func (s *server) cpu() (time.Duration, error) {
	// nginx does its work in a child; all others have none.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.pid, s.pid))
	if err != nil {
		return 0, err
	}
	total := time.Duration(0)
	for _, pid := range append(strings.Fields(string(children)), strconv.Itoa(s.pid)) {
		threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		// The schedstat of a process is only that of its first thread, so all threads are added.
		if err != nil || len(threads) == 0 {
			return 0, fmt.Errorf("process %s has no schedstat: %w", pid, err)
		}
		for _, thread := range threads {
			n, err := strconv.Atoi(match(thread, `^(\d+)`))
			if err != nil {
				return 0, fmt.Errorf("CPU time of process %s: %w", pid, err)
			}
			total += time.Duration(n)
		}
	}
	return total, nil
}

// resident returns how much memory the server occupies, in bytes.
func (s *server) resident() (float64, error) {
	kib, err := strconv.Atoi(match(fmt.Sprintf("/proc/%d/status", s.pid), `VmRSS:\s+(\d+) kB`))
	return float64(kib) * (1 << 10), err
}

// play makes this program one of the processes that a bench starts.
func play(role string, args []string) error {
	switch {
	case role == "fasthttp" && len(args) == 1:
		return serveFasthttp(args[0])
	case role == "posts" && len(args) == 1:
		return servePosts(args[0])
	case role == "gnet" && len(args) == 1:
		return serveGnet(args[0])
	case role == "sockets" && len(args) == 1:
		return serveSockets(args[0])
	case role == "answers" && len(args) == 1:
		return serveAnswers(args[0])
	case role == "health" && len(args) == 1:
		return serveHealth(args[0])
	case role == "leases" && len(args) == 2:
		return callCapacity(args[0], args[1])
	// The roles of clients take a number behind the address; those above are servers, and the leases, whose
	// second argument is a text.
	case len(args) == 2:
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		switch role {
		case "clients":
			return waitAsClients(args[0], count)
		case "blocked":
			return blockAsClients(args[0], count)
		case "callers":
			return callAsClients(args[0], count)
		}
	}
	return errors.New("-as is for what this program starts itself")
}
