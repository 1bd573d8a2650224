package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An exchange is one question of a caller, which may take several requests.
type exchange struct {
	subject    string // what it is about, as sentences have it
	op         gatehouse.Op
	maxWait    time.Duration // how long it may wait in line
	repeatable bool          // sent twice it does what it does once
	urgent     bool          // it is about what is held, and passes an open breaker

	cut bool // it may wait for less than maxWait, as its context ends before
}

// A message is the content of a request.
type message struct {
	method        string
	path, rawPath string // as it is, and encoded
	query         string
	body          []byte
	contentType   string
	tell          func(LinePlace) // asks for a stream of events; nil for one answer
}

// A reply is an answer with its whole body, which is gone when it was read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// sendExchange puts a question to the servers in turn until one has answered. build makes the request to one
// of them, which may keep it in line for the given time, and read reads the answer.
func (c *Client) sendExchange(
	ctx context.Context, r *exchange, build func(wait time.Duration) message, read func(*reply) error,
) error {
	began := time.Now()
	count := len(c.endpoints)
	first := int(c.preferred.Load())
	// With one address it is asked again: the connection may have been closed while it was idle, or its
	// server has just been started anew.
	tries := max(2, count)
	var failure error
	for i := range tries {
		at := (first + i) % count
		e := c.endpoints[at]
		ok, probe := e.admitRequest(time.Now(), r.urgent)
		if !ok {
			// What another server has failed with just now says more.
			failure = cmp.Or(failure, r.failedAt(e, errPaused))
			continue
		}
		wait := r.timeToWait(ctx, time.Since(began))
		within, cancel := c.limitAttempt(ctx, wait, tries-i)
		outcome, err := c.sendMessage(within, e, build(wait), read)
		cancel()
		// The connection was closed because the caller has left, which is no failure of the server.
		if err != nil && outcome != outcomeAnswered && ctx.Err() != nil {
			outcome = outcomeAbandoned
		}
		e.noteOutcome(time.Now(), outcome, probe)
		switch outcome {
		case outcomeAnswered:
			if at != first {
				c.preferred.Store(int32(at)) //nolint:gosec // an index of few addresses
			}
			return err
		case outcomeAbandoned:
			return r.timedOut(ctx.Err())
		}
		failure = r.failedAt(e, err)
		// What may have taken effect is repeated only if that does no harm; what was not sent, only
		// elsewhere.
		if outcome != outcomeUnsent && !r.repeatable || outcome == outcomeUnsent && count == 1 {
			break
		}
	}
	return failure
}

// errPaused is why a server is not asked.
var errPaused = errors.New("it has failed before, and is asked again soon")

// failedAt is the error about a server that has not decided.
func (r *exchange) failedAt(e *endpoint, err error) error {
	// What a server says of itself has its code already.
	if _, coded := errors.AsType[*gatehouse.Error](err); coded {
		return err
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %s: server %s: %w", r.subject, r.op, e.host, err)
}

// timedOut is the error about a question whose context has ended.
func (r *exchange) timedOut(err error) error {
	return gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %s: %w", r.subject, r.op, err)
}

// timeToWait is how long a request may wait in line, so that it does not wait for longer than its context
// lasts: the server may never learn that its client is gone. waited is how long others before it took.
func (r *exchange) timeToWait(ctx context.Context, waited time.Duration) time.Duration {
	wait := r.maxWait
	if wait == 0 {
		return 0
	}
	if wait != gatehouse.Forever {
		// Never 0, with which the command would not wait at all.
		wait = max(time.Millisecond, wait-waited)
	}
	end, limited := ctx.Deadline()
	if !limited {
		return wait
	}
	left := max(time.Millisecond, time.Until(end))
	if wait == gatehouse.Forever || left < wait {
		r.cut = true
		return left
	}
	return wait
}

// limitAttempt limits one request. The time that is left for a question that does not wait is shared among
// the tries, so that a server that hangs does not use it up.
func (c *Client) limitAttempt(
	ctx context.Context, wait time.Duration, tries int,
) (context.Context, context.CancelFunc) {
	// Only the context ends it. A server that is gone is noticed by the keep-alive of the connection.
	if wait == gatehouse.Forever {
		return ctx, func() {}
	}
	limit := wait + c.config.Timeout
	if end, limited := ctx.Deadline(); limited && wait == 0 && len(c.endpoints) > 1 {
		limit = min(limit, time.Until(end)/time.Duration(tries))
	}
	return context.WithTimeout(ctx, limit)
}

const (
	// maxReply is the longest answer that is read: lists have at most 256 KiB of names and texts, which JSON
	// may make longer.
	maxReply = 4 << 20
	// maxKeptBody is the largest buffer that is kept.
	maxKeptBody = 64 << 10
)

// newAskHeader returns the headers of all requests, which net/http does not change.
func newAskHeader(token string) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"gatehouse-client-go"}}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

// sendMessage sends one request, and has its answer read.
func (c *Client) sendMessage(
	ctx context.Context, e *endpoint, m message, read func(*reply) error,
) (endpointOutcome, error) {
	request := (&http.Request{
		Method: m.method, Host: e.host, Header: c.askHeader,
		URL: &url.URL{Scheme: e.scheme, Host: e.host, Path: m.path, RawPath: m.rawPath, RawQuery: m.query},
	}).WithContext(ctx)
	if m.body != nil {
		// Requests without a body share theirs, which must not change.
		request.Header = c.askHeader.Clone()
		request.Header.Set("Content-Type", m.contentType)
		if m.tell != nil {
			request.Header.Add("Accept", eventStreamType)
		}
		request.ContentLength = int64(len(m.body))
		// With GetBody the transport can take another connection if this one has been closed before anything
		// was written.
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.body)), nil }
		request.Body, _ = request.GetBody()
	}
	response, err := c.config.Transport.RoundTrip(request)
	if err != nil {
		// Without a connection nothing was sent, so that any request may go to another server.
		if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
			return outcomeUnsent, err
		}
		return outcomeBroken, err
	}
	defer func() { _ = response.Body.Close() }()
	if m.tell != nil && response.Header.Get("Content-Type") == eventStreamType {
		outcome, err := readEvents(response.Body, response.Header, m.tell)
		if err != nil {
			return outcomeBroken, err
		}
		return readReply(&outcome, read)
	}
	// The buffer serves other answers afterwards: read must not keep any part of it.
	room := c.bodies.Get().(*bytes.Buffer)
	room.Reset()
	_, err = room.ReadFrom(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return outcomeBroken, err
	}
	outcome, err := readReply(&reply{response.StatusCode, response.Header, room.Bytes()}, read)
	if room.Cap() <= maxKeptBody {
		c.bodies.Put(room)
	}
	return outcome, err
}

// readReply has an answer read, and says how the request went.
func readReply(answer *reply, read func(*reply) error) (endpointOutcome, error) {
	err := read(answer)
	// The server cannot decide at present, and another one perhaps can. All other errors are answers.
	if code := gatehouse.CodeOf(err); err != nil &&
		(code == gatehouse.CodeUnavailable || code == gatehouse.CodeTimeout) {
		return outcomeFailed, err
	}
	return outcomeAnswered, err
}

// textOf is a body that is no JSON, cut for a sentence.
func textOf(body []byte) string {
	const longest = 200
	text := strings.TrimSpace(string(body[:min(len(body), longest)]))
	return cmp.Or(text, "no body")
}
