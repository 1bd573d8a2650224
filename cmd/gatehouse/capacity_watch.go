package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	holder "github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/spf13/cobra"
)

// minRefresh is the shortest time between two refreshes, for a server that asks for less.
const minRefresh = time.Second

func newCapacityWatch(o *capacityOptions) *cobra.Command {
	var priority int64
	cmd := &cobra.Command{
		Use:   "watch RESOURCE WANTS",
		Short: "Hold a lease, and print each change of it",
		Long: "Hold a lease, and print each change of it, until interrupted; then give it back. If no\n" +
			"server responds within --timeout at the start, the command fails. Later it goes on, with\n" +
			"the capacity that may be used without a lease.",
		Example: "  gatehouse capacity watch database 10\n  gatehouse capacity watch database 10 --json",
		Args:    exactArgs("RESOURCE", "WANTS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// 0 is allowed here: the server then shows what may be used without a lease.
			wants, err := readAmount(args[1])
			if err != nil {
				return usageError{err}
			}
			return o.watchLease(cmd, args[0], wants, priority)
		},
	}
	o.addClient(cmd, "name of the client (default a new name)")
	addPriority(cmd, &priority)
	return cmd
}

// A leaseClient is a client that remembers why its last request failed.
type leaseClient struct {
	*holder.Client
	failure      atomic.Pointer[error]
	onNewFailure func(error) // called for a failure that differs from the one before; may be nil
}

// newLeaseClient returns a client, which the caller has to close. onNewFailure may be nil.
func (o *capacityOptions) newLeaseClient(id string, onNewFailure func(error)) (c *leaseClient, err error) {
	c = &leaseClient{onNewFailure: onNewFailure}
	c.Client, err = holder.New(holder.Config{
		Servers: o.servers, ID: id, MinRefresh: minRefresh, Timeout: min(o.timeout, 5*time.Second),
		OnError: c.onFailure, Dial: o.dial,
	})
	return c, err
}

// onFailure remembers the last failure, and reports it if it is a new one: the client retries often, and a
// server that is away would fill the terminal with one line.
func (c *leaseClient) onFailure(err error) {
	before := c.failure.Swap(&err)
	if c.onNewFailure != nil && (before == nil || (*before).Error() != err.Error()) {
		c.onNewFailure(err)
	}
}

// awaitLease waits for the first lease. Its error is the reason of the last request that failed.
func (c *leaseClient) awaitLease(ctx context.Context, r *holder.Resource, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Ready knows only that the time is over. The client goes on trying after each failure.
	err := r.Ready(ctx)
	if failure := c.failure.Load(); err != nil && failure != nil {
		return fmt.Errorf("no lease within %s: %s", timeout, stripDialWrapping((*failure).Error()))
	}
	return err
}

// closeClient gives all leases back, and closes the client. It has no context: it must also work after a
// signal has cancelled everything else.
func (c *leaseClient) closeClient(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.Close(ctx)
}

// watchLease holds a lease until a signal comes.
func (o *capacityOptions) watchLease(
	cmd *cobra.Command, resource string, wants float64, priority int64,
) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := o.newLeaseClient(o.client, func(err error) {
		now := time.Now().Format(time.TimeOnly)
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", now, stripDialWrapping(err.Error()))
	})
	if err != nil {
		return err
	}
	defer func() {
		stop() // a second signal ends the program at once
		err = cmp.Or(err, c.closeClient(o.timeout))
	}()
	r, err := c.Resource(resource, wants, priority)
	if err != nil {
		return err
	}
	if err := c.awaitLease(ctx, r, o.timeout); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for shown := math.NaN(); ; { // which is unequal to any amount, so that the first one is printed
		// The channel is taken before the amount is read. In the other order a change between the two would
		// be missed.
		changed := r.Changed()
		// The amount may have changed and changed back before it is read.
		if now := r.Capacity(); now != shown {
			if err := o.printWatchLine(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			shown = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// printWatchLine prints the amount that may be used now.
func (o *capacityOptions) printWatchLine(out io.Writer, r *holder.Resource) error {
	amount, now := r.Capacity(), time.Now()
	expiry := r.Lease().Expiry
	// A lease that has expired is shown as none, while the amount is what may be used without one.
	if o.json {
		return writeJSON(out, struct {
			Time     string  `json:"time"`
			Resource string  `json:"resource_id"`
			Capacity float64 `json:"capacity"`
			Expiry   int64   `json:"expiry_time,omitempty"`
		}{now.UTC().Format(time.RFC3339), r.ID(), amount, expirySeconds(expiry)})
	}
	_, err := fmt.Fprintf(out, "%s  %s  %s\n",
		now.Format(time.TimeOnly), doormanpb.ShowAmount(amount), showExpiry(expiry))
	return err
}

// expirySeconds returns the end of a lease in seconds since 1970, and 0 for no lease.
func expirySeconds(expiry time.Time) int64 {
	if expiry.IsZero() {
		return 0
	}
	return expiry.Unix()
}

// showExpiry formats the end of a lease. The zero time stands for no lease.
func showExpiry(expiry time.Time) string {
	if expiry.IsZero() {
		return "no lease"
	}
	return "until " + expiry.Format(time.TimeOnly)
}
