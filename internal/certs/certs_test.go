package certs_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/prometheus/client_golang/prometheus"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shown returns the common name of the certificate that a new connection is shown.
func shown(t *testing.T, server, client *tls.Config) string {
	t.Helper()
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }()
	done := make(chan error, 1)
	go func() { done <- tls.Server(there, server).HandshakeContext(t.Context()) }()
	conn := tls.Client(here, client)
	must(t, conn.HandshakeContext(t.Context()))
	must(t, <-done)
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// What cannot be used is refused, with the name of the file.
func TestFaultsOfFiles(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	good, other, expired := ca.Server(), ca.Server(), ca.Issue("localhost", -time.Hour)
	text := filepath.Join(t.TempDir(), "text")
	must(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	large := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, make([]byte, 1<<20+1), 0o600))
	for want, files := range map[string]certs.ServerFiles{
		"no such file":             {Cert: good.Cert + "x", Key: good.Key},
		"private key does not":     {Cert: good.Cert, Key: other.Key},
		"failed to find any PEM":   {Cert: text, Key: good.Key},
		"is larger than":           {Cert: large, Key: good.Key},
		"is a directory":           {Cert: good.Cert, Key: filepath.Dir(good.Key)},
		"it has expired at":        {Cert: expired.Cert, Key: expired.Key},
		"has no certificate in PE": {Cert: good.Cert, Key: good.Key, ClientCA: text},
	} {
		if _, err := certs.Open(files, time.Now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%v) = %v, want an error with %q", files, err, want)
		}
	}
	for want, files := range map[string]certs.ClientFiles{
		"want both or none":      {Cert: good.Cert},
		"no such file":           {CA: text + "x"},
		"has no certificate":     {CA: text},
		"private key does not":   {Cert: good.Cert, Key: other.Key},
		"failed to find any PEM": {Cert: text, Key: good.Key},
	} {
		if _, err := files.Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Config of %v = %v, want an error with %q", files, err, want)
		}
	}
}

// replaceLinks puts a pair into a folder as Kubernetes does: the files are links through one link, which is
// exchanged.
func replaceLinks(t *testing.T, folder string, cert, key []byte) {
	t.Helper()
	version, err := os.MkdirTemp(folder, "..version") //nolint:usetesting // it lies beside the links
	must(t, err)
	must(t, os.WriteFile(filepath.Join(version, "tls.crt"), cert, 0o600))
	must(t, os.WriteFile(filepath.Join(version, "tls.key"), key, 0o600))
	must(t, os.Symlink(filepath.Base(version), filepath.Join(folder, "..new")))
	must(t, os.Rename(filepath.Join(folder, "..new"), filepath.Join(folder, "..data")))
	for _, name := range []string{"tls.crt", "tls.key"} {
		// The second time it is there.
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name))
	}
}

// A pair that was replaced is shown to new connections; one that does not fit is not, until it does.
func TestReplacedCertificates(t *testing.T) {
	t.Parallel()
	ca, folder := certstest.New(t), t.TempDir()
	cert, key := ca.IssueText("first", time.Hour)
	replaceLinks(t, folder, cert, key)
	server, err := certs.Open(certs.ServerFiles{
		Cert: filepath.Join(folder, "tls.crt"), Key: filepath.Join(folder, "tls.key"),
	}, time.Now)
	must(t, err)
	metrics := prometheus.NewRegistry()
	server.RegisterMetrics(metrics)
	ctx, cancel := context.WithCancel(t.Context())
	again, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- server.Watch(ctx, again, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	config := server.Config("http/1.1")
	if name := shown(t, config, ca.Client()); name != "first" {
		t.Fatalf("at first %s is shown, want first", name)
	}
	cert, key = ca.IssueText("second", 2*time.Hour)
	replaceLinks(t, folder, cert, key)
	await.True(t, "the second is shown", func() bool { return shown(t, config, ca.Client()) == "second" })
	// The key of another certificate, as between two writes.
	_, wrong := ca.IssueText("third", time.Hour)
	replaceLinks(t, folder, cert, wrong)
	await.True(t, "it is stale", server.Stale)
	if name := shown(t, config, ca.Client()); name != "second" {
		t.Errorf("with a key that does not fit %s is shown, want second", name)
	}
	stale, left := gauge(t, metrics, "gatehouse_tls_stale"), gauge(t, metrics, "gatehouse_tls_expiry_seconds")
	if stale != 1 || left < 3600 || left > 7200 {
		t.Errorf("gatehouse_tls_stale %v, gatehouse_tls_expiry_seconds %v, want 1 and two hours", stale, left)
	}
	expired, expiredKey := ca.IssueText("old", -time.Hour)
	replaceLinks(t, folder, expired, expiredKey)
	again <- syscall.SIGHUP
	cert, key = ca.IssueText("fourth", time.Hour)
	replaceLinks(t, folder, cert, key)
	await.True(t, "the fourth is shown", func() bool { return shown(t, config, ca.Client()) == "fourth" })
	if server.Stale() {
		t.Error("it is stale with a pair that fits")
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, from *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := from.Gather()
	must(t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// The authorities for clients are replaced in the same way, and a client shows what is in its files now.
func TestReplacedAuthorities(t *testing.T) {
	t.Parallel()
	old, next := certstest.New(t), certstest.New(t)
	pair := old.Server()
	file := filepath.Join(t.TempDir(), "clients.pem")
	copyFile(t, old.File, file)
	server, err := certs.Open(certs.ServerFiles{
		Cert: pair.Cert, Key: pair.Key, ClientCA: file, ClientAuth: certs.AuthRequire,
	}, time.Now)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Watch(ctx, nil, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	mine := old.Issue("client", time.Hour)
	client, err := certs.ClientFiles{CA: old.File, Cert: mine.Cert, Key: mine.Key}.Config()
	must(t, err)
	client.ServerName = "localhost"
	accepted := func() bool {
		here, there := net.Pipe()
		defer func() { _, _ = here.Close(), there.Close() }()
		go func() { // ends when the pipe is closed
			_, _ = io.Copy(io.Discard, tls.Client(here, client)) // the server waits until its alert is read
		}()
		return tls.Server(there, server.Config()).HandshakeContext(t.Context()) == nil
	}
	if !accepted() {
		t.Fatal("a client of the first authority is refused")
	}
	copyFile(t, next.File, file)
	await.True(t, "it is refused", func() bool { return !accepted() })
	renewed := next.Issue("client", time.Hour)
	copyFile(t, renewed.Cert, mine.Cert)
	copyFile(t, renewed.Key, mine.Key)
	await.True(t, "with a renewed certificate it is accepted", accepted)
}

// A client whose authorities are replaced trusts the new ones alone, with its next connection; a file that
// cannot be used changes nothing.
func TestLatest(t *testing.T) {
	t.Parallel()
	old, next := certstest.New(t), certstest.New(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	old.CopyTo(file)
	latest, err := certs.ClientFiles{CA: file}.Latest()
	must(t, err)
	trusts := func(ca *certstest.Authority) bool {
		pair := ca.Server()
		server, err := certs.Open(certs.ServerFiles{Cert: pair.Cert, Key: pair.Key}, time.Now)
		must(t, err)
		at, err := tls.Listen("tcp", "127.0.0.1:0", server.Config())
		must(t, err)
		defer func() { _ = at.Close() }()
		go func() { // ends with the client
			if conn, err := at.Accept(); err == nil {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
		}()
		// An address, which no client tells a server that it has dialled.
		conn, err := (&tls.Dialer{Config: latest()}).DialContext(t.Context(), "tcp", at.Addr().String())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	check := func(when string, wantOld, wantNext bool) {
		t.Helper()
		if o, n := trusts(old), trusts(next); o != wantOld || n != wantNext {
			t.Errorf("%s: the old is trusted: %t, the next: %t, want %t, %t", when, o, n, wantOld, wantNext)
		}
	}
	check("at first", true, false)
	next.CopyTo(file)
	check("replaced", false, true)
	must(t, os.WriteFile(file, []byte("half of a"), 0o600))
	check("with a fault", false, true)
	must(t, os.Remove(file))
	check("without a file", false, true)
	old.CopyTo(file)
	check("replaced again", true, false)
	if _, err := (certs.ClientFiles{CA: file + "x"}).Latest(); err == nil {
		t.Error("Latest without the file gives no error")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, text, 0o600))
}
