package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// How often a run that has waited asks again when its server does not answer, and for how long: as long as a
// server takes to start again.
const (
	reconnectPause = 500 * time.Millisecond
	reconnectFor   = 30 * time.Second
)

// A waitingRun is a run that waits for its names.
type waitingRun struct {
	client *client.Client
	screen io.Writer // nil shows nothing
	inline bool      // the screen is a terminal: the same line is written again
	shown  string
	waited bool
}

// acquire asks for the grant until it is decided. A run that waits when its server goes away asks again: with
// its id it is the same request.
func (w *waitingRun) acquire(
	ctx context.Context, cmd gatehouse.GrantCommand,
) (gatehouse.GrantDecision, error) {
	defer w.clear()
	end := time.Time{}
	if cmd.MaxWait > 0 {
		end = time.Now().Add(cmd.MaxWait)
	}
	away := time.Time{}
	for {
		d, err := w.client.FollowGrant(ctx, cmd, func(p client.LinePlace) {
			away = time.Time{}
			w.showPlace(ctx, p)
		})
		// Before the first wait, the error is returned at once: --offline decides what to do then.
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || err == nil || !w.waited {
			return d, err
		}
		now := time.Now()
		if away.IsZero() {
			away = now
		}
		if now.Sub(away) > reconnectFor || !end.IsZero() && now.After(end) {
			return d, err
		}
		w.show("the server is away; asking again")
		if !backoff.Sleep(ctx, reconnectPause) {
			return d, ctx.Err()
		}
		// The time without a server counts as waited.
		if !end.IsZero() {
			cmd.MaxWait = max(0, time.Until(end))
		}
	}
}

// showPlace says where the run stands, and who holds what it waits for.
func (w *waitingRun) showPlace(ctx context.Context, p client.LinePlace) {
	// Also with --quiet, since acquire asks again only for one that has waited.
	w.waited = true
	if w.screen == nil {
		return
	}
	text := fmt.Sprintf("waiting for %s: position %d", p.Key, p.Position)
	if p.Expected >= 0 {
		text += ", about " + showDuration(p.Expected)
	}
	if p.Key.Kind == gatehouse.Semaphore || p.Key.Kind == gatehouse.Lock {
		text += w.holders(ctx, p.Key)
	}
	w.show(text)
}

// shownHolders is how many holders are named.
const shownHolders = 3

// holders says who holds, as the end of a sentence.
func (w *waitingRun) holders(ctx context.Context, key gatehouse.Key) string {
	d, err := w.client.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpHolders, Amount: shownHolders})
	// It is only shown to people: without it the wait goes on all the same.
	if err != nil || d.Report == nil || len(d.Report.Holders) == 0 {
		return ""
	}
	var named []string
	for i := range d.Report.Holders {
		h := &d.Report.Holders[i]
		named = append(named, fmt.Sprintf("%s for %s", showOwner(&h.Owner, gatehouse.HolderID(h.Fence)),
			showDuration(h.HeldFor)))
	}
	more := ""
	if others := d.Report.Total - len(named); others > 0 {
		more = fmt.Sprintf(" and %d more", others)
	}
	return "; held by " + strings.Join(named, ", ") + more
}

// showOwner names an owner, or the public id of what it holds.
func showOwner(o *gatehouse.Owner, id string) string {
	text := id
	switch {
	case o.Name != "" && o.Host != "":
		text = o.Name + "@" + o.Host
	case o.Name != "" || o.Host != "":
		text = o.Name + o.Host
	}
	if o.Purpose != "" {
		text += " (" + o.Purpose + ")"
	}
	// Owners are texts of other people, who could send commands to the terminal.
	return doormanpb.ShowName(text)
}

// showDuration is a length of time for people: three digits are enough.
func showDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "forever"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// show shows a line, in place of the one before on a terminal.
func (w *waitingRun) show(text string) {
	if w.screen == nil || text == w.shown {
		return
	}
	if w.inline {
		_, _ = fmt.Fprintf(w.screen, "\r\x1b[K%s", showControls(text))
	} else {
		_, _ = fmt.Fprintf(w.screen, "gatehouse: %s\n", text)
	}
	w.shown = text
}

// clear removes the line from a terminal.
func (w *waitingRun) clear() {
	if w.inline && w.shown != "" {
		_, _ = fmt.Fprint(w.screen, "\r\x1b[K")
	}
}
