//go:build linux || darwin

package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// statusGuardDied is the status of a command whose guard was killed, as if it had been killed itself.
const statusGuardDied = 128 + int(syscall.SIGKILL)

// A Child is a command that runs under a guard.
type Child struct {
	guard    *os.Process
	terminal *terminal // nil without one

	mu      sync.Mutex // for what is written
	orders  *json.Encoder
	pipe    *os.File
	killing *time.Timer // at the deadline, should the guard not have done it

	group atomic.Int64  // the process group of the command; 0 before it has started
	ready chan struct{} // closed when the guard can start the command
	late  atomic.Bool   // the guard has not kept the deadline
	done  chan struct{}
	exit  Exit
}

// Start starts the command under a guard. guard is the path of a program that calls [RunGuard], and its
// arguments. The command has the standard files, the working directory, the limits and the umask of this
// process, and its terminal if this process is in the foreground of it. It is not started if ctx ends before
// the guard is ready.
//
// This process becomes a subreaper, so that it may start only one child at a time. Until [Child.Wait] returns
// the caller must not wait for other processes.
func Start(ctx context.Context, guard []string, p Program, until Deadline) (*Child, error) {
	child, err := startGuard(guard, p.Output)
	if err != nil {
		return nil, err
	}
	select {
	case <-child.ready:
	case <-child.done:
		return nil, errors.New("the guard of the command ended before it was ready")
	case <-ctx.Done():
	}
	// Asked after the wait: both can have come.
	if ctx.Err() != nil {
		_ = child.pipe.Close() // a guard without orders ends
		<-child.done
		return nil, ctx.Err()
	}
	child.killing.Reset(until.Kill + overdue - Now())
	child.send(order{Start: &p, Path: []byte(p.Path), Args: bytesOf(p.Args), Env: bytesOf(p.Env),
		Deadline: &until})
	return child, nil
}

// bytesOf are texts as they are, whether or not they are UTF-8.
func bytesOf(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i := range texts {
		all[i] = []byte(texts[i])
	}
	return all
}

// startGuard starts a guard without a command.
func startGuard(guard []string, output *os.File) (*Child, error) {
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	reportsIn, reportsOut, err := os.Pipe()
	if err != nil {
		// This process keeps only its own ends: a guard that dies then closes the reports, and the other
		// way around.
		_, _ = ordersIn.Close(), ordersOut.Close()
		return nil, err
	}
	child := &Child{pipe: ordersOut, orders: json.NewEncoder(ordersOut),
		ready: make(chan struct{}), done: make(chan struct{})}
	// The guard knows the pipes by their numbers, which are their places in this list.
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr, ordersFile: ordersIn, reportsFile: reportsOut}
	if output != nil {
		files[1], files[2] = output, output
	}
	// Before the guard starts, as its command may be put into the foreground then.
	child.terminal = openTerminal()
	becomeSubreaper()
	child.guard, err = os.StartProcess(guard[0], guard, &os.ProcAttr{Files: files})
	_, _ = ordersIn.Close(), reportsOut.Close()
	if err != nil {
		_, _ = ordersOut.Close(), reportsIn.Close()
		return nil, err
	}
	// It is set by Start, once there is a deadline.
	child.killing = time.AfterFunc(time.Hour, child.killOverdue)
	child.killing.Stop()
	go child.readReports(reportsIn)
	return child, nil
}

// overdue is how long after the deadline the wrapper does what the guard should have done.
const overdue = 20 * time.Millisecond

// send gives the guard an order. It fails only if the guard has died, which readReports notices.
func (c *Child) send(next order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.orders.Encode(next)
}

// MoveDeadline lets the command run until another instant.
func (c *Child) MoveDeadline(to Deadline) {
	c.killing.Reset(to.Kill + overdue - Now())
	c.send(order{Deadline: &to})
}

// Signal passes a signal on to the process group of the command.
func (c *Child) Signal(s syscall.Signal) { c.send(order{Signal: int(s)}) }

// Stop has the command and its descendants end: SIGTERM now, SIGKILL at the deadline.
func (c *Child) Stop() { c.send(order{Stop: true}) }

// Wait waits until the command and its descendants have ended, and returns how the command did.
func (c *Child) Wait() Exit {
	<-c.done
	return c.exit
}

// readReports reads what the guard says, until it ends.
func (c *Child) readReports(from *os.File) {
	lines := json.NewDecoder(bufio.NewReader(from))
	var exit *Exit
	for exit == nil {
		// The end of the pipe without an exit says that the guard was killed.
		var next report
		if err := lines.Decode(&next); err != nil {
			break
		}
		switch {
		case next.Ready:
			close(c.ready)
		case next.Started != 0:
			c.group.Store(int64(next.Started))
		case next.Exit != nil:
			exit = next.Exit
		}
	}
	c.finish(exit)
	_ = from.Close()
}

// finish cleans up after the guard. Without a last report, it was killed.
func (c *Child) finish(exit *Exit) {
	if exit == nil {
		exit = &Exit{Status: statusGuardDied, Overdue: c.late.Load()}
		if !exit.Overdue {
			exit.Err = "the guard of the command was killed"
		}
		c.killAll()
	}
	// From now on the number of the group may be that of another command.
	c.killing.Stop()
	_, _ = c.guard.Wait()
	c.reapOrphans()
	_ = c.pipe.Close()
	// The command had the foreground, and a shell would find itself in the background.
	c.terminal.takeBack()
	c.terminal.close()
	c.exit = *exit
	close(c.done)
}

// killOverdue ends what the guard should have ended. It is stopped, or the machine is very busy.
func (c *Child) killOverdue() {
	c.late.Store(true)
	c.killAll()
}

// killAll kills the guard, the command and all its descendants.
func (c *Child) killAll() {
	for _, p := range descendants() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	_ = c.guard.Kill()
	if group := int(c.group.Load()); group != 0 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// reapOrphans waits for what came to this process as the guard died, and kills what is born meanwhile.
func (c *Child) reapOrphans() {
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return // there are none
		}
		c.killAll()
	}
}
