package http

import (
	"io"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// A client that says behind other requests that it will send no more has left.
func TestTLSHangUpBehindRequests(t *testing.T) {
	for name, version := range certstest.Versions {
		t.Run(name, func(t *testing.T) {
			r := newTLSRig(t, Config{})
			c := r.dialTLS(t, version)
			c.send("/event/a/wait")
			r.waiting(t, 1)
			c.send("/counter/c/count", "/counter/c/count")
			if err := c.tls().CloseWrite(); err != nil {
				t.Fatal(err)
			}
			r.waiting(t, 0)
		})
	}
}

// A client that sends much behind a request that waits is cut as it is without TLS.
func TestTLSTooMuchBehindAWait(t *testing.T) {
	r := newTLSRig(t, Config{})
	c := r.dialTLS(t, 0)
	c.send("/event/a/wait")
	r.waiting(t, 1)
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 10_000))
	}()
	r.waiting(t, 0)
	await.True(t, "its bytes are given back", func() bool { return r.config.Budget.Used() == 0 })
}
