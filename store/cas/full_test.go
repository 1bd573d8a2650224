package cas_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// docs/holders.md says how many holds fit a record. One more is refused, alone or in a grant, which then
// takes nothing of its other names; and all else goes on.
func TestHoldsThatFitARecord(t *testing.T) {
	for _, row := range []struct{ key, text, fit int }{
		{36, 0, 1000}, {36, 20, 1000}, {36, gatehouse.MaxText, 610},
		{512, 0, 940}, {512, 20, 840}, {512, gatehouse.MaxText, 390},
	} {
		t.Run(fmt.Sprintf("keys of %d, texts of %d", row.key, row.text), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFullRecord(t, row.key, row.text)
				defer f.pair.close()
				f.fill(true)
				if f.held < row.fit || f.held > row.fit+row.fit/50 {
					t.Errorf("%d fit, want %d and hardly more", f.held, row.fit)
				}
				f.grantUntilFull()
				f.want(gatehouse.OpRenew, 0, gatehouse.Granted)
				f.want(gatehouse.OpAcquire, 0, gatehouse.Granted) // a repeat
				f.want(gatehouse.OpAcquire, f.held, gatehouse.Exhausted)
				f.want(gatehouse.OpRelease, 1, gatehouse.Granted)
				f.want(gatehouse.OpAcquire, f.held, gatehouse.Granted)
				f.want(gatehouse.OpAcquire, f.held+1, gatehouse.Exhausted)
			})
		})
	}
}

// A fullRecord is a semaphore whose record has as many holds as fit.
type fullRecord struct {
	t     *testing.T
	pair  *pair
	key   int // the length of each key
	owner *gatehouse.Owner
	held  int
}

// fill acquires slots until no more are granted. renewed says that the first hold is renewed, whereupon the
// others take more, too.
func (f *fullRecord) fill(renewed bool) {
	f.t.Helper()
	for f.do(gatehouse.OpAcquire, f.held).Outcome == gatehouse.Granted {
		if f.held == 0 && renewed {
			f.do(gatehouse.OpRenew, f.held)
		}
		f.held++
	}
}

// do does something with the hold of a number.
func (f *fullRecord) do(op gatehouse.Op, i int) gatehouse.Decision {
	f.t.Helper()
	cmd := gatehouse.Command{Op: op, Holder: fmt.Sprintf("%0*d", f.key, i), Owner: f.owner}
	if op == gatehouse.OpAcquire {
		cmd.Size, cmd.Cost, cmd.Expires = 5000, 1, time.Hour
	}
	d, err := f.pair.nearGate.Do(context.Background(), named(gatehouse.Semaphore, "full"), cmd)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// want does something with the hold of a number, and compares the outcome.
func (f *fullRecord) want(op gatehouse.Op, i int, outcome gatehouse.Outcome) {
	f.t.Helper()
	if d := f.do(op, i); d.Outcome != outcome {
		f.t.Errorf("%s of %d: %s %q, want %s", op, i, d.Outcome, d.Message, outcome)
	}
}

// grantUntilFull makes grants over the full name and another one until they are refused, and sees that the
// other name has no more than those that were granted.
func (f *fullRecord) grantUntilFull() {
	f.t.Helper()
	granted, other := int64(0), named(gatehouse.Semaphore, "other")
	for {
		d, err := f.pair.nearGate.DoGrant(context.Background(), gatehouse.GrantCommand{
			Op: gatehouse.OpAcquire, ID: fmt.Sprintf("%0128d", granted), Expires: time.Hour, Owner: f.owner,
			MaxWait: time.Minute, // which does not help
			Want: []gatehouse.Member{
				{Key: named(gatehouse.Semaphore, "full"), Rule: gatehouse.Rule{Size: 5000}, Cost: 1},
				{Key: other, Rule: gatehouse.Rule{Size: 5000}, Cost: 1},
			},
		})
		if err == nil && d.Outcome == gatehouse.Granted {
			granted++
			continue
		}
		if err != nil || d.Outcome != gatehouse.Exhausted || d.Binding != 0 {
			f.t.Errorf("one that does not fit: %s %q, member %d, %v", d.Outcome, d.Message, d.Binding, err)
		}
		break
	}
	d, err := f.pair.farGate.Do(context.Background(), other, gatehouse.Command{Op: gatehouse.OpStats})
	at := slices.IndexFunc(d.Stats, func(s gatehouse.Stat) bool { return s.Name == "acquired" })
	if err != nil || at < 0 || d.Stats[at].Value != granted {
		f.t.Errorf("the other name of %d grants: %v, %v", granted, d.Stats, err)
	}
}

// newFullRecord returns one that is not filled yet.
func newFullRecord(t *testing.T, key, text int) *fullRecord {
	t.Helper()
	f := &fullRecord{t: t, pair: newPair(t, false), key: key}
	if text > 0 {
		f.owner = &gatehouse.Owner{
			Name: strings.Repeat("n", text), Host: strings.Repeat("h", text),
			Purpose: strings.Repeat("p", text),
		}
	}
	return f
}

// A renewal is never refused, although it makes the record larger than one may be. From then on all goes on
// that does not add to it.
func TestOverfullRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFullRecord(t, 512, 0)
		defer f.pair.close()
		f.fill(false)
		f.want(gatehouse.OpRenew, 0, gatehouse.Granted)
		f.want(gatehouse.OpAcquire, 0, gatehouse.Granted) // a repeat
		f.want(gatehouse.OpAcquire, f.held, gatehouse.Exhausted)
		f.want(gatehouse.OpRenew, 1, gatehouse.Granted)
		f.want(gatehouse.OpRelease, 1, gatehouse.Granted)
		f.want(gatehouse.OpAcquire, 0, gatehouse.Granted)
	})
}
