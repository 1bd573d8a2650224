//go:build unix

package redistest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy passes connections on to a server, late or not at all.
type Proxy struct {
	// Address is where it listens.
	Address string

	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	target string
	random *rand.Rand
	delay  time.Duration
	lose   float64
	lost   int
	conns  map[net.Conn]bool
	closed chan struct{}
}

// StartProxy starts a proxy in front of a server. The seed is that of its chances.
func StartProxy(tb testing.TB, target string, seed uint64) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		Address: listener.Addr().String(), target: target, listener: listener,
		random: rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // chances, not secrets
		conns:  make(map[net.Conn]bool), closed: make(chan struct{}),
	}
	p.work.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Delay has every answer come so much later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Lose has a part of the answers be lost together with their connections: what they answer has been done.
func (p *Proxy) Lose(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = part
}

// Lost is how many answers were lost.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	close(p.closed)
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// accept serves until the listener is closed.
func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.aim())
		if err != nil {
			_ = near.Close()
			continue
		}
		p.note(near, far)
		p.work.Go(func() {
			defer p.drop(near, far)
			_, _ = io.Copy(far, near)
		})
		p.work.Go(func() {
			defer p.drop(near, far)
			p.answer(near, far)
		})
	}
}

func (p *Proxy) aim() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) note(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	select {
	case <-p.closed:
		for _, c := range conns {
			_ = c.Close()
		}
	default:
	}
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// answer passes answers on until one is lost or the connection ends.
func (p *Proxy) answer(near io.Writer, far io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := far.Read(buffer)
		if err != nil {
			return
		}
		delay, lost := p.chance()
		if lost {
			return
		}
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-p.closed:
				return
			}
		}
		if _, err := near.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) chance() (delay time.Duration, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost = p.lose > 0 && p.random.Float64() < p.lose; lost {
		p.lost++
	}
	return p.delay, lost
}

// Switch leads to another server from now on, and ends all connections.
func (p *Proxy) Switch(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for c := range p.conns {
		_ = c.Close()
	}
}
