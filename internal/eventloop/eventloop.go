// Package eventloop is what the fronts on gnet's event loops have in common: how the loops are started, and
// TLS on them.
package eventloop

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/panjf2000/gnet/v2"
)

// ReadSize is how much is read of a connection in one go.
const ReadSize = 16 << 10

// Start starts one event loop for each processor. They tell the handler what happens to the connections that
// are enrolled.
func Start(handler gnet.EventHandler, log *slog.Logger) (*gnet.Client, error) {
	engine, err := gnet.NewClient(handler,
		gnet.WithNumEventLoop(runtime.GOMAXPROCS(0)),
		gnet.WithReadBufferCap(ReadSize),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // as it is: package net has switched the delay off
		gnet.WithLogger(logger{log}))
	if err == nil {
		err = engine.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting event loops: %w", err)
	}
	return engine, nil
}

// spareInterval is how often it is looked for a file descriptor where there was none.
const spareInterval = 20 * time.Millisecond

// AwaitDescriptor is called before a connection is handed to a loop, which takes a file descriptor of its own
// for it. While there is none left the client waits, as one does that cannot be accepted, unless the server
// is stopping. Each time this is complained about.
func AwaitDescriptor(conn net.Conn, stopping *atomic.Bool, complain func(error)) {
	for err := checkSpare(conn); err != nil && !stopping.Load(); err = checkSpare(conn) {
		complain(err)
		time.Sleep(spareInterval)
	}
}

// IsGone reports whether the client of a connection is known to be gone at this instant. A connection in
// memory, or one that is half closed, knows it itself.
func IsGone(conn gnet.Conn) bool {
	if watched, ok := conn.(peer.Watched); ok {
		return watched.Gone()
	}
	return peer.Gone(int32(conn.Fd())) // a descriptor
}

// UnreadBytes is how many bytes have come on a connection that its loop has not read yet.
func UnreadBytes(conn gnet.Conn) int {
	if _, ok := conn.(peer.Watched); ok { // of those all has been read
		return 0
	}
	return peer.UnreadBytes(int32(conn.Fd())) // a descriptor
}

// TakeAddress returns the address of the client, which the loop forgets with that. It is called once.
func TakeAddress(conn gnet.Conn) (client netip.AddrPort) {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		client = tcp.AddrPort()
	}
	// gnet takes the zones of IPv6 addresses for memory of its own, and would write to it later, though they
	// are package net's.
	for _, address := range []net.Addr{conn.RemoteAddr(), conn.LocalAddr()} {
		if tcp, ok := address.(*net.TCPAddr); ok {
			*tcp = net.TCPAddr{}
		}
	}
	return client
}

// A logger takes what gnet has to say: how it starts and ends, and what it finds odd. Nothing of
// that is for whoever runs the server.
type logger struct{ log *slog.Logger }

// Debugf implements the logger of gnet.
func (l logger) Debugf(format string, args ...any) {
	l.log.Debug("event loop", "message", fmt.Sprintf(format, args...))
}

// Infof implements the logger of gnet.
func (l logger) Infof(format string, args ...any) { l.Debugf(format, args...) }

// Warnf implements the logger of gnet.
func (l logger) Warnf(format string, args ...any) { l.Debugf(format, args...) }

// Errorf implements the logger of gnet. These are worth knowing.
func (l logger) Errorf(format string, args ...any) {
	l.log.Warn("event loop", "message", fmt.Sprintf(format, args...))
}

// Fatalf implements the logger of gnet, which has no use for it.
func (l logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }
