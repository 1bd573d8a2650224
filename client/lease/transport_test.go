package lease_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
)

// A body notes that it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// TestTransportWaits: requests go at the rate of the resource, and fail with their context.
func TestTransportWaits(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer site.Close()
	k := newKnob(20)
	limiter := lease.NewRateLimiter(k)
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &lease.Transport{Limiter: limiter, Base: base}}
	post := func(ctx context.Context, b *body) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL, b)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	begun := time.Now()
	for range 5 {
		text, err := post(t.Context(), &body{Reader: strings.NewReader("hello")})
		if text != "hello" || err != nil {
			t.Fatalf("request = %q, %v, want hello", text, err)
		}
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("5 requests at 20 per second took %s, want 200 ms or more", took)
	}
	k.turn(0)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	b := &body{Reader: strings.NewReader("hello")}
	_, err := post(soon, b)
	var timeout net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("request at 0 = %v, want a timeout as net/http knows them", err)
	}
	if !b.closed {
		t.Error("body of a request that did not go out is open, want it closed")
	}
	limiter.Close()
	_, err = post(t.Context(), &body{Reader: strings.NewReader("")})
	if !errors.Is(err, lease.ErrClosed) {
		t.Errorf("request after Close = %v, want ErrClosed", err)
	}
}

// TestTransportHasADefault: http.DefaultTransport.
func TestTransportHasADefault(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	client := &http.Client{Transport: &lease.Transport{Limiter: lease.NewRateLimiter(newKnob(-1))}}
	response, err := client.Get(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("status = %d, want 404", response.StatusCode)
	}
}

// TestTransportClosesIdleConnections: those of its base, as who has only the http.Client expects.
func TestTransportClosesIdleConnections(t *testing.T) {
	t.Parallel()
	states := make(chan http.ConnState, 100)
	site := httptest.NewUnstartedServer(http.NotFoundHandler())
	site.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	site.Start()
	defer site.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	limiter := lease.NewRateLimiter(newKnob(-1))
	client := &http.Client{Transport: &lease.Transport{Limiter: limiter, Base: base}}
	response, err := client.Get(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	client.CloseIdleConnections()
	late := time.After(patience)
	for {
		select {
		case state := <-states:
			if state == http.StateClosed {
				return
			}
		case <-late:
			t.Fatal("connection is still open, want it closed")
		}
	}
}
