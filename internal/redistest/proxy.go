//go:build unix

package redistest

import (
	"bytes"
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

// A late answer is a part of one that is to be passed on at an instant.
type late struct {
	due  <-chan time.Time // nil if it is at once
	data []byte
}

// maxLate is how many parts of answers may be on their way in one connection.
const maxLate = 1024

// answer passes answers on until one is lost or the connection ends. Those on their way do not delay the ones
// behind them, as on a long line.
func (p *Proxy) answer(near io.Writer, far io.Reader) {
	queue, passed := make(chan late, maxLate), make(chan struct{})
	p.work.Go(func() {
		defer close(passed)
		p.pass(near, queue)
	})
	for buffer := make([]byte, 64<<10); ; {
		n, err := far.Read(buffer)
		if err != nil {
			break
		}
		delay, lost := p.chance()
		if lost {
			break
		}
		one := late{data: bytes.Clone(buffer[:n])}
		if delay > 0 {
			one.due = time.After(delay)
		}
		queue <- one
	}
	close(queue)
	<-passed
}

// pass passes each answer on when it is due.
func (p *Proxy) pass(near io.Writer, queue <-chan late) {
	broken := false
	for one := range queue {
		if one.due != nil && !broken {
			select {
			case <-one.due:
			case <-p.closed:
			}
		}
		if !broken {
			_, err := near.Write(one.data)
			broken = err != nil
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
