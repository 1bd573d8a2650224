package client

import (
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An endpoint is one address and what is known of it: its breaker. When breakAfter requests in a row have
// failed it opens: then one request goes there in each pause, to find out, and all others go elsewhere. The
// pause doubles while that one fails, and any answer closes the breaker. Requests about what is held already
// always go, as they have nothing to lose.
type endpoint struct {
	scheme, host string

	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // 0 when the breaker is closed
	until    time.Time     // when the next request may go to find out
}

const (
	// breakAfter is how many failures in a row open a breaker: a single one is a server that restarts, or a
	// connection that was closed while idle.
	breakAfter = 2
	// The first pause, which doubles with each probe that fails, and the longest. Short ones, as a hold may
	// last half a second.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// newEndpoint reads an address, with or without a scheme; secure says that without one it is https.
func newEndpoint(address string, secure bool) (*endpoint, error) {
	text := address
	switch {
	case strings.Contains(text, "://"):
	case secure:
		text = "https://" + text
	default:
		text = "http://" + text
	}
	u, err := url.Parse(text)
	// A path or a query of the address would be lost, as each request has its own.
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"address %q makes no sense, want one such as localhost:5505 or https://gate.example", address)
	}
	// With a scheme it is a URL, whose port is that of the scheme.
	if u.Port() == "" && !strings.Contains(address, "://") {
		u.Host += ":5505"
	}
	return &endpoint{scheme: u.Scheme, host: u.Host}, nil
}

// An endpointOutcome is how a request to an endpoint went.
type endpointOutcome uint8

const (
	outcomeAnswered  endpointOutcome = iota // whatever the answer was
	outcomeFailed                           // the server said that it cannot decide at present
	outcomeBroken                           // no whole answer: it may have taken effect
	outcomeUnsent                           // no server listens: it took no effect
	outcomeAbandoned                        // its caller has given it up, which says nothing
)

// admitRequest reports whether a request may go there now, and whether that is to find out.
func (e *endpoint) admitRequest(now time.Time, urgent bool) (ok, probe bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.pause == 0 || urgent:
		return true, false
	case now.Before(e.until):
		return false, false
	}
	// The next one does not wait for the answer, which may take as long as a line.
	e.until = now.Add(e.pause)
	return true, true
}

// noteOutcome notes how a request went.
func (e *endpoint) noteOutcome(now time.Time, o endpointOutcome, probe bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch o {
	case outcomeAnswered:
		e.failures, e.pause = 0, 0
		return
	case outcomeAbandoned:
		return
	}
	e.failures++
	switch {
	case e.pause == 0 && e.failures >= breakAfter:
		e.pause = firstPause
	// Only the request that is to find out moves the pause: others were sent before it opened.
	case probe:
		e.pause = min(max(2*e.pause, firstPause), longestPause)
	default:
		return
	}
	e.until = now.Add(e.pause)
}
