//go:build !portable

package http

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"golang.org/x/sys/unix"
)

// A poller watches all parked connections with one epoll. The Go runtime watches the epoll descriptor itself,
// so one goroutine waits for all connections, and no thread is blocked.
type poller struct {
	file  *os.File
	epoll int

	startOnce  sync.Once // starts the goroutine with the first socket
	raw        syscall.RawConn
	mu         sync.Mutex
	conns      map[int32]*parkedConn
	lastNumber int32 // of connections that were ever added
}

// pollState is what the poller keeps of a connection.
type pollState struct {
	readWatch // for a connection in memory, which has no descriptor

	fd     int32 // 0 when it is not watched
	number int32 // tells it from an earlier connection with the same descriptor
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), epoll: fd, conns: make(map[int32]*parkedConn)}
	p.raw, err = p.file.SyscallConn()
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

func (p *poller) closePoller() { _ = p.file.Close() }

// pollEvents reports events to connections until the epoll is closed.
func (p *poller) pollEvents() {
	events := make([]unix.EpollEvent, 256)
	for {
		// EpollWait must not block, as it would keep a thread. Returning false makes the runtime park this
		// goroutine until the epoll descriptor is readable.
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			// The event may be about a connection that was removed after EpollWait returned, and whose
			// descriptor another one has by now. The number tells them apart.
			p.mu.Lock()
			c := p.conns[e.Fd]
			stale := c == nil || c.watch.number != e.Pad
			p.mu.Unlock()
			if !stale {
				c.handleEvent(e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

// watchConn begins to watch a connection for a client that hangs up, or sends too much meanwhile: until the
// answer is written, what it sends stays in the socket.
func (p *poller) watchConn(c *parkedConn) error {
	if _, err := c.SyscallConn(); errors.Is(err, errNoDescriptor) {
		c.watch.startReading(c)
		return nil
	}
	// Not earlier: the simulation has connections in memory only, and its virtual time stands still while a
	// goroutine waits for a descriptor.
	p.startOnce.Do(func() { go p.pollEvents() }) // ends when the file is closed
	if t := c.secure(); t != nil {
		t.Park()
	}
	return c.withDescriptor(func(fd int32) error {
		// The connection is entered before the epoll knows of it: its first event may come at once.
		p.mu.Lock()
		p.lastNumber++
		c.watch.fd, c.watch.number = fd, p.lastNumber
		watched := c.watch
		p.conns[fd] = c
		p.mu.Unlock()
		// Each arrival of bytes is reported once, as they are left unread.
		return p.changeEvents(unix.EPOLL_CTL_ADD, &watched, unix.EPOLLRDHUP|unix.EPOLLIN|unix.EPOLLET)
	})
}

// awaitData watches an idle connection for what has been reported too.
func (p *poller) awaitData(c *parkedConn) error {
	return c.withDescriptor(func(int32) error {
		// The look and the change are one step: otherwise the connection could be handed back and parked
		// again in between, and the entry of its new park would be overwritten.
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.watch.fd == 0 {
			return nil // it was closed in the meantime
		}
		return p.changeEvents(unix.EPOLL_CTL_MOD, &c.watch, unix.EPOLLRDHUP|unix.EPOLLIN|unix.EPOLLONESHOT)
	})
}

// unwatchConn stops watching a connection. It must be called before the connection is closed.
func (p *poller) unwatchConn(c *parkedConn) {
	c.watch.stopReading(c)
	_ = c.withDescriptor(func(fd int32) error {
		p.mu.Lock()
		watched := c.watch
		// fd also tells awaitData, which may run at the same time, that the connection is no longer watched.
		if watched.fd != 0 && p.conns[fd] == c {
			delete(p.conns, fd)
			c.watch.fd = 0
		}
		p.mu.Unlock()
		if watched.fd != 0 {
			return p.changeEvents(unix.EPOLL_CTL_DEL, &watched, 0)
		}
		return nil
	})
}

// changeEvents adds, changes or removes what the epoll watches a connection for. The events have EPOLLET or
// EPOLLONESHOT: otherwise one hang-up would be reported in a loop until the connection is removed.
func (p *poller) changeEvents(op int, w *pollState, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: w.fd, Pad: w.number}
	return unix.EpollCtl(p.epoll, op, int(w.fd), &e)
}

// withDescriptor calls do while the descriptor is sure to be open. Without a descriptor it does nothing.
func (p *parkedConn) withDescriptor(do func(fd int32) error) error {
	raw, err := p.SyscallConn()
	if errors.Is(err, errNoDescriptor) {
		return nil
	}
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = do(int32(fd)) }) // a descriptor
	return cmp.Or(err, inner)
}

// hasTooMuchUnread reports whether the client of a connection sent more than maxUnread behind its request.
func hasTooMuchUnread(conn net.Conn) bool {
	return peer.Ask(conn, func(fd int32) bool { return peer.UnreadBytes(fd) > maxUnread })
}

// writeNow writes as much as the system takes without waiting, possibly nothing. writeRest writes the rest.
func (p *parkedConn) writeNow(message []byte) (sent int, err error) {
	raw, err := p.SyscallConn()
	if errors.Is(err, errNoDescriptor) {
		return 0, nil // all of it is the rest
	}
	if err != nil {
		return 0, err
	}
	// Records are sent in whole. As long as a part of them is left, so is one byte of the message.
	if t := p.secure(); t != nil {
		left, err := t.WriteParked(message)
		return len(message) - min(left, 1), err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		// Returning true keeps the runtime from waiting until the socket is writable: the caller leaves the
		// rest to a goroutine.
		sent, failed = unix.Write(int(fd), message)
		return true
	})
	if err == nil && !errors.Is(failed, unix.EAGAIN) {
		err = failed
	}
	return max(sent, 0), err
}
