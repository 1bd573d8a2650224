package grpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
)

// reach opens a connection to a server, which has taken it.
func (s *tested) reach(t *testing.T) net.Conn {
	t.Helper()
	before := s.conns.openCount()
	conn, err := new(net.Dialer).DialContext(in(t), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	await.True(t, "the server has the connection", func() bool { return s.conns.openCount() != before })
	return conn
}

// Whoever has connected and says nothing, such as a probe of a balancer, holds up no end.
func TestSilentConnectionsHoldUpNoEnd(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	s.ask(t, "x")
	s.reach(t)
	began := time.Now()
	if err := s.Shutdown(in(t)); err != nil {
		t.Errorf("the end with a silent connection = %v, want none", err)
	}
	if took := time.Since(began); took > DefaultReadTimeout/2 {
		t.Errorf("the end took %s, want it at once", took)
	}
}

// Nor does who stops in the middle of a greeting, once the time for the end is over.
func TestHalfAGreetingIsCutInTime(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	s.ask(t, "x")
	conn := s.reach(t)
	if _, err := conn.Write([]byte(http2.ClientPreface[:5])); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = s.Shutdown(ctx) // an error if the server had read the five bytes by then
	if took := time.Since(began); took > DefaultReadTimeout/2 {
		t.Errorf("the end took %s, want it after the 100 ms it has", took)
	}
}

// Every connection that ended is counted no more, whoever closed it.
func TestConnectionsAreCountedDown(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := start(t, Config{Metrics: registry}, shared(capacity.FairShare, 100))
	s.ask(t, "x")
	s.reach(t)
	const name = `gatehouse_connections{protocol="grpc"}`
	expect(t, "with two", figures(t, registry), map[string]float64{name: 2})
	if err := s.Shutdown(in(t)); err != nil {
		t.Error(err)
	}
	expect(t, "after the end", figures(t, registry), map[string]float64{name: 0})
}

// A server that is ended before it has begun leaves the saved leases to the next, even if it begins then.
func TestSavedLeasesOutliveAnEarlyEnd(t *testing.T) {
	const text = "gatehouse leases 1 0\nchecksum 00000000\n"
	file := filepath.Join(t.TempDir(), "leases")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Leases: file, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(in(t)); err != nil {
		t.Error(err)
	}
	s.initAddress(new(net.TCPAddr))
	c := s.newCall()
	c.client = "x"
	_, _ = s.answerCall(overGRPC, rpcGetCapacity, c)
	if got, err := os.ReadFile(file); err != nil || string(got) != text {
		t.Errorf("after a server that ended before it began the file = %q, %v, want %q", got, err, text)
	}
}

// A link in place of the file is replaced, not written through. The file is its owner's alone.
func TestSavedLeasesReplaceALink(t *testing.T) {
	folder := t.TempDir()
	file, other := filepath.Join(folder, "leases"), filepath.Join(folder, "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, file); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Leases: file, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(capacity.Templates{shared(capacity.FairShare, 100)}, "test")
	s.gets(t, "x", 0, 30)
	if err := s.Shutdown(in(t)); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("what the link led to = %q, %v, want it as it was", text, err)
	}
	info, err := os.Lstat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the saved leases have the mode %v, %v, want -rw-------", info, err)
	}
}

// A file that could not be written to its end is not there, and the one before it is.
func TestHalfAFileIsNone(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "leases")
	for _, fail := range []error{nil, errors.New("the disk is full")} {
		err := writeWhole(file, func(to io.Writer) error {
			_, _ = io.WriteString(to, strings.Repeat("x", 100_000))
			return fail
		})
		if !errors.Is(err, fail) {
			t.Errorf("writing = %v, want %v", err, fail)
		}
		left, err := os.ReadDir(folder)
		if err != nil || len(left) != 1 || left[0].Name() != "leases" {
			t.Errorf("after it there is %v, %v, want the file alone", left, err)
		}
	}
}
