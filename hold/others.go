package hold

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A named is one name at a gate.
type named struct {
	gate gatehouse.Gate
	key  gatehouse.Key
}

// ask puts a command to the gate. All but a grant is an error.
func (n *named) ask(ctx context.Context, cmd gatehouse.Command) (gatehouse.Decision, error) {
	d, err := n.gate.Do(ctx, n.key, cmd)
	if err == nil && d.Outcome != gatehouse.Granted {
		err = outcomeError(n.key.String(), d.Outcome, d.Message)
	}
	return d, err
}

// An EventHandle is a handle on something that happens once. It is safe for use by many goroutines.
type EventHandle struct{ named }

// Event is a handle on an event.
func Event(g gatehouse.Gate, name string) *EventHandle {
	return &EventHandle{named{g, gatehouse.Key{Kind: gatehouse.Event, Name: name}}}
}

// Wait returns the event's message as soon as it is sent, at once if it was. The error is of code
// [gatehouse.CodeTimeout] when ctx ends first.
func (e *EventHandle) Wait(ctx context.Context) (message string, err error) {
	d, err := e.ask(ctx, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever})
	return d.Message, err
}

// Send sends the event. It is an error of code [gatehouse.CodeInvalid] if it was sent before.
func (e *EventHandle) Send(ctx context.Context, message string) error {
	_, err := e.ask(ctx, gatehouse.Command{Op: gatehouse.OpSend, Message: message})
	return err
}

// A BarrierHandle is a handle on a place where some meet. It is safe for use by many goroutines.
type BarrierHandle struct {
	named
	size int64
}

// Barrier is a handle on a barrier that opens when so many wait.
func Barrier(g gatehouse.Gate, name string, size int64) *BarrierHandle {
	return &BarrierHandle{named{g, gatehouse.Key{Kind: gatehouse.Barrier, Name: name}}, size}
}

// Wait returns as soon as all are there. The error is of code [gatehouse.CodeTimeout] when ctx ends first,
// and then this one does not count.
func (b *BarrierHandle) Wait(ctx context.Context) error {
	_, err := b.ask(ctx, gatehouse.Command{
		Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: b.size}, MaxWait: gatehouse.Forever,
	})
	return err
}

// A WatchdogHandle is a handle on a watchdog, which fires when it is not kicked. It is safe for use by many
// goroutines.
type WatchdogHandle struct {
	named
	patience time.Duration
}

// Watchdog is a handle on a watchdog that fires when it was not kicked for so long.
func Watchdog(g gatehouse.Gate, name string, patience time.Duration) *WatchdogHandle {
	return &WatchdogHandle{named{g, gatehouse.Key{Kind: gatehouse.Watchdog, Name: name}}, patience}
}

// Kick says that all is well.
func (w *WatchdogHandle) Kick(ctx context.Context) error {
	_, err := w.ask(ctx, gatehouse.Command{Op: gatehouse.OpKick, Expires: w.patience})
	return err
}

// Wait returns as soon as the watchdog fires, at once if it has. The error is of code [gatehouse.CodeTimeout]
// when ctx ends first.
func (w *WatchdogHandle) Wait(ctx context.Context) error {
	_, err := w.ask(ctx, gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever})
	return err
}

// A CounterHandle is a handle on a number. It is safe for use by many goroutines.
type CounterHandle struct{ named }

// Counter is a handle on a counter.
func Counter(g gatehouse.Gate, name string) *CounterHandle {
	return &CounterHandle{named{g, gatehouse.Key{Kind: gatehouse.Counter, Name: name}}}
}

// Add adds to the counter, and returns its value. After an error of another code than
// [gatehouse.CodeInvalid] it may have been added or not: it is never tried again.
func (c *CounterHandle) Add(ctx context.Context, amount int64) (value int64, err error) {
	d, err := c.ask(ctx, gatehouse.Command{Op: gatehouse.OpCount, Amount: amount})
	return d.Value, err
}

// Value returns the counter's value; 0 if it has not been used.
func (c *CounterHandle) Value(ctx context.Context) (int64, error) {
	d, err := c.gate.Do(ctx, c.key, gatehouse.Command{Op: gatehouse.OpValue})
	if err == nil && d.Outcome != gatehouse.Granted && d.Outcome != gatehouse.Missing {
		err = outcomeError(c.key.String(), d.Outcome, d.Message)
	}
	return d.Value, err
}

// Reset sets the counter.
func (c *CounterHandle) Reset(ctx context.Context, value int64) error {
	_, err := c.ask(ctx, gatehouse.Command{Op: gatehouse.OpReset, Amount: value})
	return err
}
