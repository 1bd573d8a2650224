package gate

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Prefix stands for the names of one kind that begin with Prefix and come after After.
type Prefix struct {
	Kind   gatehouse.Kind
	Prefix string // one byte at least
	After  string // "" for all of them
}

// deletesAtOnce is how many names are deleted at the same time: a shared store combines them.
const deletesAtOnce = 64

// DeletePrefix deletes at most the given number of names, in order, and returns how many it has deleted.
// next is the After of a call for the names that may be left; it is empty at the end. Commands that wait at
// a deleted name are answered so. Names that are created meanwhile may stay.
func (g *Gate) DeletePrefix(ctx context.Context, p Prefix, most int) (deleted int, next string, err error) {
	// An empty prefix would delete all names of the kind, which is hardly ever meant.
	if p.Prefix == "" {
		return 0, "", gatehouse.Errorf(gatehouse.CodeInvalid,
			"prefix of %s is empty, want a byte at least", p.Kind)
	}
	// One name more than is deleted tells whether any is left.
	names, err := g.namesWithPrefix(ctx, p, most+1)
	if err != nil {
		return 0, "", err
	}
	if len(names) > most {
		names = names[:most]
		next = names[most-1]
	}
	deleted, err = g.deleteNames(ctx, p.Kind, names)
	return deleted, next, err
}

// namesWithPrefix returns the first names with the prefix.
func (g *Gate) namesWithPrefix(ctx context.Context, p Prefix, most int) (names []string, err error) {
	after := max(p.Prefix, p.After)
	if p.After < p.Prefix {
		// Range would leave out a name that equals the prefix. It need not exist: deleting it does no harm.
		names = append(names, p.Prefix)
	}
	err = g.store.Range(ctx, p.Kind, after, func(key gatehouse.Key, _ control.State) bool {
		// The names with the prefix follow each other, so that the first without it ends the list.
		if !strings.HasPrefix(key.Name, p.Prefix) {
			return false
		}
		names = append(names, key.Name)
		return len(names) < most
	})
	return names, err
}

// deleteNames deletes names, and returns how many existed, and the first error. It goes on after an error of
// the store, and begins no more when ctx ends.
func (g *Gate) deleteNames(
	ctx context.Context, kind gatehouse.Kind, names []string,
) (deleted int, err error) {
	var mu sync.Mutex
	free := make(chan struct{}, deletesAtOnce)
	decided := func(r *Request) {
		mu.Lock()
		if r.Err == nil && r.Decision.Outcome == gatehouse.Granted {
			deleted++
		}
		err = cmp.Or(err, r.Err)
		mu.Unlock()
		<-free
	}
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		// Submit does not block: without this, the store would have all
		// names of the prefix in hand at once.
		free <- struct{}{}
		g.Submit(&Request{
			Key: gatehouse.Key{Kind: kind, Name: name}, Command: gatehouse.Command{Op: gatehouse.OpDelete},
			Decided: decided,
		})
	}
	// All of them are free when the last one is decided.
	for range deletesAtOnce {
		free <- struct{}{}
	}
	if ctx.Err() != nil {
		ended := gatehouse.Errorf(gatehouse.CodeTimeout, "deleting names of %s: %w", kind, ctx.Err())
		err = cmp.Or(err, ended)
	}
	return deleted, err
}
