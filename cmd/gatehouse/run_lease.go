package main

import (
	"context"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/gatehousehq/gatehouse/internal/supervisor"
)

// A runLease is the grant of a run, and how long its command may go on.
//
//	sent             T/3            T/2              2T/3              T
//	 ├──── go on ─────┼─── renew ────┼─── SIGTERM ─────┼─── SIGKILL ────┤ the server may grant it to others
//
// All instants are counted from before the last renewal that succeeded was sent, so that the server's count
// can only be later. One renewal that fails is repeated before SIGTERM is due.
type runLease struct {
	client *client.Client
	id     string
	fence  uint64
	held   bool // some of it can be lost
	term   time.Duration
	until  supervisor.Deadline
}

// renewRetries is how often a renewal that fails is repeated within the time between T/3 and T/2.
const renewRetries = 3

// minReleasePause is the shortest time between two tries to release.
const minReleasePause = 10 * time.Millisecond

// begin notes a grant or a renewal that was asked for at an instant.
func (l *runLease) begin(sent time.Duration) {
	l.until = supervisor.Deadline{Terminate: sent + l.term/2, Kill: sent + l.term*2/3}
}

// renew renews the grant once. lost says why it is lost; without it nobody knows, and it may be tried again.
func (l *runLease) renew(ctx context.Context) (lost string, err error) {
	sent := supervisor.Now()
	d, err := l.client.DoGrant(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpRenew, ID: l.id, Fence: l.fence, Expires: gatehouse.AsAcquired,
	})
	switch {
	case err != nil:
		return "", err
	// Unlike an error this is certain. The command has to end.
	case d.Outcome != gatehouse.Granted:
		if d.Message == "" {
			return "grant/" + l.id + " is not there any more", nil
		}
		return d.Message, nil
	}
	l.begin(sent)
	return "", nil
}

// refresh renews the grant if it was asked for some time ago: a request that has waited was sent long before
// it was granted.
func (l *runLease) refresh(ctx context.Context) error {
	if sent := l.until.Terminate - l.term/2; !l.held || supervisor.Now()-sent <= l.term/6 {
		return nil
	}
	lost, err := l.renew(ctx)
	if err == nil && lost != "" {
		err = &statusError{statusLost, errors.New("lost before the command began: " + lost)}
	}
	return err
}

// untilRenewal is how long it is until T/3. To start a guard takes a while of a short term.
func (l *runLease) untilRenewal(now time.Duration) time.Duration {
	return l.until.Terminate - l.term/6 - now
}

// keep renews the grant until ctx ends or it is lost, and has the deadline moved with each renewal. It
// returns why the grant was lost, or "" if ctx has ended.
func (l *runLease) keep(ctx context.Context, move func(supervisor.Deadline)) (lost string) {
	for pause := l.untilRenewal(supervisor.Now()); backoff.Sleep(ctx, pause); {
		// A server that does not answer leaves time for another try.
		within, cancel := context.WithTimeout(ctx, l.term/6)
		gone, err := l.renew(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ""
		case gone != "":
			return gone
		case err != nil:
			pause = l.term / (6 * renewRetries)
		default:
			move(l.until)
			pause = l.untilRenewal(supervisor.Now())
		}
	}
	return ""
}

// release gives the grant back. It tries again while the server may still think that it is held.
func (l *runLease) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), max(l.term/3, time.Second))
	defer cancel()
	for {
		_, err := l.client.DoGrant(ctx, gatehouse.GrantCommand{
			Op: gatehouse.OpRelease, ID: l.id, Fence: l.fence,
		})
		// A guard that releases does not know the term.
		if err == nil || !backoff.Sleep(ctx, max(l.term/(6*renewRetries), minReleasePause)) {
			return err
		}
	}
}
