package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// gatehouse runs the command to its end.
func gatehouse(t *testing.T, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run() // the state says the same
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	status, _, said := gatehouse(t, nil, "serve", "--http", shared().address)
	want := "gatehouse: listening for HTTP: …" + shared().address + "…address already in use…--http…"
	if status == 0 || !matches(want, said) {
		t.Errorf("a second server at a port ended with %d and said %q, want not 0 and %q", status, said, want)
	}
	_, port, _ := net.SplitHostPort(shared().address)
	status, _, said = gatehouse(t, []string{"BOUNCER_PORT=" + port}, "serve")
	if status == 0 || !strings.Contains(said, "address already in use") {
		t.Errorf("the same by BOUNCER_PORT ended with %d and said %q, want not 0 and why", status, said)
	}
	shared().want(t, "/.well-known/ready", "200")
}

// freePort is a port that nobody listens at just now.
func freePort(t *testing.T) string {
	t.Helper()
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	return port
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	for _, c := range []struct{ fact, env, args, host string }{
		{"port alone means this machine only", "BOUNCER_PORT={}", "", "127.0.0.1"},
		{"host and port", "BOUNCER_HOST=0.0.0.0 BOUNCER_PORT={}", "", "::"},
		{"a flag wins", "BOUNCER_HOST=192.0.2.1 BOUNCER_PORT=1", "--http 127.0.0.1:{}", "127.0.0.1"},
		{"the flag's own variable", "GATEHOUSE_HTTP=127.0.0.1:{}", "", "127.0.0.1"},
		{"which wins over bouncer's", "GATEHOUSE_HTTP=127.0.0.1:{} BOUNCER_PORT=1", "", "127.0.0.1"},
		{"a flag wins over its variable", "GATEHOUSE_HTTP=192.0.2.1:1", "--http 127.0.0.1:{}", "127.0.0.1"},
		{"Kubernetes makes variables for a service", "GATEHOUSE_PORT=tcp://10.0.0.1:5505 " +
			"GATEHOUSE_SERVICE_HOST=10.0.0.1 BOUNCER_PORT={}", "", "127.0.0.1"},
	} {
		env := strings.Fields(strings.ReplaceAll(c.env, "{}", port))
		flags := strings.Fields(strings.ReplaceAll(c.args, "{}", port))
		s, err := launch(t.Context(), settings{flags: flags, env: env})
		if err != nil {
			t.Fatalf("%s: %v", c.fact, err)
		}
		if want := net.JoinHostPort(c.host, port); s.address != want {
			t.Errorf("%s: %s serve %s listens at %s, want %s", c.fact, env, flags, s.address, want)
		}
		if err := s.stop(); err != nil {
			t.Errorf("%s: %v", c.fact, err)
		}
	}
}

func TestDefaultAddress(t *testing.T) {
	t.Parallel()
	status, help, _ := gatehouse(t, nil, "serve", "--help")
	if status != 0 || !strings.Contains(help, `(default "localhost:5505")`) {
		t.Errorf("serve --help ended with %d and says\n%s\nwant localhost:5505 as the default", status, help)
	}
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env   string
		flags []string
		debug bool
	}{
		{env: "BOUNCER_LOGLEVEL=DEBUG", debug: true},
		{env: "BOUNCER_LOGLEVEL=debug", debug: true},
		{env: "BOUNCER_LOGLEVEL=INFO"},
		{env: "BOUNCER_LOGLEVEL=whatever"}, // as in bouncer, that is info
		{env: "BOUNCER_LOGLEVEL=DEBUG", flags: []string{"--log-level", "info"}},
		{env: "BOUNCER_LOGLEVEL=INFO GATEHOUSE_LOG_LEVEL=debug", debug: true},
		{flags: []string{"--log-level", "debug", "--log-format", "text"}, debug: true},
	} {
		flags := append([]string{"--http", "localhost:0"}, c.flags...)
		s := startWith(t, settings{flags: flags, env: strings.Fields(c.env)})
		s.want(t, "/v1/counter/nametag/count", "200 1")
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(s.journal.String(), "nametag"); got != c.debug {
			t.Errorf("%s serve %v logs each request: %t, want %t; it said\n%s",
				c.env, c.flags, got, c.debug, s.journal)
		}
	}
}

func TestSignalsAnswerWhoWaits(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := start(t)
		s.want(t, "/v1/semaphore/s/acquire?key=a", "200")
		waits := []string{
			"/v1/semaphore/s/acquire?key=b", "/v1/semaphore/s/acquire?maxwait=60000", "/v1/event/e/wait",
			"/event/e/wait", "/v1/watchdog/w/wait", "/v1/barrier/b/wait", "/v1/tokenbucket/t/acquire?size=0",
		}
		var waiters []*conn
		for _, request := range waits {
			waiters = append(waiters, s.wait(t, request))
		}
		s.signal(signal)
		for i, w := range waiters {
			a := w.answer()
			if !a.is("503 …the server is stopping") || !a.last {
				t.Errorf("%s at %s = %s, closing %t, want 503, its reason, and the end of the connection",
					signal, waits[i], a, a.last)
			}
		}
		status, err := s.exit()
		if err != nil || status != 0 {
			t.Errorf("after %s the status = %d, %v, want 0; it said\n%s", signal, status, err, s.journal)
		}
		var dialer net.Dialer
		if c, err := dialer.DialContext(t.Context(), "tcp", s.address); err == nil {
			_ = c.Close()
			t.Error("after the end somebody still listens")
		}
	}
}

// Connections on which nothing is asked are closed at once, and keep nobody waiting.
func TestSignalClosesIdleConnections(t *testing.T) {
	t.Parallel()
	for _, requests := range [][]string{nil, {"/v1/counter/c/count"}, {"/v1/event/e/wait?maxwait=20"}} {
		s := start(t, "--drain", "30s", "--read-timeout", "30s")
		c := s.dial(t)
		for _, request := range requests {
			c.ask(request)
			c.answer()
		}
		s.want(t, "/.well-known/ready", "200") // by now the connection is with the server
		s.endsSoon(t)
		if a, err := c.read(); err == nil {
			t.Errorf("a connection that is idle after %q got %s, want it closed", requests, a)
		}
	}
}

// endsSoon tells the server to stop, and waits until it has, which takes a moment.
func (s *server) endsSoon(t *testing.T) {
	t.Helper()
	told := time.Now()
	s.signal(syscall.SIGTERM)
	status, err := s.exit()
	if took := time.Since(told); err != nil || status != 0 || took > 15*time.Second {
		t.Errorf("the server ended with %d, %v, after %s, want 0 at once; it said\n%s",
			status, err, took, s.journal)
	}
}

// The same for those that arrive while the server stops.
func TestSignalWhileConnectionsArrive(t *testing.T) {
	t.Parallel()
	s := start(t, "--drain", "30s", "--read-timeout", "30s")
	refused, arriving := make(chan []net.Conn), make(chan struct{})
	go func() {
		var conns []net.Conn
		var dialer net.Dialer
		for {
			c, err := dialer.DialContext(t.Context(), "tcp", s.address)
			if err != nil {
				refused <- conns
				return
			}
			if conns = append(conns, c); len(conns) == 50 {
				close(arriving)
			}
		}
	}()
	<-arriving
	s.endsSoon(t)
	for _, c := range <-refused {
		_ = c.Close()
	}
}

// A request that has begun may arrive until the time for that is over.
func TestSignalLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	s := start(t, "--drain", "20s")
	c := s.dial(t)
	c.send("GET /v1/counter/c/count HTTP/1.1\r\n")
	s.want(t, "/v1/counter/c/value", "200 0") // by now the first half is with the server
	s.signal(syscall.SIGTERM)
	awaitLine(t, s.journal, `"stopping"`)
	c.send("Host: localhost\r\n\r\n")
	if a := c.answer(); !a.is("200 1") || !a.last {
		t.Errorf("a request that was on its way = %s, closing %t, want 200 1 and the end", a, a.last)
	}
}

// Who does not send the rest of a request does not keep the server alive.
func TestSignalDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	s, err := launch(context.WithoutCancel(t.Context()), settings{flags: []string{
		"--http", "localhost:0", "--drain", "500ms", "--read-timeout", "1h",
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := s.dial(t)
	c.send("GET /v1/counter/c/count HTTP/1.1\r\n")
	s.want(t, "/v1/counter/c/value", "200 0")
	asked := time.Now()
	s.signal(syscall.SIGTERM)
	if _, err := s.exit(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(asked); took > patience/2 {
		t.Errorf("with --drain 500ms the server took %s to end", took)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"version":        "gatehouse …go1.…/…\n",
		"version --json": `{…"go":"go1.…"version":"…"}` + "\n",
		"--help":         "…gatehouse serve…",
		"serve --help":   "…--max-waiters…",
	} {
		status, out, said := gatehouse(t, nil, strings.Fields(args)...)
		if status != 0 || !matches(want, out) {
			t.Errorf("%s ended with %d, wrote %q and %q, want 0 and %q", args, status, out, said, want)
		}
	}
	if status, _, said := gatehouse(t, nil, "open"); status == 0 || !strings.Contains(said, "open") {
		t.Errorf("gatehouse open ended with %d and said %q, want not 0 and why", status, said)
	}
}
