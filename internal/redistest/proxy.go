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

// A Proxy forwards connections to a server. It can delay and lose the server's answers.
type Proxy struct {
	// Address is where it listens.
	Address string

	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	random *rand.Rand
	delay  time.Duration
	lose   float64
	lost   int
	conns  map[net.Conn]bool
	closed chan struct{}
}

// StartProxy starts a proxy in front of a server. The seed determines which answers it loses.
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
	p.running.Go(p.acceptConns)
	// Also when the test fails, or acceptConns would be left over.
	tb.Cleanup(p.closeProxy)
	return p
}

// Delay delays every answer by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Lose loses a part of the answers, from 0 to 1, together with their connections. The server has executed the
// commands.
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

func (p *Proxy) closeProxy() {
	_ = p.listener.Close()
	// Before the connections: acceptConns may still add one, and closes it when it sees this.
	close(p.closed)
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// acceptConns serves until the listener is closed.
func (p *Proxy) acceptConns() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		// Each connection has a partner behind it, and two copies, one for each direction.
		far, err := net.Dial("tcp", p.currentTarget())
		if err != nil {
			_ = near.Close()
			continue
		}
		// Added before they are copied, so that Switch and the end of the test find them.
		p.addConns(near, far)
		p.running.Go(func() {
			defer p.dropConns(near, far)
			_, _ = io.Copy(far, near)
		})
		p.running.Go(func() {
			defer p.dropConns(near, far)
			p.forwardReplies(near, far)
		})
	}
}

func (p *Proxy) currentTarget() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) addConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	// One that was accepted while the proxy was closed was added too late to be closed there.
	select {
	case <-p.closed:
		for _, c := range conns {
			_ = c.Close()
		}
	default:
	}
}

func (p *Proxy) dropConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Both copies of a connection do this. Closing twice does no harm.
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// A delayedPart answer is a part of one that is to be passed on at an instant.
type delayedPart struct {
	due  <-chan time.Time // nil if it is at once
	data []byte
}

// maxDelayedParts is how many parts of answers may be on their way in one connection.
const maxDelayedParts = 1024

// forwardReplies passes answers on until one is lost or the connection ends. Those on their way do not delay
// the ones behind them, as on a long line.
func (p *Proxy) forwardReplies(near io.Writer, far io.Reader) {
	queue, passed := make(chan delayedPart, maxDelayedParts), make(chan struct{})
	p.running.Go(func() {
		defer close(passed)
		p.writeDelayed(near, queue)
	})
	for buffer := make([]byte, 64<<10); ; {
		n, err := far.Read(buffer)
		if err != nil {
			break
		}
		delay, lost := p.drawFault()
		// The connection ends too: its client would take the next answer for the lost one.
		if lost {
			break
		}
		// The buffer is used again while the part waits.
		one := delayedPart{data: bytes.Clone(buffer[:n])}
		if delay > 0 {
			one.due = time.After(delay)
		}
		queue <- one
	}
	close(queue)
	<-passed
}

// writeDelayed passes each answer on when it is due.
func (p *Proxy) writeDelayed(near io.Writer, queue <-chan delayedPart) {
	// After an error the rest is still taken, or forwarding would block on a full queue.
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

func (p *Proxy) drawFault() (delay time.Duration, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Without a part to lose, no number is drawn: the chances of a seed stay the same.
	lost = p.lose > 0 && p.random.Float64() < p.lose
	if lost {
		p.lost++
	}
	return p.delay, lost
}

// Switch forwards to another server from now on, and closes all connections.
func (p *Proxy) Switch(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	// Clients must connect again, and so reach the new server.
	for c := range p.conns {
		_ = c.Close()
	}
}
