package jarl_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take that has no time of its own, on a busy machine.
const patience = 30 * time.Second

// A clock stands still until it is set.
type clock struct{ since atomic.Int64 }

func (c *clock) set(since time.Duration) { c.since.Store(int64(since)) }

func (c *clock) now() time.Time { return time.Unix(1_000_000, c.since.Load()) }

// A listener is a server with one, on real sockets, a real gate and a clock of the test's.
type listener struct {
	clock
	address string
	admits  jarl.Admission
	polls   bool // its clients ask again until they are told 0
	gate    *gate.Gate
	server  *jarl.Server
	served  chan error
}

func (l *listener) key() gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Pace, Name: "api"} }

// listen starts a listener of n requests per second, which ends with the test.
func listen(t *testing.T, n int64, mode string) *listener {
	t.Helper()
	limit := jarl.PaceLimit{Name: "api", Requests: n, Period: time.Second}
	if err := limit.SetMode(mode); err != nil {
		t.Fatal(err)
	}
	return listenWith(t, limit)
}

func listenWith(t *testing.T, limit jarl.PaceLimit) *listener {
	t.Helper()
	l := newListener(t, limit, memory.Config{}, io.Discard)
	t.Cleanup(func() { l.end(t) })
	return l
}

func newListener(t *testing.T, limit jarl.PaceLimit, config memory.Config, log io.Writer) *listener {
	t.Helper()
	l := &listener{}
	config.Now = l.now
	l.begin(t, limit, memory.New(config), log)
	return l
}

// newListenerOn is newListener with a store of the test's.
func newListenerOn(t *testing.T, limit jarl.PaceLimit, store gate.Store, log io.Writer) *listener {
	t.Helper()
	l := &listener{}
	l.begin(t, limit, store, log)
	return l
}

func (l *listener) begin(t *testing.T, limit jarl.PaceLimit, store gate.Store, log io.Writer) {
	t.Helper()
	l.served = make(chan error, 1)
	l.gate = gate.New(store, gate.Config{})
	server, err := jarl.New(jarl.Config{
		Gate: l.gate, Log: slog.New(slog.NewTextHandler(log, nil)), Limit: limit,
		Admits: l.admits,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.server = server
	tcp, err := jarl.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.address = tcp.Addr().String()
	go func() { l.served <- server.Serve(tcp) }()
}

// end stops the listener without complaint.
func (l *listener) end(t *testing.T) {
	t.Helper()
	l.server.Stopping()
	l.gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	if err := <-l.served; err != nil {
		t.Errorf("Serve = %v, want nil after Shutdown", err)
	}
}

// dial connects, and closes at the end of the test.
func (l *listener) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := l.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (l *listener) connect(ctx context.Context) (*net.TCPConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn), nil
}

// request is one request as JARL's clients make it. It returns the whole answer, which has to end in an
// orderly way.
func (l *listener) request(ctx context.Context) (string, error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// ask is a request that goes well.
func (l *listener) ask(t *testing.T) string {
	t.Helper()
	answer, err := l.request(t.Context())
	if err != nil {
		t.Fatalf("asking: %q, %v, want an answer", answer, err)
	}
	return answer
}

// rest is what a connection says until it ends in an orderly way.
func rest(t *testing.T, conn net.Conn) string {
	t.Helper()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("reading an answer: %q, %v, want it to end without an error", answer, err)
	}
	return string(answer)
}

// delay is an answer as clients understand it.
func delay(t *testing.T, answer string) time.Duration {
	t.Helper()
	seconds, err := strconv.ParseFloat(answer[:min(len(answer), 7)], 64)
	if err != nil {
		t.Errorf("the answer is %q, want a number", answer)
	}
	return time.Duration(seconds * float64(time.Second))
}

// Serve that comes behind Shutdown is no failure, also if the process has closed the listener by then.
func TestServeBehindShutdown(t *testing.T) {
	server, err := jarl.New(jarl.Config{
		Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), Log: slog.New(slog.DiscardHandler),
		Limit: jarl.PaceLimit{Name: "p", Requests: 1, Period: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := jarl.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = tcp.Close()
	if err := server.Serve(tcp); err != nil {
		t.Error(err)
	}
}
