package resp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

// patience is how long anything may take that has no time of its own, on a busy machine.
const patience = 30 * time.Second

// Nothing runs on after a server has ended.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet has a pool of goroutines from the start, which it uses for nothing here.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// A door is a server at a real socket, with all that is behind it.
type door struct {
	*Server
	gate    *gate.Gate
	address string
	served  chan error
}

// open opens a door whose clock runs.
func open(t *testing.T, config Config) *door {
	t.Helper()
	return openAt(t, config, memory.Config{})
}

// A stillClock stands still but for what is added to it.
type stillClock struct{ passed atomic.Int64 }

func (c *stillClock) now() time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(c.passed.Load()))
}

// openStill opens a door whose clock stands still.
func openStill(t *testing.T) (*door, *stillClock) {
	t.Helper()
	clock := new(stillClock)
	return openAt(t, Config{}, memory.Config{Now: clock.now}), clock
}

func openAt(t *testing.T, config Config, store memory.Config) *door {
	t.Helper()
	return openStore(t, config, memory.New(store))
}

func openStore(t *testing.T, config Config, store gate.Store) *door {
	t.Helper()
	d := newDoor(t, config, store)
	d.start(t)
	return d
}

// newDoor makes a door that is to be started.
func newDoor(t *testing.T, config Config, store gate.Store) *door {
	t.Helper()
	d := &door{gate: gate.New(store, gate.Config{}), served: make(chan error, 1)}
	if config.Version = "v0.0.0"; config.Gate == nil {
		config.Gate = d.gate
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if d.Server, err = New(config); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *door) start(t *testing.T) {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = listener.Addr().String()
	go func() { d.served <- d.Serve(listener) }()
	t.Cleanup(func() { d.shut(t) })
}

// shut ends the server, if it has not ended yet.
func (d *door) shut(t *testing.T) {
	t.Helper()
	if d.ending.Load() {
		return
	}
	d.drainWithin(t, patience)
}

// drainWithin ends the server, which must be in good order within this time.
func (d *door) drainWithin(t *testing.T, patience time.Duration) {
	t.Helper()
	d.Stopping()
	d.gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	if err := <-d.served; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// A client is one connection to a door.
type client struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

// dial connects for the length of the test.
func (d *door) dial(t *testing.T) *client {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{conn, t, bufio.NewReader(conn)}
}

// send writes bytes as they are. That the server does not want them any more is no failure.
func (c *client) send(data string) { _, _ = io.WriteString(c, data) }

// ask sends a command and returns its answer.
func (c *client) ask(command string) string {
	c.t.Helper()
	c.send(wire(strings.Fields(command)...))
	return c.answer()
}

// want sends a command, which must be answered like this.
func (c *client) want(command, answer string) {
	c.t.Helper()
	if got := c.ask(command); got != answer {
		c.t.Errorf("%s = %s, want %s", command, got, answer)
	}
}

// answer reads one answer: OK, -ERR text, 12, text, null, [several parts], {name value}, or 1.5 as
// ,1.5.
func (c *client) answer() string {
	c.t.Helper()
	text, err := read(c.reader)
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	return text
}

// over waits for the end of the connection, before which nothing may come.
func (c *client) over() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.reader); err != nil || len(rest) > 0 {
		c.t.Errorf("at the end of the connection came %q, %v, want nothing", rest, err)
	}
}

// read reads one value.
func read(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(line, lineEnd) {
		return "", fmt.Errorf("line %q has no end of ours", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-', ',':
		return line[:len(line)-2], nil
	case '_':
		return "null", nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return "", fmt.Errorf("line %q is none of RESP", line)
	}
	switch {
	case n < 0:
		return "null", nil
	case kind == '$' || kind == '=':
		text := make([]byte, n+2)
		_, err := io.ReadFull(from, text)
		return string(text[:n]), err
	case kind == '%':
		text, err := readSeveral(from, 2*n)
		return "{" + text + "}", err
	case kind == '*':
		text, err := readSeveral(from, n)
		return "[" + text + "]", err
	}
	return "", fmt.Errorf("line %q is none of RESP", line)
}

func readSeveral(from *bufio.Reader, n int) (string, error) {
	parts := make([]string, n)
	for i := range parts {
		var err error
		if parts[i], err = read(from); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, " "), nil
}

// until waits for a condition that comes about by itself.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.True(t, what, holds)
}

// inLine waits until so many wait.
func (d *door) inLine(t *testing.T, count int) {
	t.Helper()
	until(t, fmt.Sprintf("%d wait", count), func() bool { return d.gate.Waiting() == count })
}
