// Package etcdkey reads a key of etcd, and notices that it has changed.
package etcdkey

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcd"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

const (
	// answerTime is how long etcd may take for one answer.
	answerTime = 5 * time.Second

	// A source that fails is asked again after about a second, and then less and less often.
	firstPause, lastPause = time.Second, 30 * time.Second
)

// A wakeCause says why a source should be read again.
type wakeCause uint8

const (
	causeChanged wakeCause = iota
	causeAgain
	causeEnded // it should not: the context has ended
)

// Check returns what is wrong with the address of a key, which has no parameters but those for TLS. It
// connects to no server.
func Check(address string) error {
	_, query, err := etcd.Check(address)
	if err != nil {
		return err
	}
	// Any parameter is one too many; one of them suffices for the message.
	for parameter := range query {
		return fmt.Errorf("etcd address: parameter %s is unknown, want none", strconv.Quote(parameter))
	}
	return nil
}

// A Reading is what was found at a key.
type Reading struct {
	Text []byte
	// Version is the key with the revision at which it was written. It has no password in it, which the
	// address may have.
	Version string
	// Err says why there is no text.
	Err error

	revision int64 // of all of etcd, at which it was read; 0 if it was not
}

// Read reads a key once.
func Read(ctx context.Context, address string) Reading {
	key, err := openKey(address)
	if err != nil {
		return Reading{Err: err}
	}
	defer func() { _ = key.client.Close() }()
	r, err := key.readKey(ctx)
	if err != nil {
		return Reading{Err: err}
	}
	return r
}

// A KeyWatch says which key is watched, and what is called.
type KeyWatch struct {
	Address string

	// After, if it was read, is not read again at first: later changes are reported, and it is not.
	After Reading

	// Again, if not nil, has the key read at each value.
	Again <-chan os.Signal

	// Report is called with the key as it is now, with each change of it, and with each failure. It is called
	// by the goroutine that called Watch; asked says that Again was the reason.
	Report func(r Reading, asked bool)
}

// An etcdKey is a key, and a client to read it.
type etcdKey struct {
	client *clientv3.Client
	name   string
}

func openKey(address string) (etcdKey, error) {
	client, name, _, err := etcd.Open(address)
	return etcdKey{client, name}, err
}

// readKey reads the key.
func (k etcdKey) readKey(ctx context.Context) (r Reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	// The client's own Get waits for a connection until its time is up, and then does not know why there
	// was none.
	kv := etcdserverpb.NewKVClient(k.client.ActiveConnection())
	question := &etcdserverpb.RangeRequest{Key: []byte(k.name)}
	answer, err := kv.Range(ctx, question, grpc.WaitForReady(false))
	if err != nil {
		return r, fmt.Errorf("etcd key %s: %s", k.name, status.Convert(err).Message())
	}
	if len(answer.Kvs) == 0 {
		r.Err = fmt.Errorf("etcd key %s does not exist", k.name)
	} else {
		r = k.newReading(answer.Kvs[0].ModRevision, answer.Kvs[0].Value)
	}
	// The revision of the key tells versions apart, that of the store is where watching begins.
	r.revision = answer.Header.Revision
	return r, nil
}

func (k etcdKey) newReading(revision int64, text []byte) Reading {
	version := fmt.Sprintf("etcd:%s@%d", k.name, revision)
	return Reading{Text: text, Version: version}
}

// Watch reports a key, over one connection after the other, until ctx ends.
//
//	serveConnection --fails, or the key must be read again--> pauseBefore --> serveConnection
//	        |                                                   ^
//	        +--Again: at once, no pause                         +-- context ends: return
func Watch(ctx context.Context, w KeyWatch) {
	asked := false
	for attempt := 0; ; attempt++ {
		reached, why, err := w.serveConnection(ctx, asked)
		if err != nil && ctx.Err() == nil {
			w.Report(Reading{Err: err}, asked)
		}
		// The pauses grow only while etcd cannot be reached.
		if reached {
			attempt = 0
		}
		// A reload comes at once, even while etcd is down: the operator waits for an answer.
		if why == causeChanged { // or the context ended
			why = w.pauseBefore(ctx, attempt)
		}
		if why == causeEnded {
			return
		}
		asked = why == causeAgain
	}
}

// serveConnection opens a connection and reports the key until that fails or there is a cause to start again.
// It reports whether etcd was reached.
func (w *KeyWatch) serveConnection(
	ctx context.Context, asked bool,
) (reached bool, why wakeCause, err error) {
	key, err := openKey(w.Address)
	if err != nil {
		return false, causeChanged, err
	}
	defer func() { _ = key.client.Close() }()
	r := w.After
	w.After = Reading{} // for this connection alone, which ends if etcd has forgotten what came after it
	if r.revision == 0 {
		r, err = key.readKey(ctx)
		if err != nil {
			return false, causeChanged, err
		}
		w.Report(r, asked)
	}
	// From the revision after the read: no change between the two is missed, and none is reported twice.
	why, err = w.watchKey(ctx, key, r.revision+1)
	return true, why, err
}

// errLost is why watching ends when no member can be reached.
var errLost = errors.New("the connection is lost")

// watchKey reports all changes of the key from a revision on.
func (w *KeyWatch) watchKey(ctx context.Context, key etcdKey, from int64) (wakeCause, error) {
	// Two things can end the watch: etcd's stream, and the connection below it. The library hides the latter.
	watching, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		awaitLost(watching, key.client.ActiveConnection())
		cancel(errLost) // also Watch itself, which waits for an answer
	}()
	// Waits for the goroutine, which uses the connection that the caller is about to close.
	defer func() { cancel(nil); <-over }()

	// A member that lost its cluster would be silent otherwise.
	answers := key.client.Watch(clientv3.WithRequireLeader(watching), key.name, clientv3.WithRev(from))
	again := w.Again
	for {
		select {
		case _, open := <-again:
			if open {
				return causeAgain, nil
			}
			again = nil
		// Both an error and a closed channel end the watch; the cause of the context may tell why.
		case answer, open := <-answers:
			if answer.Err() != nil || !open {
				return causeChanged, key.watchError(answer.Err(), context.Cause(watching))
			}
			if n := len(answer.Events); n > 0 {
				w.Report(key.readingOf(answer.Events[n-1]), false) // the others are history
			}
		}
	}
}

// watchError returns why a watch ended: for its own reason, or for that of its context. If etcd has dropped
// the changes since the revision, that is no failure: the key is read again.
func (k etcdKey) watchError(err, why error) error {
	if errors.Is(why, errLost) {
		err = errLost
	}
	if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	return fmt.Errorf("etcd key %s: %w", k.name, err)
}

func (k etcdKey) readingOf(e *clientv3.Event) Reading {
	if e.Type == clientv3.EventTypeDelete {
		err := fmt.Errorf("etcd key %s was deleted at revision %d", k.name, e.Kv.ModRevision)
		return Reading{Err: err}
	}
	return k.newReading(e.Kv.ModRevision, e.Kv.Value)
}

// awaitLost waits until no member can be reached, or the context ends. A watch alone would not show it: the
// library resumes it silently, whenever it can.
func awaitLost(ctx context.Context, connection *grpc.ClientConn) {
	for {
		// The state is read before the wait, so that a change in between ends the wait at once.
		state := connection.GetState()
		if state == connectivity.TransientFailure || state == connectivity.Shutdown {
			return
		}
		if !connection.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// pauseBefore waits before the next attempt, the first being 0.
func (w *KeyWatch) pauseBefore(ctx context.Context, attempt int) wakeCause {
	over := time.After(pauseAfter(attempt, rand.Float64()))
	again := w.Again
	for {
		select {
		case <-ctx.Done():
			return causeEnded
		case <-over:
			return causeChanged
		case _, open := <-again:
			if open {
				return causeAgain
			}
			again = nil
		}
	}
}

// pauseAfter returns a pause that doubles with each attempt. chance, from 0 to 1, takes up to a half of it
// off, so that servers that lost etcd together do not return together.
func pauseAfter(attempt int, chance float64) time.Duration {
	// The shift is bounded, since it would overflow after some dozens of attempts.
	longest := lastPause
	if attempt < 5 { // 32 s
		longest = min(firstPause<<attempt, lastPause)
	}
	return longest - time.Duration(chance*float64(longest)/2)
}
