package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
)

// A network plays servers by their hosts, in virtual time.
type network struct {
	down map[string]error // what a request to a host fails with
	hang map[string]bool  // a request to a host gets no answer
	asks map[string]int
	last url.Values // the parameters of the last request
}

// RoundTrip implements [http.RoundTripper].
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asks[r.URL.Host]++
	n.last = r.URL.Query()
	if n.hang[r.URL.Host] {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if err := n.down[r.URL.Host]; err != nil {
		return nil, err
	}
	body := `{"outcome":"granted","value":1}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func newNetwork(t *testing.T, addresses ...string) (*network, *client.Client) {
	t.Helper()
	n := &network{down: map[string]error{}, hang: map[string]bool{}, asks: map[string]int{}}
	c, err := client.New(client.Config{Addresses: addresses, Transport: n})
	if err != nil {
		t.Fatal(err)
	}
	return n, c
}

// refusedDial is the error of a dial to a port without a listener.
func refusedDial() error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} }

func countOne() gatehouse.Command { return gatehouse.Command{Op: gatehouse.OpCount, Amount: 1} }

// An address that fails is asked once in each pause, and normally again when it is back.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNetwork(t, "a:1", "b:1")
		n.down["a:1"] = refusedDial()
		n.down["b:1"] = refusedDial()
		ask := func() error {
			_, err := c.Do(t.Context(), key(gatehouse.Counter), countOne())
			return err
		}
		for range 2 {
			if err := ask(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Fatalf("a count without a server = %v, want unavailable", err)
			}
		}
		before := n.asks["a:1"]
		for range 100 {
			if err := ask(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
				t.Fatalf("a count while the breakers are open = %v, want unavailable", err)
			}
		}
		if n.asks["a:1"] != before || before != 2 {
			t.Errorf("a was asked %d and then %d times, want twice", before, n.asks["a:1"])
		}
		// In a minute of steady asking each is tried about once a second.
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			_ = ask()
		}
		if tried := n.asks["a:1"] - before; tried < 55 || tried > 75 {
			t.Errorf("a was asked %d times in a minute of being away, want about 60", tried)
		}
		n.down = map[string]error{}
		time.Sleep(time.Second)
		if err := ask(); err != nil {
			t.Errorf("a count with the servers back = %v", err)
		}
	})
}

// What is held is renewed even where the breaker is open.
func TestRenewPassesBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNetwork(t, "a:1")
		n.down["a:1"] = refusedDial()
		for range 5 {
			_, _ = c.Do(t.Context(), key(gatehouse.Counter), countOne())
		}
		n.down = map[string]error{}
		renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "a", Expires: gatehouse.AsAcquired}
		if _, err := c.Do(t.Context(), key(gatehouse.Lock), renew); err != nil {
			t.Errorf("renew = %v, want it sent", err)
		}
		if _, err := c.Do(t.Context(), key(gatehouse.Counter), countOne()); err != nil {
			t.Errorf("a count after an answer = %v, want the breaker closed", err)
		}
	})
}

// A server that hangs costs a share of the time there is, and then the next one is asked.
func TestHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNetwork(t, "a:1", "b:1")
		n.hang["a:1"] = true
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "a", Expires: gatehouse.AsAcquired}
		if _, err := c.Do(ctx, key(gatehouse.Lock), renew); err != nil ||
			time.Since(began) != 150*time.Millisecond {
			t.Errorf("renew past a server that hangs = %v after %s, want 150ms", err, time.Since(began))
		}
		// The one that has answered is asked first from now on.
		if _, err := c.Do(t.Context(), key(gatehouse.Counter), countOne()); err != nil || n.asks["a:1"] != 1 {
			t.Errorf("count = %v, a asked %d times, want once", err, n.asks["a:1"])
		}
		n.hang["b:1"] = true
		began = time.Now()
		_, err := c.Do(t.Context(), key(gatehouse.Counter), countOne())
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || time.Since(began) != 5*time.Second {
			t.Errorf("a count at a server that hangs = %v after %s, want unavailable after the timeout", err,
				time.Since(began))
		}
	})
}

// The deadline goes to the server with the request, so that it gives the place up by itself.
func TestDeadlineIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNetwork(t, "a:1")
		for _, test := range []struct {
			maxWait, deadline time.Duration
			want              string
		}{
			{gatehouse.Forever, 0, "-1"},
			{gatehouse.Forever, 1500 * time.Microsecond, "2"},
			{time.Minute, time.Second, "1000"},
			{time.Second, time.Minute, "1000"},
			{0, time.Minute, "0"},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if test.deadline > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), test.deadline)
			}
			cmd := acquireLock("a")
			cmd.MaxWait = test.maxWait
			if _, err := c.Do(ctx, key(gatehouse.Lock), cmd); err != nil ||
				n.last.Get("maxwait") != test.want {
				t.Errorf("maxwait %s in %s = %v as %q, want %q", test.maxWait, test.deadline, err,
					n.last.Get("maxwait"), test.want)
			}
			cancel()
		}
	})
}
