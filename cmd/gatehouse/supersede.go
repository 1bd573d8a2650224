package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// errSuperseded ends the wait of a run that a newer one has superseded.
var errSuperseded = errors.New("superseded by a newer run")

// Runs that want the same names supersede each other. Each takes the next number of a counter, sends the
// event of the number before, and waits for the event of its own:
//
//	counter run/NAMES        how many there have been
//	event   run/NAMES/N      run N is superseded

// maxGroup is the longest list of names that is shown as it is; a longer one is hashed.
const maxGroup = 300

// groupOf is the name of all runs that want the same.
func groupOf(want []gatehouse.Member) string {
	names := make([]string, len(want))
	for i := range want {
		names[i] = want[i].Key.String()
	}
	slices.Sort(names) // in whatever order they were asked for
	all := strings.Join(names, "+")
	if len(all) > maxGroup {
		sum := sha256.Sum256([]byte(all))
		all = hex.EncodeToString(sum[:])
	}
	return "run/" + all
}

// supersedeOthers has the run before give up its wait, evicts those who hold if they are to be superseded
// too, and has end called when a newer run supersedes this one, until ctx ends.
func (o *runOptions) supersedeOthers(
	ctx context.Context, c *client.Client, end context.CancelCauseFunc,
) error {
	group := groupOf(o.want)
	counter := gatehouse.Key{Kind: gatehouse.Counter, Name: group}
	// A number of its own for each run, so that of two at the same time exactly one is the newer.
	d, err := c.Do(ctx, counter, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1})
	if err != nil {
		return err
	}
	number := d.Value
	// Ends with ctx, which ends when this run is granted or gives up.
	go func() {
		d, err := c.Do(ctx, supersededEvent(group, number), gatehouse.Command{
			Op: gatehouse.OpWait, MaxWait: gatehouse.Forever,
		})
		if err == nil && d.Outcome == gatehouse.Granted {
			end(errSuperseded)
		}
	}()
	// An event that was sent before is a conflict, which is as good.
	_, err = c.Do(ctx, supersededEvent(group, number-1), gatehouse.Command{Op: gatehouse.OpSend})
	if err != nil || o.supersede != supersedeHolding {
		return err
	}
	for i := range o.want {
		err = errors.Join(err, o.evictHolders(ctx, c, &o.want[i]))
	}
	return err
}

// supersededEvent is the event by which a run learns that it is superseded.
func supersededEvent(group string, number int64) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Event, Name: group + "/" + strconv.FormatInt(number, 10)}
}

// evictHolders evicts the eldest holders of a name, as many as make room. They learn it when they renew, and
// their commands end before this one begins.
func (o *runOptions) evictHolders(ctx context.Context, c *client.Client, m *gatehouse.Member) error {
	if !params.HasHolders(m.Key.Kind) {
		return nil
	}
	d, err := c.Do(ctx, m.Key, gatehouse.Command{Op: gatehouse.OpHolders, Amount: gatehouse.MaxListed})
	if err != nil || d.Report == nil {
		return err
	}
	// A size that this run brings is in force only once it is granted, and it needs room in that.
	limit := d.Report.Limit
	if m.Size != gatehouse.InForce && m.Key.Kind == gatehouse.Semaphore {
		limit = m.Size
	}
	missing := d.Report.Used + m.Cost - limit
	by := o.owner("run --supersede")
	for i := range d.Report.Holders {
		h := &d.Report.Holders[i]
		if missing <= 0 {
			break
		}
		// Counted also if the hold has ended by itself meanwhile: its slots are free then, too.
		missing -= h.Slots
		_, err := c.Do(ctx, m.Key, gatehouse.Command{
			Op: gatehouse.OpEvict, Fence: h.Fence, Owner: by, Message: errSuperseded.Error(),
		})
		if err != nil {
			return fmt.Errorf("evicting a holder of %s: %w", m.Key, err)
		}
	}
	return nil
}

// The values of --supersede.
const (
	supersedeNone    = "none"
	supersedeWaiting = "waiting"
	supersedeHolding = "holding"
)
