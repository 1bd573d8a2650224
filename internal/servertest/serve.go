package servertest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// A Front is a server in front of a gate.
type Front interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
}

// Serve runs a front on a port of this machine until the test ends, and returns its address.
func Serve(t *testing.T, server Front) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	// It has room for one, so that a server which ends early does not wait for the cleanup.
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-ended); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
