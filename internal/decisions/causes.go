package decisions

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/topk"
)

// mostCauses is how many holders or users of a name are told.
const mostCauses = 10

// Causes are who has used up what there was at a name: of a semaphore or a lock Holders, of all else Users.
type Causes struct {
	Holders []gatehouse.HolderEntry
	Users   []topk.Entry[string]
}

// FindCauses asks the gate who held the name that refused at that time and still does. Of a name that has no
// holders it returns the users that were granted most of it lately. If the store does not answer, the causes
// are empty. e has the names that the gate knows.
func (o *Recorder) FindCauses(ctx context.Context, gate gatehouse.Gate, e *Explained) (c Causes) {
	key := e.Name()
	// A limiter does not remember who took what. The busiest users are the nearest to an answer.
	if !params.HasHolders(key.Kind) {
		c.Users = o.TopUsersAt(Granted, key)
		return c
	}
	d, err := gate.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpHolders, Amount: mostCauses})
	if err != nil || d.Report == nil {
		return c
	}
	for _, h := range d.Report.Holders {
		// Who began later did not hold it when it refused.
		if !h.Since.After(e.Decision.At) {
			c.Holders = append(c.Holders, h)
		}
	}
	return c
}
