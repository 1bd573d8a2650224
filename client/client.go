// Package client is a [gatehouse.Gate] at a distance: a Gatehouse server, or several of them, over HTTP.
//
// A [Client] has the methods of the gate in a process, so that what is written for one runs with the other.
// It keeps connections open and shares them, carries deadlines and cancellation to the server, goes on to
// the next address when one fails, and repeats only what cannot take effect twice.
//
// # What is repeated
//
// When a connection breaks after a request was sent, it is not known whether the request took effect. The
// client then repeats requests that change nothing, requests that wait for an event or a watchdog, and
// requests that a key or an id makes the same: an acquire and a renew of a semaphore or a lock, an acquire, a
// renew and a settle of a grant. All others end with an error of [gatehouse.CodeUnavailable]; a counter's
// count, above all, is never repeated. To ask a limiter safely, use a grant of one member, which has an id. A
// request of which nothing was sent, because no server listens, goes to the next address whatever it is.
//
// # What a distance takes away
//
// Times have whole milliseconds there: an answer's time to wait is rounded up and its time left down. The
// At, Generation, Reservation, Drawn and Booked of a [gatehouse.Decision] are not transmitted, and its
// Interval only if it has whole seconds. A refusal by a semaphore or a lock always names the holders, as with
// Explain. A call that returns an error may have been granted at the last moment: what it acquired lasts
// until it expires, unless it is released by its key.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Config says where the servers are. The zero Config is a server on this machine.
type Config struct {
	// Addresses are those of servers that share a store, such as "gate-1:5505" or "https://gate.example".
	// The first is asked, and the others in turn when it fails. None means "localhost:5505".
	Addresses []string

	// Timeout is how long a server may take to answer, beside the time that a request waits in line; 0 means
	// five seconds. A request that may wait forever has no other end than its context.
	Timeout time.Duration

	// TLS says which certificates are trusted and shown. With it an address without a scheme, such as
	// "gate-1:5505", is that of a server that speaks TLS. nil trusts the authorities of the system, for
	// addresses that begin with https. It has no effect on a Transport of your own.
	TLS *tls.Config

	// Token says to servers with users who asks; empty sends none. Others can read it on the way to a server
	// without TLS.
	Token string

	// Transport carries the requests; nil means one that the client makes for itself. It must not follow
	// redirects or repeat requests by itself, as that of net/http does not.
	Transport http.RoundTripper
}

// DefaultAddress is where a server listens if nothing else is said.
const DefaultAddress = "localhost:5505"

// The defaults of connections.
const (
	defaultTimeout = 5 * time.Second
	// idleConns is how many idle connections are kept to each server. Each request that waits has one of its
	// own, and most programs have fewer at a time.
	idleConns = 128
	// idleTimeout is below the two minutes after which a server closes an idle connection: it would be closed
	// just when a request is on its way.
	idleTimeout = time.Minute
)

// A Client asks servers. Make one with New. It is safe for use by many goroutines, and starts none of its own
// that outlive Close.
type Client struct {
	config    Config
	endpoints []*endpoint
	preferred atomic.Int32    // the index of the endpoint that answered last
	own       *http.Transport // nil if the Config brought one
	askHeader http.Header
	bodies    sync.Pool // of *bytes.Buffer, for reading answers into
}

var _ gatehouse.Gate = (*Client)(nil)

// New returns a client. It opens no connection: that is for the first request. The error has the code
// [gatehouse.CodeInvalid] and says which address makes no sense.
func New(config Config) (*Client, error) {
	if len(config.Addresses) == 0 {
		config.Addresses = []string{DefaultAddress}
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	c := &Client{config: config, askHeader: newAskHeader(config.Token)}
	c.bodies.New = func() any { return new(bytes.Buffer) }
	// All are read now, so that a mistake shows at the start, and not when the first server fails.
	for _, address := range config.Addresses {
		e, err := newEndpoint(address, config.TLS != nil)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, e)
	}
	// Close closes only this one: a caller's own may carry other requests, too.
	if config.Transport == nil {
		c.own = newTransport(config.Timeout)
		c.own.TLSClientConfig = config.TLS.Clone()
		c.config.Transport = c.own
	}
	return c, nil
}

// newTransport returns a transport for servers nearby: no proxy, no compression of a few bytes.
func newTransport(timeout time.Duration) *http.Transport {
	dialer := &net.Dialer{
		Timeout: timeout,
		// A machine that is gone without a word is noticed within half a minute, also by what waits.
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4,
		},
	}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableCompression: true,
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: timeout,
	}
}

// Close closes idle connections. Requests that are under way go on.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Do implements [gatehouse.Gate]. When ctx ends the connection is closed, which takes a request that waits
// out of its line; its deadline reaches the server with the request.
func (c *Client) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	if err := ctx.Err(); err != nil {
		return gatehouse.Decision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", key, err)
	}
	if err := checkCommand(key, &cmd); err != nil {
		return gatehouse.Decision{}, err
	}
	// What is held ends soon: a renew and a release are sent to a server that has failed before, too.
	r := exchange{
		subject: key.String(), op: cmd.Op, repeatable: isRepeatable(key.Kind, &cmd),
		urgent: cmd.Op == gatehouse.OpRenew || cmd.Op == gatehouse.OpRelease,
	}
	if cmd.Op.Waits() {
		r.maxWait = cmd.MaxWait
	}
	var d gatehouse.Decision
	err := c.sendExchange(ctx, &r, func(wait time.Duration) message {
		return commandMessage(key, &cmd, wait)
	}, func(a *reply) error {
		// An answer that came before it, and could not be read, may have left some of its figures.
		d = gatehouse.Decision{}
		return readDecision(key, &cmd, a, &d)
	})
	switch {
	case err != nil:
		return gatehouse.Decision{}, err
	case d.Outcome == gatehouse.Refused && r.cut:
		// It was the deadline that ended the wait, as in a gate of the process.
		return gatehouse.Decision{}, r.timedOut(context.DeadlineExceeded)
	}
	return d, nil
}

// checkCommand returns an error of CodeInvalid if a command makes no sense, or cannot be said over HTTP.
func checkCommand(key gatehouse.Key, cmd *gatehouse.Command) error {
	if err := cmd.Check(key); err != nil {
		return err
	}
	var unsaid string
	// Refused here, since a server would never see it, and answer another question.
	switch {
	case key.Kind == gatehouse.Grant:
		unsaid = "a grant is asked for by DoGrant"
	case cmd.Op == gatehouse.OpUndo:
		unsaid = "undo is for gates alone"
	case cmd.MaxDelay != 0 && cmd.Op == gatehouse.OpReserve:
		unsaid = "MaxDelay is not told"
	case cmd.Keep != 0:
		unsaid = "Keep is a setting of the server"
	case key.Kind.Limiter() && !isWholeMillis(&cmd.Rule):
		unsaid = "Interval and Guard have whole milliseconds"
	default:
		return nil
	}
	return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: over HTTP %s", key, unsaid)
}

// isWholeMillis reports whether a rule can be sent in milliseconds. Limits in a list have units of their own.
func isWholeMillis(r *gatehouse.Rule) bool {
	return (r.Interval%time.Millisecond == 0 || r.Limits.Len() > 0) && r.Guard%time.Millisecond == 0
}

// isRepeatable reports whether a command that was sent twice does what it does once.
func isRepeatable(kind gatehouse.Kind, cmd *gatehouse.Command) bool {
	switch cmd.Op {
	case gatehouse.OpAcquire, gatehouse.OpRenew:
		return kind == gatehouse.Semaphore || kind == gatehouse.Lock
	case gatehouse.OpWait:
		// An arrival at a barrier counts, and one that was sent twice might count twice.
		return kind != gatehouse.Barrier
	}
	return cmd.Op.Reads()
}
