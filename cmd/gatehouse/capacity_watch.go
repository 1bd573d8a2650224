package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	holder "github.com/gatehousehq/gatehouse/client/lease"
	"github.com/spf13/cobra"
)

// soonest is how often a tool that somebody looks at may ask, if the server wants that.
const soonest = time.Second

func newCapacityWatch(o *capacityOptions) *cobra.Command {
	var priority int64
	cmd := &cobra.Command{
		Use:   "watch RESOURCE WANTS",
		Short: "Hold a lease, and print each change of it",
		Long: "Hold a lease, and print each change of it, until interrupted; then give it back. Without\n" +
			"an answer within --timeout at the beginning it ends; later it goes on, with what may be\n" +
			"used without a lease.",
		Example: "  gatehouse capacity watch database 10\n  gatehouse capacity watch database 10 --json",
		Args:    exactly("RESOURCE", "WANTS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wants, err := readAmount(args[1])
			if err != nil {
				return usageError{err}
			}
			return o.watch(cmd, args[0], holding{wants, priority})
		},
	}
	o.addClient(cmd, "who asks (default a name of its own)")
	addPriority(cmd, &priority)
	return cmd
}

// A holding is what is wanted of a resource.
type holding struct {
	wants    float64
	priority int64
}

// A party is a client that remembers why its last request failed.
type party struct {
	*holder.Client
	failure atomic.Pointer[error]
	tell    func(error) // each failure that is another than the one before; nil will do
}

// newParty returns a client that is to be closed.
func (o *capacityOptions) newParty(id string, tell func(error)) (p *party, err error) {
	p = &party{tell: tell}
	p.Client, err = holder.New(holder.Config{
		Servers: o.servers, ID: id, MinRefresh: soonest, Timeout: min(o.timeout, 5*time.Second),
		OnError: p.failed,
	})
	return p, err
}

func (p *party) failed(err error) {
	before := p.failure.Swap(&err)
	if p.tell != nil && (before == nil || (*before).Error() != err.Error()) {
		p.tell(err)
	}
}

// ready waits for the first lease, and says why there is none.
func (p *party) ready(ctx context.Context, r *holder.Resource, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.Ready(ctx)
	if failure := p.failure.Load(); err != nil && failure != nil {
		return fmt.Errorf("no lease within %s: %s", timeout, plainly((*failure).Error()))
	}
	return err
}

// end gives everything back.
func (p *party) end(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.Close(ctx)
}

// watch holds a lease until a signal comes.
func (o *capacityOptions) watch(cmd *cobra.Command, resource string, h holding) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p, err := o.newParty(o.client, func(err error) {
		now := time.Now().Format(time.TimeOnly)
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", now, plainly(err.Error()))
	})
	if err != nil {
		return err
	}
	defer func() {
		stop() // a second signal ends it at once
		if ended := p.end(o.timeout); err == nil {
			err = ended
		}
	}()
	r, err := p.Resource(resource, h.wants, h.priority)
	if err != nil {
		return err
	}
	if err := p.ready(ctx, r, o.timeout); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for shown := math.NaN(); ; {
		changed := r.Changed()
		// It may have changed and changed back before it was looked at.
		if now := r.Capacity(); now != shown {
			if err := o.showHolding(cmd.OutOrStdout(), r); err != nil {
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

// showHolding prints what may be used now.
func (o *capacityOptions) showHolding(out io.Writer, r *holder.Resource) error {
	amount, now := r.Capacity(), time.Now()
	expiry := r.Lease().Expiry
	if o.json {
		report := struct {
			Time     string  `json:"time"`
			Resource string  `json:"resource_id"`
			Capacity float64 `json:"capacity"`
			Expiry   int64   `json:"expiry_time,omitempty"`
		}{now.UTC().Format(time.RFC3339), r.ID(), amount, 0}
		if !expiry.IsZero() {
			report.Expiry = expiry.Unix()
		}
		return writeJSON(out, report)
	}
	_, err := fmt.Fprintf(out, "%s  %s  %s\n",
		now.Format(time.TimeOnly), showAmount(amount), showExpiry(expiry))
	return err
}

// showExpiry says until when a lease holds, if there is one.
func showExpiry(expiry time.Time) string {
	if expiry.IsZero() {
		return "no lease"
	}
	return "until " + expiry.Format(time.TimeOnly)
}
