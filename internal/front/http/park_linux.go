//go:build !portable

package http

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"golang.org/x/sys/unix"
)

// A poller watches parked connections by an epoll of its own. The epoll descriptor itself is watched
// by the Go runtime, so that one goroutine, and no thread, waits for all of them.
type poller struct {
	file  *os.File
	epoll int

	startOnce  sync.Once // of its goroutine, with the first socket
	raw        syscall.RawConn
	mu         sync.Mutex
	conns      map[int32]*parkedConn
	lastNumber int32 // of connections that were ever added
}

// pollState is what the poller knows of a connection.
type pollState struct {
	readWatch // of a connection in memory, which has no descriptor

	raw    syscall.RawConn
	fd     int32 // 0 when it is not watched
	number int32 // tells it from another that had the same descriptor before
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

// pollEvents tells connections what happened to them.
func (p *poller) pollEvents() {
	events := make([]unix.EpollEvent, 256)
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
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

// watchConn begins to watch a connection for a client that hangs up.
func (p *poller) watchConn(c *parkedConn) error {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("epoll: %T has no file descriptor", c.Conn)
	}
	raw, err := sc.SyscallConn()
	if errors.Is(err, errNoDescriptor) {
		c.watch.startReading(c)
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	p.startOnce.Do(func() { go p.pollEvents() }) // ends when the file is closed
	c.watch.raw = raw
	return c.withDescriptor(func(fd int32) error {
		p.mu.Lock()
		p.lastNumber++
		c.watch.fd, c.watch.number = fd, p.lastNumber
		watched := c.watch
		p.conns[fd] = c
		p.mu.Unlock()
		return p.changeEvents(unix.EPOLL_CTL_ADD, &watched, unix.EPOLLRDHUP)
	})
}

// awaitData watches a connection also for data.
func (p *poller) awaitData(c *parkedConn) error {
	return c.withDescriptor(func(int32) error {
		p.mu.Lock()
		watched := c.watch
		p.mu.Unlock()
		if watched.fd == 0 {
			return nil // it was closed meanwhile
		}
		return p.changeEvents(unix.EPOLL_CTL_MOD, &watched, unix.EPOLLRDHUP|unix.EPOLLIN)
	})
}

// unwatchConn stops watching a connection. It must be called before the connection is closed.
func (p *poller) unwatchConn(c *parkedConn) {
	c.watch.stopReading(c)
	_ = c.withDescriptor(func(fd int32) error {
		p.mu.Lock()
		watched := c.watch
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

func (p *poller) changeEvents(op int, w *pollState, events uint32) error {
	e := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: w.fd, Pad: w.number}
	if err := unix.EpollCtl(p.epoll, op, int(w.fd), &e); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// withDescriptor runs do while the descriptor is sure to be open.
func (p *parkedConn) withDescriptor(do func(fd int32) error) error {
	if p.watch.raw == nil {
		return nil
	}
	var inner error
	err := p.watch.raw.Control(func(fd uintptr) { inner = do(int32(fd)) }) // #nosec G115 -- a descriptor
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return inner
}

// clientGone reports whether the client is known to be gone at this instant.
func (p *parkedConn) clientGone() bool {
	if gone, known := p.memoryClientGone(); known {
		return gone
	}
	gone := false
	err := p.withDescriptor(func(fd int32) error {
		gone = peer.Gone(fd)
		return nil
	})
	return gone || err != nil
}

// writeNow sends what the system takes without waiting.
func (p *parkedConn) writeNow(message []byte) (sent int, err error) {
	if p.watch.raw == nil {
		return 0, nil
	}
	var failed error
	err = p.watch.raw.Write(func(fd uintptr) bool {
		sent, failed = unix.Write(int(fd), message)
		return true
	})
	if err == nil && !errors.Is(failed, unix.EAGAIN) {
		err = failed
	}
	return max(sent, 0), err
}
