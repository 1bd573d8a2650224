package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// Listen listens at a TCP address. For localhost that is 127.0.0.1 and ::1, at the same port: clients
// differ in which they try, and another program that had the other one would get what is meant for this.
// Without IPv6, or without IPv4, one of them is enough.
func Listen(ctx context.Context, config net.ListenConfig, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !strings.EqualFold(host, "localhost") {
		return config.Listen(ctx, "tcp", address)
	}
	const attempts = 16 // to find a port that is free in both, when any will do
	for range attempts {
		var both net.Listener
		both, err = listenBoth(ctx, config, port)
		// A port that was asked for is tried once; what is in use there stays in use.
		if err == nil || port != "0" {
			return both, err
		}
	}
	return nil, err
}

const loopback4, loopback6 = "127.0.0.1", "::1"

func listenBoth(ctx context.Context, config net.ListenConfig, port string) (net.Listener, error) {
	four, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback4, port))
	if err != nil {
		// The address exists, so its port is in use. To go on with IPv6 alone would leave IPv4 clients to the
		// other program.
		if hasAddress(ctx, loopback4) {
			return nil, err
		}
		return config.Listen(ctx, "tcp", net.JoinHostPort(loopback6, port))
	}
	// Port 0 has become a number now, and the second listener must have the same one.
	_, chosen, err := net.SplitHostPort(four.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("the address of a listener: %w", errors.Join(err, four.Close()))
	}
	six, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback6, chosen))
	if err != nil {
		// The chosen port is in use in IPv6. Listen may try another, so this one is given up.
		if hasAddress(ctx, loopback6) {
			return nil, errors.Join(err, four.Close())
		}
		return four, nil
	}
	return joinListeners(four, six), nil
}

// hasAddress reports whether this machine has an address.
func hasAddress(ctx context.Context, host string) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return false
	}
	_ = listener.Close() // no client knows of it
	return true
}

// joinedListener is several listeners as one.
type joinedListener struct {
	listeners []net.Listener
	start     sync.Once
	accepted  chan acceptResult
	ended     chan struct{} // closed when all of them are closed and what they had accepted is handed on
}

type acceptResult struct {
	conn net.Conn
	err  error
}

func joinListeners(listeners ...net.Listener) net.Listener {
	return &joinedListener{
		listeners: listeners, accepted: make(chan acceptResult), ended: make(chan struct{}),
	}
}

// Listeners implements [Joined].
func (j *joinedListener) Listeners() []net.Listener { return j.listeners }

// Accept implements [net.Listener]. It has to be called until it says that the listener is closed.
func (j *joinedListener) Accept() (net.Conn, error) {
	j.start.Do(j.acceptAll)
	select {
	case a := <-j.accepted:
		return a.conn, a.err
	case <-j.ended:
		return nil, net.ErrClosed
	}
}

func (j *joinedListener) acceptAll() {
	var open sync.WaitGroup
	for _, listener := range j.listeners {
		open.Go(func() { j.acceptFrom(listener) }) // ends when the listener is closed
	}
	go func() {
		open.Wait()
		close(j.ended)
	}()
}

// acceptFrom hands on what one of the listeners gets. After a failure it goes on at the next Accept.
func (j *joinedListener) acceptFrom(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Without a buffer: a failure that repeats is met once for each Accept, whose caller pauses.
		j.accepted <- acceptResult{conn, err}
	}
}

// Close implements [net.Listener].
func (j *joinedListener) Close() error {
	// If Accept was never called, nothing else would close ended, and a later Accept would hang.
	j.start.Do(func() { close(j.ended) })
	var failed []error
	for _, listener := range j.listeners {
		failed = append(failed, listener.Close())
	}
	return errors.Join(failed...)
}

// Addr implements [net.Listener]: it is that of the first.
func (j *joinedListener) Addr() net.Addr { return j.listeners[0].Addr() }

// Addrs are the addresses of a listener, of which a joined one has several.
func Addrs(listener net.Listener) (all []net.Addr) {
	several, ok := listener.(Joined)
	if !ok {
		return []net.Addr{listener.Addr()}
	}
	for _, one := range several.Listeners() {
		all = append(all, one.Addr())
	}
	return all
}
