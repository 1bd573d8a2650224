package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// tlsFlags are the flags of a server with a certificate of an authority.
func tlsFlags(pair certstest.Pair, more ...string) []string {
	return append([]string{"--tls-cert", pair.Cert, "--tls-key", pair.Key}, more...)
}

// A credential is what a client trusts and shows.
type credential struct {
	ca   string
	pair certstest.Pair // of empty names for none
	ok   bool           // the server lets it in
}

// clientFlags are a credential as flags of a program, which calls them by these names.
func (c *credential) clientFlags(ca, cert, key string) []string {
	flags := []string{ca, c.ca}
	if c.pair.Cert != "" {
		flags = append(flags, cert, c.pair.Cert, key, c.pair.Key)
	}
	return flags
}

func (c *credential) config(t *testing.T) *tls.Config {
	t.Helper()
	config, err := certs.ClientFiles{CA: c.ca, Cert: c.pair.Cert, Key: c.pair.Key}.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// A tlsClient is a real client of some protocol: it asks for one thing, and reports whether it got that.
type tlsClient func(ctx context.Context, t *testing.T, c *credential) error

// runTLSClient runs a program, which must print a text.
func runTLSClient(ctx context.Context, want, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../clients/python")
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), want) {
		err = fmt.Errorf("it says %q, want %q", out, want)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// The programs in Python and JavaScript have the address, the authority and, if any, the pair as arguments.
const (
	pythonOverTLS = `
import ssl, sys, gatehouse
tls = ssl.create_default_context(cafile=sys.argv[2])
if len(sys.argv) > 3:
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
with gatehouse.Client(sys.argv[1], tls=tls, timeout=2) as gh:
    with gh.lock("python", max_wait=60) as hold:
        print("fence", hold.fence)
`
	asyncioOverTLS = `
import asyncio, ssl, sys
from gatehouse import aio
tls = ssl.create_default_context(cafile=sys.argv[2])
if len(sys.argv) > 3:
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
async def main():
    async with aio.Client(sys.argv[1], tls=tls, timeout=2) as gh:
        async with gh.lock("asyncio", max_wait=60) as hold:
            print("fence", hold.fence)
asyncio.run(main())
`
	nodeOverTLS = `
const { readFileSync } = await import("node:fs");
const { Client } = await import(process.cwd() + "/../../clients/js/src/index.js");
const [address, ca, cert, key] = process.argv.slice(1);
const tls = { ca: readFileSync(ca) };
if (cert) Object.assign(tls, { cert: readFileSync(cert), key: readFileSync(key) });
const gh = new Client(address, { tls, timeout: 2000 });
await gh.lock("node", { maxWait: 60_000 }).run((hold) => console.log("fence", hold.fence));
console.log(await gh.counter("node").count());
`
)

// tlsClients are the clients there are, of a server at these addresses.
func tlsClients(web, redis, leases string) map[string]tlsClient {
	script := func(program, flag, text string) tlsClient {
		return func(ctx context.Context, _ *testing.T, c *credential) error {
			args := []string{flag, text, web, c.ca}
			if program == "node" {
				args = []string{flag, "--eval", text, "--", web, c.ca}
			}
			if c.pair.Cert != "" {
				args = append(args, c.pair.Cert, c.pair.Key)
			}
			return runTLSClient(ctx, "fence", program, args...)
		}
	}
	ours := func(want string, args ...string) tlsClient {
		return func(ctx context.Context, _ *testing.T, c *credential) error {
			args := append(args, c.clientFlags("--ca", "--cert", "--cert-key")...)
			return runTLSClient(ctx, want, binary(), args...)
		}
	}
	return map[string]tlsClient{
		"curl": func(ctx context.Context, _ *testing.T, c *credential) error {
			args := append(c.clientFlags("--cacert", "--cert", "--key"), "-sS", "-m", "60", "https://"+web+"/healthz")
			return runTLSClient(ctx, "ok", "curl", args...)
		},
		"redis-cli": func(ctx context.Context, _ *testing.T, c *credential) error {
			args := append(flagsOf(redis), c.clientFlags("--cacert", "--cert", "--key")...)
			return runTLSClient(ctx, "PONG", "redis-cli", append(args, "--tls", "PING")...)
		},
		"python":  script("python3", "-c", pythonOverTLS),
		"asyncio": script("python3", "-c", asyncioOverTLS),
		"node":    script("node", "--input-type=module", nodeOverTLS),
		"gatehouse acquire": ours("granted", "acquire", "gcra/tls", "--limits", "1000/1s",
			"--server", "https://"+web),
		"gatehouse health": ours("ok", "health", "--server", web),
		"gatehouse capacity get": ours("r", "capacity", "get", "r", "1", "--server", leases,
			"--timeout", "2s"),
		"Go": func(ctx context.Context, t *testing.T, c *credential) error {
			t.Helper()
			gate, err := client.New(client.Config{Addresses: []string{web}, TLS: c.config(t)})
			if err != nil {
				return err
			}
			defer gate.Close()
			key := root.Key{Kind: root.Counter, Name: "go"}
			_, err = gate.Do(ctx, key, root.Command{Op: root.OpCount, Amount: 1})
			return err
		},
		"Go leases": func(ctx context.Context, t *testing.T, c *credential) error {
			t.Helper()
			config := lease.Config{Servers: []string{leases}, TLS: c.config(t), Timeout: 2 * time.Second}
			l, err := lease.New(config)
			if err != nil {
				return err
			}
			defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
			r, err := l.Resource("r", 1, 0)
			if err != nil {
				return err
			}
			within, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			return r.Ready(within)
		},
	}
}

// Every client gets in with the right certificate, and no client with another, or where it does not trust the
// server's.
func TestTLSClients(t *testing.T) {
	t.Parallel()
	ca, stranger := certstest.New(t), certstest.New(t)
	s := startCapacity(t, tlsFlags(ca.Server(), "--tls-client-ca", ca.File, "--tls-client-auth", "require",
		"--capacity-config", writeTemplates(t, shares))...)
	_, port, _ := net.SplitHostPort(s.address)
	clients := tlsClients("localhost:"+port, s.redisAddress(t), s.grpcAddress(t))
	for fact, c := range map[string]*credential{
		"right":           {ca.File, ca.Issue("ci", time.Hour), true},
		"none":            {ca.File, certstest.Pair{}, false},
		"expired":         {ca.File, ca.Issue("ci", -time.Hour), false},
		"of a stranger":   {ca.File, stranger.Issue("ci", time.Hour), false},
		"unknown servers": {stranger.File, ca.Issue("ci", time.Hour), false},
	} {
		for name, ask := range clients {
			t.Run(name+"/"+fact, func(t *testing.T) {
				t.Parallel()
				err := ask(soon(t), t, c)
				if c.ok != (err == nil) {
					t.Errorf("the client gets %v, want success = %v", err, c.ok)
				}
			})
		}
	}
}

// replacePair puts another pair in the place of one, file by file.
func replacePair(t *testing.T, at certstest.Pair, cert, key []byte) {
	t.Helper()
	for path, text := range map[string][]byte{at.Cert: cert, at.Key: key} {
		fresh := path + ".new"
		if err := os.WriteFile(fresh, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
	}
}

// shownAt is the common name of the certificate at an address.
func shownAt(t *testing.T, address string, config *tls.Config) string {
	t.Helper()
	conn, err := (&tls.Dialer{Config: config}).DialContext(soon(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
}

// Certificates are replaced again and again, by files that are exchanged and by SIGHUP, while clients ask
// over old connections and new ones: none of their requests fails, and the last certificate is shown.
func TestCertificatesReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	pair := ca.Issue("version 0", time.Hour)
	s := start(t, tlsFlags(pair)...)
	redis := s.redisAddress(t)
	stop := make(chan struct{})
	var asked atomic.Int64
	var load sync.WaitGroup
	repeat := func(ask func() error) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := ask(); err != nil {
					t.Errorf("a request fails: %v", err)
					return
				}
				asked.Add(1)
			}
		})
	}
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client()}}
	fresh := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(), DisableKeepAlives: true}}
	for _, c := range []*http.Client{kept, kept, fresh, fresh} {
		repeat(func() error { return askOnce(t.Context(), c, "https://"+s.address+"/v1/counter/load/count") })
	}
	repeat(func() error {
		return runTLSClient(t.Context(), "", "redis-cli", append(flagsOf(redis), "--tls", "--cacert", ca.File,
			"GH.COUNT", "counter/load")...)
	})
	const versions = 10
	for version := 1; version <= versions; version++ {
		cert, key := ca.IssueText(fmt.Sprint("version ", version), time.Hour)
		replacePair(t, pair, cert, key)
		if version%2 == 0 {
			_ = s.process.Signal(syscall.SIGHUP)
		}
		until := fmt.Sprint("version ", version)
		await.True(t, until+" is shown", func() bool {
			return shownAt(t, s.address, ca.Client()) == until && shownAt(t, redis, ca.Client()) == until
		})
	}
	close(stop)
	load.Wait()
	// Each count took effect once.
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client()}}
	text := fetchText(t, plain, "https://"+s.address+"/v1/counter/load/value")
	if want := fmt.Sprint(asked.Load()); text != want {
		t.Errorf("the counter is at %s after %s requests", text, want)
	}
	if !strings.Contains(fetchText(t, plain, "https://"+s.address+"/metrics"), "gatehouse_tls_stale 0") {
		t.Error("gatehouse_tls_stale is not 0")
	}
	wantStale(t, s, ca, pair)
	if name := shownAt(t, s.address, ca.Client()); name != fmt.Sprint("version ", versions) {
		t.Errorf("%s is shown, want the last that fits", name)
	}
}

// wantStale replaces the key of a pair by another, which is told.
func wantStale(t *testing.T, s *server, ca *certstest.Authority, pair certstest.Pair) {
	t.Helper()
	_, wrong := ca.IssueText("wrong", time.Hour)
	cert, err := os.ReadFile(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	replacePair(t, pair, cert, wrong)
	awaitLine(t, s.journal, "the new certificate cannot be used")
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client()}}
	if !strings.Contains(fetchText(t, plain, "https://"+s.address+"/metrics"), "gatehouse_tls_stale 1") {
		t.Error("gatehouse_tls_stale is not 1")
	}
}

func askOnce(ctx context.Context, c *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := c.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s, %w", answer.Status, err)
	}
	return nil
}

func fetchText(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(soon(t), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Health and metrics have an address of their own, without TLS, which the health command asks.
func TestHealthAddress(t *testing.T) {
	t.Parallel()
	ca, address := certstest.New(t), "localhost:"+freePort(t)
	s := start(t, tlsFlags(ca.Server(), "--health", address)...)
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "gatehouse_build_info",
		"/v1/counter/c/count": "this address has /healthz, /readyz and /metrics alone",
		"/docs/":              "this address has /healthz, /readyz and /metrics alone",
	} {
		if text := fetchText(t, http.DefaultClient, "http://"+address+path); !strings.Contains(text, want) {
			t.Errorf("%s at --health = %.200q, want %q", path, text, want)
		}
	}
	status, out, said := gatehouse(t, []string{"GATEHOUSE_HEALTH=" + address}, "health")
	if status != 0 || !strings.HasPrefix(out, "ok\n") {
		t.Errorf("gatehouse health ends with %d, %q, %q, want 0 and ok", status, out, said)
	}
	// Without the authority the reason and what to do about it are said.
	status, _, said = gatehouse(t, nil, "health", "--server", "https://"+s.address)
	if status != 1 || !strings.Contains(said, "give --ca FILE") {
		t.Errorf("gatehouse health without --ca ends with %d and says %q", status, said)
	}
	status, _, said = gatehouse(t, nil, "peek", "gcra/a", "--server", s.address)
	if status == 0 || !strings.Contains(said, "this port speaks TLS alone, want https") {
		t.Errorf("gatehouse peek without TLS ends with %d and says %q", status, said)
	}
}

// A tree of servers over TLS: the child shows its certificate to its parent, and trusts an authority that it
// was given after its start.
func TestTLSParent(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	parent := startCapacity(t, tlsFlags(ca.Server(), "--tls-client-ca", ca.File,
		"--tls-client-auth", "require", "--capacity-config", writeTemplates(t, shares))...)
	pair, trusted := ca.Issue("child", time.Hour), filepath.Join(t.TempDir(), "ca.pem")
	certstest.New(t).CopyTo(trusted)
	child := start(t, "--parent", parent.grpcAddress(t), "--parent-name", "child", "--parent-ca", trusted,
		"--parent-cert", pair.Cert, "--parent-key", pair.Key)
	at := child.grpcAddress(t)
	// It asks its parent once somebody wants something.
	_, _, _ = gatehouse(t, nil, "capacity", "get", "database", "10", "--server", at, "--timeout", "1s")
	awaitLine(t, child.journal, "certificate signed by unknown authority")
	ca.CopyTo(trusted)
	await.True(t, "the child has capacity", func() bool {
		status, out, _ := gatehouse(t, nil, "capacity", "get", "database", "10", "--server", at)
		return status == 0 && strings.Contains(out, "10")
	})
}
