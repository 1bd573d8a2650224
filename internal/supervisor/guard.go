//go:build linux || darwin

package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// The guard has the two pipes to the wrapper as these files.
const (
	ordersFile  = 3
	reportsFile = 4
)

// A guard runs the command, and ends it at the deadline.
//
//	waiting ──start──▶ running ──┬─ the command ended ────────────┐
//	                             ├─ deadline, or told to stop ────┼──SIGTERM──▶ ending ──no child──▶ done
//	                             └─ the wrapper has died ─────────┘
//
// While it ends, SIGKILL follows at the deadline, or after the grace.
type guard struct {
	reports *json.Encoder
	group   int  // the process group of the command, which is its process too
	exit    Exit // how the command ended
	exited  bool
	orphan  bool // the wrapper has died

	ending  bool // SIGTERM was sent
	killing bool // SIGKILL was sent, and is sent to all that still appear

	terminate, kill *time.Timer
	killAt          time.Duration
}

// A reaped is a child of the guard that has ended.
type reaped struct {
	pid    int
	status syscall.WaitStatus
}

// RunGuard is the main function of the guard's process, which [Start] starts. It returns when the command and
// its descendants have ended. If the wrapper has died, it returns what the command had in Release; else nil.
func RunGuard() json.RawMessage {
	// A parent's death signal goes by the thread that started the child, so that thread must live on.
	runtime.LockOSThread()
	// Until it has a session, the guard is in the group of the wrapper and gets what keys and shells send it.
	// A handled signal has its default effect again in the command; an ignored one would stay ignored.
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGTSTP, syscall.SIGPIPE} {
		if !signal.Ignored(s) { // as nohup has it, for the command
			signal.Notify(signals, s)
		}
	}

	orders := readOrders(os.NewFile(ordersFile, "orders"))
	reports := os.NewFile(reportsFile, "reports")
	for _, file := range []uintptr{ordersFile, reportsFile} {
		syscall.CloseOnExec(int(file))
	}
	g := &guard{reports: json.NewEncoder(reports)}
	g.sendReport(report{Ready: true})
	first, ok := <-orders
	if !ok || first.Start == nil || first.Deadline == nil {
		return nil // the wrapper was told to stop, or has died, before the command started
	}
	if Now() >= first.Deadline.Terminate {
		// The wrapper or the machine stood still: others may be granted what the command needs.
		g.sendReport(report{Exit: &Exit{Status: statusNotStarted, Overdue: true}})
		return nil
	}
	becomeSubreaper()
	first.Start.Path = string(first.Path)
	first.Start.Args, first.Start.Env = textsOf(first.Args), textsOf(first.Env)
	children, err := g.startCommand(first.Start)
	if err != nil {
		g.sendReport(report{Exit: &Exit{Status: startStatus(err), Err: err.Error()}})
		return nil
	}
	g.superviseCommand(*first.Deadline, orders, children)
	g.sendReport(report{Exit: &g.exit})
	if !g.orphan {
		return nil
	}
	return first.Start.Release
}

// statusNotStarted is the status of a command whose deadline came before it was started: that of one which
// SIGTERM has ended.
const statusNotStarted = 128 + int(syscall.SIGTERM)

// textsOf are the texts that were sent as bytes.
func textsOf(all [][]byte) []string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = string(all[i])
	}
	return texts
}

// readOrders reads what the wrapper says. The channel is closed when the wrapper has died.
func readOrders(from *os.File) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		lines := json.NewDecoder(bufio.NewReader(from))
		for {
			var next order
			if err := lines.Decode(&next); err != nil {
				return
			}
			orders <- next
		}
	}()
	return orders
}

// startCommand starts the command, moves the guard into a session of its own, and returns what becomes of its
// children. The channel is closed when there are none.
func (g *guard) startCommand(p *Program) (<-chan reaped, error) {
	tty := openTerminal()
	// Package os/exec would do the same, and be initialized after the libraries of the server.
	process, err := os.StartProcess(p.Path, p.Args, &os.ProcAttr{
		Env:   p.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   commandAttributes(tty),
	})
	if err != nil {
		return nil, err
	}
	tty.close()
	g.group = process.Pid
	// Only now: a new session has no terminal, and the command is to keep the one of the wrapper. In a
	// session of its own, no terminal and no shell signals the guard.
	if _, err := syscall.Setsid(); err != nil {
		g.signalAll(syscall.SIGKILL)
		return nil, err
	}
	g.sendReport(report{Started: g.group})
	// A reader of the command's output waits until no process has it open.
	closeStandardFiles()

	children := make(chan reaped)
	go func() {
		defer close(children)
		for {
			var child reaped
			var err error
			child.pid, err = syscall.Wait4(-1, &child.status, 0, nil)
			switch {
			case err == nil:
				children <- child
			case !errors.Is(err, syscall.EINTR):
				return // ECHILD: all have ended
			}
		}
	}()
	return children, nil
}

// commandAttributes start the command in a process group of its own, in the foreground of the terminal if the
// wrapper is there.
func commandAttributes(tty *terminal) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	if tty.inForeground() {
		attributes.Foreground, attributes.Ctty = true, int(tty.file.Fd())
		// The new group is in the background as it asks for the foreground, and would be stopped for that.
		// The command goes on to ignore the signal, which is of no use to it: a group whose parents are all
		// in other sessions is never stopped by the terminal.
		signal.Ignore(syscall.SIGTTOU)
	}
	return attributes
}

// startStatus returns the exit status that a shell has for a command it could not start.
func startStatus(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		// As sh and bash have it, by which scripts tell the two apart.
		return 127
	}
	return 126
}

// superviseCommand waits until the command and all its descendants have ended, and sees to it that they do.
func (g *guard) superviseCommand(first Deadline, orders <-chan order, children <-chan reaped) {
	g.terminate, g.kill = time.NewTimer(0), time.NewTimer(0)
	g.moveDeadline(first)
	for {
		select {
		case next, ok := <-orders:
			if ok {
				g.followOrder(next)
				continue
			}
			// The wrapper has died: nothing renews the hold or passes on a signal.
			orders = nil
			g.orphan = true
			g.endCommand(LeftoverGrace)
		case <-g.terminate.C:
			g.exit.Overdue = !g.exited
			g.endCommand(g.killAt - Now())
		case <-g.kill.C:
			g.killing = true
			g.signalAll(syscall.SIGKILL)
		case child, ok := <-children:
			if !ok {
				// Where there is no subreaper, the others of the group are still there.
				_ = syscall.Kill(-g.group, syscall.SIGKILL)
				return
			}
			g.noteChild(child)
		}
	}
}

// followOrder does what the wrapper says.
func (g *guard) followOrder(next order) {
	if next.Deadline != nil {
		g.moveDeadline(*next.Deadline)
	}
	// After its end the group may be that of another command.
	if next.Signal != 0 && !g.exited {
		_ = syscall.Kill(-g.group, syscall.Signal(next.Signal))
	}
	if next.Stop {
		g.endCommand(g.killAt - Now())
	}
}

// moveDeadline sets both timers. It does nothing once the command is being ended.
func (g *guard) moveDeadline(to Deadline) {
	if g.ending {
		return
	}
	now := Now()
	g.killAt = to.Kill
	g.terminate.Reset(to.Terminate - now)
	g.kill.Reset(to.Kill - now)
}

// endCommand sends SIGTERM to all that runs, and has SIGKILL follow after at most grace.
func (g *guard) endCommand(grace time.Duration) {
	if g.ending {
		return
	}
	g.ending = true
	g.terminate.Stop()
	g.kill.Reset(min(grace, g.killAt-Now()))
	g.signalAll(syscall.SIGTERM)
	g.signalAll(syscall.SIGCONT) // a stopped process acts on SIGTERM only when it continues
}

// noteChild notes what became of a child of the guard: of the command, or of a descendant without a parent.
func (g *guard) noteChild(child reaped) {
	if child.pid == g.group {
		g.exited = true
		g.exit.Status = child.status.ExitStatus()
		if child.status.Signaled() {
			g.exit.Status = 128 + int(child.status.Signal())
		}
		// What it left in the background must not outlive the lease either.
		g.endCommand(LeftoverGrace)
	}
	// Its children are the guard's now. One that was born while the others were killed is killed here.
	if g.killing {
		g.signalAll(syscall.SIGKILL)
	}
}

// signalAll sends a signal to the process group of the command and to all other descendants of the guard.
func (g *guard) signalAll(s syscall.Signal) {
	_ = syscall.Kill(-g.group, s)
	for _, p := range descendants() {
		if p.group != g.group {
			_ = syscall.Kill(p.pid, s)
		}
	}
}

// sendReport sends the wrapper a report. It fails only if the wrapper has died, which readOrders notices.
func (g *guard) sendReport(r report) { _ = g.reports.Encode(r) }

// closeStandardFiles has the guard hold the input and output of the command open no longer.
func closeStandardFiles() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = null.Close() }()
	for file := range 3 {
		_ = dup(int(null.Fd()), file)
	}
}
