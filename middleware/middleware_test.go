package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/gate"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/servertest"
	"github.com/gatehousehq/gatehouse/middleware"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// serveGate runs a gate whose clock stands still behind HTTP until the test ends.
func serveGate(t *testing.T) (address string) {
	t.Helper()
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	g := gate.New(memory.New(memory.Config{
		Now: func() time.Time { return at }, Linger: time.Hour,
	}), gate.Config{})
	server, err := httpfront.New(httpfront.Config{Gate: g, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Serve(t, server)
}

// okHandler answers everything.
func okHandler(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// TestHandlerSaysWhatTheServerSays: a handler's answers have the headers and the problem of the server's own,
// whatever the limit is, granted and refused.
func TestHandlerSaysWhatTheServerSays(t *testing.T) {
	direct, behind := serveGate(t), serveGate(t)
	c, err := client.New(client.Config{Addresses: []string{behind}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct {
		kind  gatehouse.Kind
		rule  gatehouse.Rule
		query string
	}{
		{gatehouse.GCRA, gatehouse.Rule{Size: 3, Interval: time.Minute, Burst: 1},
			"size=3&interval=60000&burst=1"},
		{gatehouse.GCRA, gatehouse.Rule{Size: 7, Interval: time.Second, Burst: 6}, "size=7"},
		{gatehouse.TokenBucket, gatehouse.Rule{Size: 2, Interval: 1500 * time.Millisecond},
			"size=2&interval=1500"},
		{gatehouse.SlidingLog, gatehouse.Rule{Size: 2, Interval: time.Hour}, "size=2&interval=3600000"},
		{gatehouse.FixedWindow, gatehouse.Rule{Size: 2, Calendar: gatehouse.Day}, "size=2&interval=day"},
		{gatehouse.SlidingWindow, gatehouse.Rule{Limits: gatehouse.NewLimitList(
			gatehouse.Limit{Size: 2, Interval: time.Minute},
			gatehouse.Limit{Size: 9, Calendar: gatehouse.Month},
		)}, "limits=2/1m,9/month"},
		{gatehouse.Pace, gatehouse.Rule{}, ""},
	} {
		handler := middleware.Handler(middleware.Config{
			Gate: c, Rule: test.rule,
			Key: func(r *http.Request) gatehouse.Key {
				return gatehouse.Key{Kind: test.kind, Name: r.Header.Get("User")}
			},
		}, http.HandlerFunc(okHandler))
		for i := range 10 {
			name := test.query + "!"
			got := askHandler(t, handler, name)
			want := askServer(t, direct, "/v1/"+test.kind.String()+"/"+url.PathEscape(name)+
				"/acquire?maxwait=0&refusal=429&"+test.query)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s, request %d:\nthe handler says %v\nthe server       %v", test.kind,
					test.query, i, got, want)
			}
		}
	}
}

// said is what an answer says about limits.
func said(t *testing.T, response *http.Response) map[string]any {
	t.Helper()
	answer := map[string]any{"status": response.StatusCode}
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
		answer[name] = strings.Join(append(response.Header.Values(name), response.Header[name]...), "|")
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var problem map[string]any
	if len(body) > 0 && json.Unmarshal(body, &problem) == nil {
		for _, name := range []string{
			"type", "title", "status", "code", "retry_after_ms", "violated-policies",
		} {
			answer["problem "+name] = problem[name]
		}
	}
	return answer
}

func askHandler(t *testing.T, handler http.Handler, user string) map[string]any {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	return ask(t, server.URL, user)
}

func askServer(t *testing.T, address, path string) map[string]any {
	t.Helper()
	return ask(t, "http://"+address+path, "")
}

func ask(t *testing.T, address, user string) map[string]any {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User", user)
	request.Header.Set("Accept", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return said(t, response)
}

// A silentGate gives no answer.
type silentGate struct{ asked atomic.Int32 }

// Do implements [gatehouse.Gate].
func (g *silentGate) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	g.asked.Add(1)
	if err := cmd.Check(key); err != nil {
		return gatehouse.Decision{}, err
	}
	<-ctx.Done()
	return gatehouse.Decision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%w", ctx.Err())
}

// A gate that hangs costs one request its time, and then the rule decides.
func TestHandlerWithoutGate(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := new(silentGate)
			handler := middleware.Handler(middleware.Config{
				Gate: g, Within: 50 * time.Millisecond, FailClosed: closed,
				Key: func(r *http.Request) gatehouse.Key {
					return gatehouse.Key{Kind: gatehouse.GCRA, Name: r.Header.Get("User")}
				},
			}, http.HandlerFunc(okHandler))
			want := map[bool]int{false: http.StatusNoContent, true: http.StatusServiceUnavailable}[closed]
			began := time.Now()
			for i := range 100 {
				if status := statusFor(t, handler, "ann"); status != want {
					t.Errorf("request %d = %d, want %d", i, status, want)
				}
			}
			if took := time.Since(began); took != 50*time.Millisecond || g.asked.Load() != 1 {
				t.Errorf("100 requests took %s and asked %d times, want 50ms and once", took, g.asked.Load())
			}
			time.Sleep(time.Second)
			if status := statusFor(t, handler, "ann"); status != want || g.asked.Load() != 2 {
				t.Errorf("later it is %d, asked %d times, want %d, twice", status, g.asked.Load(), want)
			}
			time.Sleep(time.Second)
			// A name that makes no sense is no way past the limit.
			if status := statusFor(t, handler, strings.Repeat("x", 600)); status != http.StatusBadRequest {
				t.Errorf("a name of 600 bytes = %d, want 400", status)
			}
		})
	}
}

// A gate that has no room for one request has answered, and is asked by the next.
func TestHandlerAsksAFullGateAgain(t *testing.T) {
	full := gatehouse.Errorf(gatehouse.CodeExhausted, "1000 requests wait already")
	g := &fullGate{err: full}
	handler := middleware.Handler(middleware.Config{
		Gate: g, FailClosed: true,
		Key: func(*http.Request) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"} },
	}, http.HandlerFunc(okHandler))
	if status := statusFor(t, handler, "ann"); status != http.StatusServiceUnavailable {
		t.Errorf("without room it is %d, want 503", status)
	}
	g.err = nil
	if status := statusFor(t, handler, "ann"); status != http.StatusNoContent {
		t.Errorf("the next is %d, want 204", status)
	}
}

// A fullGate grants all, or has an error.
type fullGate struct{ err error }

// Do implements [gatehouse.Gate].
func (g *fullGate) Do(context.Context, gatehouse.Key, gatehouse.Command) (gatehouse.Decision, error) {
	return gatehouse.Decision{Outcome: gatehouse.Granted}, g.err
}

// statusFor is the status of an answer to a user.
func statusFor(t *testing.T, handler http.Handler, user string) int {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("User", user)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

// A thirdParty answers 429 now and then.
type thirdParty struct {
	calls  []time.Time
	status int
}

// RoundTrip implements [http.RoundTripper].
func (p *thirdParty) RoundTrip(*http.Request) (*http.Response, error) {
	p.calls = append(p.calls, time.Now())
	header := http.Header{}
	if p.status == http.StatusTooManyRequests {
		header.Set("Retry-After", "30")
	}
	return &http.Response{StatusCode: p.status, Header: header, Body: http.NoBody}, nil
}

// One 429 pauses every process, and the requests that wait go on after the pause.
func TestTransportPausesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(memory.New(memory.Config{}), gate.Config{})
		party := &thirdParty{status: http.StatusOK}
		config := middleware.Config{
			Gate: g, Rule: gatehouse.Rule{Size: 600, Interval: time.Minute, Burst: 599},
			Key: func(*http.Request) gatehouse.Key {
				return gatehouse.Key{Kind: gatehouse.GCRA, Name: "partner"}
			},
		}
		here, there := middleware.NewTransport(config, party), middleware.NewTransport(config, party)
		call := func(transport http.RoundTripper, within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://partner/", http.NoBody)
			response, err := transport.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		if err := errors.Join(call(here, time.Minute), call(there, time.Minute)); err != nil {
			t.Fatal(err)
		}
		party.status = http.StatusTooManyRequests
		if err := call(here, time.Minute); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		party.status = http.StatusOK
		if err := call(there, 10*time.Second); gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Errorf("a call in the pause = %v, want a timeout", err)
		}
		if err := call(there, time.Hour); err != nil {
			t.Error(err)
		}
		waited := party.calls[len(party.calls)-1].Sub(paused)
		if waited < 30*time.Second || waited > time.Minute {
			t.Errorf("the next call came %s after the 429, want half a minute and a little", waited)
		}
		if len(party.calls) != 4 {
			t.Errorf("%d calls, want 4", len(party.calls))
		}
		g.Close()
	})
}
