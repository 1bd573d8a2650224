package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
)

// addHTTPListeners adds the listener for HTTP, the one for health alone, or both.
func (proc *serverProcess) addHTTPListeners(s *settings, l *protocolListener) {
	if s.health != "" {
		health := &protocolListener{
			protocolServer: healthServer{l.protocolServer.(*httpfront.Server), s.http == ""},
			protocol:       "health", address: s.health, addressHint: "with --health",
			listen: listenTCP, maxConns: s.maxConns,
		}
		proc.listeners = slices.Insert(proc.listeners, 0, health)
	}
	if s.http == "" {
		return
	}
	proc.listeners = slices.Insert(proc.listeners, 0, l) // people look for it first in the log
	if isTerminal(os.Stderr) {
		// The address is known only then: port 0 means any free one.
		proc.onListening = func() { fmt.Fprint(os.Stderr, greetingText(s, l.listener.Addr())) }
	}
}

// A healthServer is the part of a server of HTTP that answers about health alone.
type healthServer struct {
	*httpfront.Server
	alone bool // nothing else serves HTTP
}

// Serve implements [protocolServer].
func (h healthServer) Serve(listener net.Listener) error { return h.ServeHealth(listener) }

// Shutdown implements [protocolServer]. The server of HTTP ends all its listeners.
func (h healthServer) Shutdown(ctx context.Context) error {
	if h.alone {
		return h.Server.Shutdown(ctx)
	}
	return nil
}
