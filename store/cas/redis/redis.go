// Package redis keeps the records of store/cas in Redis: in one server, in a cluster, or in what sentinels
// look after. A record is one string; one small script replaces it.
package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// A Backend is a cas.Backend on Redis. Make one with Open.
type Backend struct {
	address *address
	names   keyNames
	option  rueidis.ClientOption

	swap, together, spread *namedScript

	calls sync.Pool

	link atomic.Pointer[link] // nil while there is no client

	mu      sync.Mutex
	closed  bool
	dialing *dialing
	work    sync.WaitGroup // dialing and closing
}

var _ cas.Backend = (*Backend)(nil)

// Open returns a backend on the Redis at an address:
//
//	redis://[user:password@]host[:port][/db][?parameter=value&...]
//
// rediss:// speaks TLS. The parameters are
//
//	prefix      begins all keys and channels; "gatehouse:" if it is not given
//	addr        another host:port of a cluster or another sentinel; may be given several times
//	master_set  makes the hosts sentinels, and names the master that they look after
//	ca          a file with the certificates that the server's is checked by, instead of the system's
//	cert, key   files with the client's certificate and its key
//	sentinel_username, sentinel_password   log in to the sentinels
//
// A single host that belongs to a cluster is recognised by asking it. Open looks at the address only: the
// first call connects, and any later one after that was lost. No error shows a password.
func Open(text string) (*Backend, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		address: a, names: keyNames{a.prefix}, option: clientOptions(a),
		swap: newScript(swapText), together: newScript(togetherText), spread: newScript(spreadText),
	}
	b.calls.New = func() any { return &scriptCall{answered: make(chan struct{}, 1)} }
	return b, nil
}

// String is the address without passwords.
func (b *Backend) String() string { return b.address.text }

// Traits says that Redis has claims, and neither versions nor leases.
func (b *Backend) Traits() cas.Traits {
	return cas.Traits{Claims: true, KeyOf: b.names.recordKey}
}

// Ping asks Redis for a record that does not exist. An error says what is wrong: with the connection, the
// user, or what the user may do.
func (b *Backend) Ping(ctx context.Context) error {
	r := b.newCall(gatehouse.Key{}, &cas.RecordChange{Read: true})
	r.key = b.names.prefix + "ping"
	_, err := b.doCall(ctx, r)
	return err
}

// Close ends all connections. The backend must not be used after it.
func (b *Backend) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	// dropped comes first: a sender that still runs answers its calls as not sent.
	if l := b.link.Swap(nil); l != nil {
		l.dropped.Store(true)
		l.client.Close()
	}
	b.work.Wait()
}

const (
	// dialTimeout is how long a new connection may take, with its first answers.
	dialTimeout = time.Second
	// aliveCheckAfter is after how long without an answer a connection is asked whether it is alive, and it
	// has as long again to answer.
	aliveCheckAfter = 500 * time.Millisecond
	// dialPause is the least time between a failed connection and the next try.
	dialPause = 20 * time.Millisecond
	// topologyInterval is how often sentinels are asked again for the master.
	topologyInterval = 2 * time.Second
	// maxRedirects is how many moves of a key one call follows.
	maxRedirects = 5
)

// clientOptions are the options of rueidis. It resends nothing by itself: whether a change whose answer was
// lost is to be sent again is for package cas to say.
func clientOptions(a *address) rueidis.ClientOption {
	option := rueidis.ClientOption{
		InitAddress:       a.hosts,
		TLSConfig:         a.tls,
		Username:          a.login.user,
		Password:          a.login.password,
		SelectDB:          a.database,
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		DialCtxFn:         a.dialServer,
		ConnWriteTimeout:  aliveCheckAfter,
		PipelineMultiplex: -1, // requests are gathered into batches before they come to it
		DisableRetry:      true,
		DisableCache:      true,
	}
	// The keep-alive is as short as the check of a silent connection.
	option.Dialer.Timeout, option.Dialer.KeepAlive = dialTimeout, aliveCheckAfter
	option.ClusterOption.MaxMovedRedirections = maxRedirects
	option.Sentinel = rueidis.SentinelOption{
		MasterSet: a.master, Username: a.sentinel.user, Password: a.sentinel.password,
		TLSConfig: a.tls, Dialer: option.Dialer, TopologyRefreshInterval: topologyInterval,
	}
	return option
}

// A link is a client, and those who wait for a place in its next batch.
type link struct {
	backend *Backend
	client  rueidis.Client
	single  atomic.Bool // keys are on different servers, so that each is asked for by itself
	dropped atomic.Bool // it is not to be used any more
	lanes   []lane
}

// A dialing is the making of a client.
type dialing struct {
	done     chan struct{}
	link     *link
	err      error
	failedAt time.Time // when it failed
}

// currentLink returns the client, and makes one if there is none. Nothing has been sent when it fails.
func (b *Backend) currentLink(ctx context.Context) (*link, error) {
	if l := b.link.Load(); l != nil {
		return l, nil
	}
	d, err := b.joinDialing()
	if err != nil {
		return nil, err
	}
	// A caller whose time is up leaves; the dialing goes on for the others.
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("redis: %w: there is no connection yet: %w", cas.ErrNotSent, ctx.Err())
	}
}

// joinDialing joins the dialing under way, or begins one.
func (b *Backend) joinDialing() (*dialing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("redis: %w: the store is closed", cas.ErrNotSent)
	}
	d := b.dialing
	if d != nil {
		select {
		case <-d.done:
			// A failed try is shared for a moment, so that busy callers do not open a connection each.
			if d.err != nil && time.Since(d.failedAt) < dialPause {
				return d, nil
			}
		// It is under way.
		default:
			return d, nil
		}
	}
	if l := b.link.Load(); l != nil {
		// Another caller has connected between the look without the lock and here.
		done := make(chan struct{})
		close(done)
		return &dialing{done: done, link: l}, nil
	}
	d = &dialing{done: make(chan struct{})}
	b.dialing = d
	b.work.Add(1)
	go b.makeLink(d)
	return d, nil
}

// makeLink makes the client of a dialing.
func (b *Backend) makeLink(d *dialing) {
	defer b.work.Done()
	defer close(d.done)
	client, err := rueidis.NewClient(b.option)
	if err != nil {
		// NewClient may return a client together with an error; it holds connections.
		if client != nil {
			client.Close()
		}
		d.failedAt = time.Now()
		d.err = b.address.classifyError(err)
		if !nothingChanged(d.err) {
			d.err = fmt.Errorf("redis: %w: %s", cas.ErrNotSent, b.address.redactText(err.Error()))
		}
		return
	}
	d.link = &link{backend: b, client: client, lanes: make([]lane, 1)}
	if client.Mode() == rueidis.ClientModeCluster {
		d.link.lanes = make([]lane, clusterLanes)
		// The keys of one batch lie on different servers of a cluster, and a script takes keys of one slot
		// only.
		d.link.single.Store(true)
	}
	for i := range d.link.lanes {
		d.link.lanes[i].link = d.link
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.link.Store(d.link)
	}
	b.mu.Unlock()
	// Close came meanwhile and did not see this client.
	if closed {
		client.Close()
	}
}

// dropLink gives a client up that has been answered by a replica: where the address leads to another server
// now, a new client finds that.
func (b *Backend) dropLink(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Several replies may show the same replica; the first of them drops the link.
	if b.closed || !b.link.CompareAndSwap(l, nil) {
		return
	}
	l.dropped.Store(true)
	b.work.Go(l.client.Close)
}

// dialServer connects, and asks whether anybody is there. A server that stands still takes connections all
// the same; without the question the first request would be lost to it, with an unknown outcome.
func (a *address) dialServer(
	ctx context.Context, host string, dialer *net.Dialer, config *tls.Config,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, &dialError{err}
	}
	if config != nil {
		if a.latestTLS != nil {
			config = a.latestTLS()
		}
		conn, err = startTLS(ctx, conn, host, config)
		if err != nil {
			return nil, &dialError{err}
		}
	}
	// An accepted connection proves only that the kernel of the other side lives.
	if err := pingServer(ctx, conn); err != nil {
		_ = conn.Close() // it is of no use
		return nil, &dialError{fmt.Errorf("%s does not answer: %w", host, err)}
	}
	return conn, nil
}

func startTLS(ctx context.Context, conn net.Conn, host string, config *tls.Config) (net.Conn, error) {
	own := config.Clone()
	// The certificate is checked against the host that was dialled, which in a cluster is not the first.
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(host)
	}
	secured := tls.Client(conn, own)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // it is of no use
		return nil, err
	}
	return secured, nil
}

var errNotRedis = errors.New("it is no Redis")

// pingServer sends a PING. Any answer will do: before a login it is an error.
func pingServer(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	const longest = 512 // of an answer, which is +PONG or an error
	// The limit keeps a server that is no Redis from filling the memory.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, longest), longest).ReadString('\n')
	switch {
	case err != nil:
		return err
	case line[0] != '+' && line[0] != '-':
		return errNotRedis
	}
	return conn.SetDeadline(time.Time{})
}
