package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/servertest"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The library of the front leaves these behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// serveGate runs a gate behind HTTP until the test ends.
func serveGate(t *testing.T) (g *gate.Gate, address string) {
	t.Helper()
	g = gate.New(memory.New(memory.Config{}), gate.Config{})
	server, err := httpfront.New(httpfront.Config{Gate: g, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g, servertest.Serve(t, server)
}

// newClient returns a client of some addresses.
func newClient(t *testing.T, config client.Config) *client.Client {
	t.Helper()
	if config.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		config.Transport = transport
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// key is a name of the tests.
func key(kind gatehouse.Kind) gatehouse.Key { return gatehouse.Key{Kind: kind, Name: "api"} }

// acquireLock is the command that acquires a lock for a holder.
func acquireLock(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Cost: 1, Expires: time.Minute, MaxWait: gatehouse.Forever,
	}
}

// A caller that gives up has its place in line free at once.
func TestCancelLeavesLine(t *testing.T) {
	g, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	if d, err := c.Do(t.Context(), key(gatehouse.Lock), acquireLock("a")); err != nil ||
		d.Outcome != gatehouse.Granted {
		t.Fatalf("acquire = %+v, %v", d, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, key(gatehouse.Lock), acquireLock("b"))
		ended <- err
	}()
	await.True(t, "one waits", func() bool { return g.Waiting() == 1 })
	cancel()
	if err := <-ended; gatehouse.CodeOf(err) != gatehouse.CodeTimeout || !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled acquire = %v, want a timeout, canceled", err)
	}
	await.True(t, "the line is empty", func() bool { return g.Waiting() == 0 })
	release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}
	if d, err := c.Do(t.Context(), key(gatehouse.Lock), release); err != nil ||
		d.Outcome != gatehouse.Granted {
		t.Fatalf("release = %+v, %v", d, err)
	}
	if d, err := c.Do(t.Context(), key(gatehouse.Lock), acquireLock("c")); err != nil ||
		d.Outcome != gatehouse.Granted {
		t.Errorf("acquire of a free lock = %+v, %v", d, err)
	}
}

// A transportFunc carries requests.
type transportFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// loseAnswers is a transport that brings every request to its server, and loses the answers to the first
// ones.
func loseAnswers(lost int, sent *atomic.Int32) transportFunc {
	inner := &http.Transport{DisableKeepAlives: true}
	return func(r *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(r)
		if err != nil || int(sent.Add(1)) > lost {
			return response, err
		}
		_ = response.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
}

// What was counted and not answered is not counted again; what has a key is asked again.
func TestRepeats(t *testing.T) {
	_, address := serveGate(t)
	for _, test := range []struct {
		name     string
		key      gatehouse.Key
		cmd      gatehouse.Command
		requests int32
	}{
		{"count", key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}, 1},
		{"value", key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpValue}, 2},
		{"acquire of a lock", key(gatehouse.Lock), acquireLock("a"), 2},
		{"renew", key(gatehouse.Lock), gatehouse.Command{
			Op: gatehouse.OpRenew, Holder: "a", Expires: gatehouse.AsAcquired,
		}, 2},
		{"release", key(gatehouse.Lock), gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}, 1},
		{"acquire of a limiter", key(gatehouse.TokenBucket), gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 5, Interval: time.Hour},
		}, 1},
		{"reserve", key(gatehouse.TokenBucket), gatehouse.Command{
			Op: gatehouse.OpReserve, Holder: "a", Cost: 1, Rule: gatehouse.Rule{Size: 5, Interval: time.Hour},
		}, 1},
		{"send", key(gatehouse.Event), gatehouse.Command{Op: gatehouse.OpSend}, 1},
	} {
		var sent atomic.Int32
		c := newClient(t, client.Config{Addresses: []string{address}, Transport: loseAnswers(1, &sent)})
		d, err := c.Do(t.Context(), test.key, test.cmd)
		if repeated := test.requests > 1; sent.Load() != test.requests ||
			repeated != (err == nil) || repeated != (d.Outcome == gatehouse.Granted) ||
			err != nil && gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("%s, whose first answer is lost: %d requests, %v, %v, want %d", test.name, sent.Load(),
				d.Outcome, err, test.requests)
		}
	}
	c := newClient(t, client.Config{Addresses: []string{address}})
	d, err := c.Do(t.Context(), key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpValue})
	if err != nil || d.Value != 1 {
		t.Errorf("one count whose answer was lost makes %d, %v, want 1", d.Value, err)
	}
}

// A grant of one member is a limiter that can be asked again: it is taken once.
func TestGrantIsRepeated(t *testing.T) {
	_, address := serveGate(t)
	var sent atomic.Int32
	c := newClient(t, client.Config{Addresses: []string{address}, Transport: loseAnswers(1, &sent)})
	d, err := c.DoGrant(t.Context(), gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "once", Expires: time.Minute, Want: []gatehouse.Member{
			{Key: key(gatehouse.TokenBucket), Rule: gatehouse.Rule{Size: 5, Interval: time.Hour}, Cost: 2},
		},
	})
	if err != nil || d.Outcome != gatehouse.Granted || sent.Load() != 2 || d.Want[0].Remaining != 3 {
		t.Errorf("a grant asked for twice: %+v, %v, %d requests, want 3 left of 5 by 2", d, err, sent.Load())
	}
}

// The first address has no listener: the next one is asked, whatever the question is.
func TestNextAddress(t *testing.T) {
	_, address := serveGate(t)
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	c := newClient(t, client.Config{Addresses: []string{gone.Addr().String(), address}})
	for want := range int64(5) {
		d, err := c.Do(t.Context(), key(gatehouse.Counter), countOne())
		if err != nil || d.Value != want+1 {
			t.Fatalf("count %d = %d, %v", want+1, d.Value, err)
		}
	}
}

// Errors and outcomes are those of the gate behind the server.
func TestErrorsKeepTheirCode(t *testing.T) {
	for body, want := range map[string]gatehouse.Code{
		`400 {"code":"invalid","detail":"a: no"}`:            gatehouse.CodeInvalid,
		`503 {"code":"exhausted","detail":"a: full"}`:        gatehouse.CodeExhausted,
		`503 {"code":"unavailable","detail":"a: stopping"}`:  gatehouse.CodeUnavailable,
		`503 {"code":"timeout","detail":"a: late"}`:          gatehouse.CodeTimeout,
		`500 {"code":"internal","detail":"a: broken"}`:       gatehouse.CodeInternal,
		`421 {"code":"misdirected","detail":"a: elsewhere"}`: gatehouse.CodeUnavailable,
		`502 <html>Bad Gateway</html>`:                       gatehouse.CodeUnavailable,
		`418 {}`:                                             gatehouse.CodeInternal,
		`200 {"outcome":"surprised"}`:                        gatehouse.CodeInternal,
		`200 <html>`:                                         gatehouse.CodeInternal,
	} {
		c := newClient(t, client.Config{Transport: answerWith(body)})
		_, err := c.Do(t.Context(), key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpValue})
		if err == nil || gatehouse.CodeOf(err) != want {
			t.Errorf("%s = %v of code %s, want %s", body, err, gatehouse.CodeOf(err), want)
		}
		if _, text, _ := strings.Cut(body, `"detail":"`); err != nil && text != "" &&
			!strings.HasPrefix(text, err.Error()) {
			t.Errorf("%s = %q, want its detail", body, err)
		}
	}
}

// answerWith is a transport that answers everything with a status and a body.
func answerWith(answer string) transportFunc {
	status, body, _ := strings.Cut(answer, " ")
	return func(*http.Request) (*http.Response, error) {
		code, err := strconv.Atoi(status)
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}, err
	}
}

// A command that HTTP cannot express is refused before it is sent, and a bad address when the client is made.
func TestUnsaid(t *testing.T) {
	c := newClient(t, client.Config{Transport: transportFunc(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, io.EOF
	})})
	rule := gatehouse.Rule{Size: 1, Interval: 1500 * time.Microsecond}
	for _, test := range []struct {
		key gatehouse.Key
		cmd gatehouse.Command
	}{
		{key(gatehouse.TokenBucket), gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Rule: rule}},
		{key(gatehouse.GCRA), gatehouse.Command{
			Op: gatehouse.OpReserve, Cost: 1, Rule: gatehouse.Rule{Size: 1, Interval: time.Second},
			MaxDelay: time.Second,
		}},
		{key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpUndo}},
		{key(gatehouse.Counter), gatehouse.Command{Op: gatehouse.OpCount, Keep: time.Hour}},
		{gatehouse.Key{Kind: gatehouse.Grant, Name: "g"}, gatehouse.Command{Op: gatehouse.OpPeek}},
		{gatehouse.Key{Kind: gatehouse.Lock}, acquireLock("a")},
	} {
		if _, err := c.Do(t.Context(), test.key, test.cmd); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("%s %s = %v, want it invalid", test.key, test.cmd.Op, err)
		}
	}
	look := gatehouse.GrantCommand{
		Op: gatehouse.OpDelay, Want: []gatehouse.Member{{Key: key(gatehouse.TokenBucket), Cost: 1}},
	}
	if _, err := c.DoGrant(t.Context(), look); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("a delay of several names = %v, want it invalid", err)
	}
	for _, address := range []string{"", "ftp://a", "http://a/v1", "http://u:p@a", "a b"} {
		if _, err := client.New(client.Config{Addresses: []string{address}}); err == nil {
			t.Errorf("the address %q is taken, want an error", address)
		}
	}
}

// A message of any length and a name of any letters arrive as they are.
func TestTextsArrive(t *testing.T) {
	_, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	for _, name := range []string{"..", "a/b", "größe+50%", "?x=1#", strings.Repeat("ä", 256)} {
		event := gatehouse.Key{Kind: gatehouse.Event, Name: name}
		message := strings.Repeat("%\n", 2048)
		if d, err := c.Do(t.Context(), event, gatehouse.Command{
			Op: gatehouse.OpSend, Message: message,
		}); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("send to %q = %+v, %v", name, d, err)
		}
		d, err := c.Do(t.Context(), event, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: time.Minute})
		if err != nil || d.Message != message {
			t.Errorf("wait for %q = %q, %v", name, d.Message, err)
		}
	}
	names, err := c.Names(t.Context(), gatehouse.Event, "a", 2)
	if err != nil || len(names) != 2 || names[0] != "a/b" {
		t.Errorf("names after a = %q, %v, want a/b and another", names, err)
	}
}

// Holders and waiters are listed with all that is known of them.
func TestLists(t *testing.T) {
	g, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	cmd := acquireLock("a")
	cmd.Owner = &gatehouse.Owner{Name: "train-a", Host: "g1", Purpose: "eval & more"}
	granted, err := c.Do(t.Context(), key(gatehouse.Lock), cmd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		cmd := acquireLock("b")
		cmd.Owner = &gatehouse.Owner{Name: "train-b"}
		_, err := c.Do(ctx, key(gatehouse.Lock), cmd)
		ended <- err
	}()
	await.True(t, "one waits", func() bool { return g.Waiting() == 1 })
	d, err := c.Do(t.Context(), key(gatehouse.Lock), gatehouse.Command{Op: gatehouse.OpHolders})
	if err != nil || len(d.Report.Holders) != 1 || d.Report.Holders[0].Fence != granted.Fence ||
		d.Report.Holders[0].Owner != *cmd.Owner || d.Report.Holders[0].ExpiresAfter > time.Minute {
		t.Errorf("holders = %+v, %v", d.Report, err)
	}
	d, err = c.Do(t.Context(), key(gatehouse.Lock), gatehouse.Command{Op: gatehouse.OpWaiters})
	if err != nil || len(d.Report.Waiters) != 1 || d.Report.Waiters[0].Owner.Name != "train-b" ||
		d.Report.Waiters[0].Position != 1 || d.Report.Waiters[0].Expected > time.Minute {
		t.Errorf("waiters = %+v, %v", d.Report, err)
	}
	refused := acquireLock("c")
	refused.MaxWait = 0
	d, err = c.Do(t.Context(), key(gatehouse.Lock), refused)
	if err != nil || d.Outcome != gatehouse.Refused || !strings.HasPrefix(d.Message, "is full") ||
		strings.Contains(d.Message, "try again") {
		t.Errorf("a refusal says %q, %v, want the holders", d.Message, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("an acquire that was canceled = %v", err)
	}
}

// More names than one answer has are read in parts.
func TestNamesInParts(t *testing.T) {
	g, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	for i := range 2100 {
		name := fmt.Sprintf("%s%04d", []string{"a", "b"}[i%2], i)
		counter := gatehouse.Key{Kind: gatehouse.Counter, Name: name}
		if _, err := g.Do(t.Context(), counter, countOne()); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]int{0: 0, 1000: 1000, 1001: 1001, 5000: 2100} {
		names, err := c.Names(t.Context(), gatehouse.Counter, "", most)
		if err != nil || len(names) != want || !slices.IsSorted(names) {
			t.Errorf("at most %d names = %d, %v, want %d in order", most, len(names), err, want)
		}
	}
	for most, want := range map[int]int{0: 0, 1001: 1001, 5000: 1050} {
		details, err := c.NameDetails(t.Context(), gatehouse.Counter, "a", most)
		if err != nil || len(details) != want || want > 0 && details[want-1].Name[0] != 'a' {
			t.Errorf("details of at most %d names = %d, %v, want %d", most, len(details), err, want)
		}
	}
}
