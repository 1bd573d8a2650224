package gate

import (
	"context"
	"strings"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Prefix is all names of one kind that begin alike and come after another.
type Prefix struct {
	Kind   gatehouse.Kind
	Prefix string // one byte at least
	After  string // "" for all of them
}

// deletesAtOnce is how many names are deleted at the same time at a slow store, which combines them.
const deletesAtOnce = 64

// DeletePrefix deletes names, in their order, at most so many, and returns how many it has deleted. next is
// the After of those that may be left; it is empty at the end. Who waits at a name is told that it was
// deleted. Names that come meanwhile may stay.
func (g *Gate) DeletePrefix(ctx context.Context, p Prefix, most int) (deleted int, next string, err error) {
	if p.Prefix == "" {
		return 0, "", gatehouse.Errorf(gatehouse.CodeInvalid,
			"prefix of %s is empty, want a byte at least", p.Kind)
	}
	names, err := g.prefixed(ctx, p, most+1)
	if err != nil {
		return 0, "", err
	}
	if len(names) > most {
		names = names[:most]
		next = names[most-1]
	}
	deleted, err = g.deleteAll(ctx, p.Kind, names)
	return deleted, next, err
}

// prefixed are the first names that have the prefix.
func (g *Gate) prefixed(ctx context.Context, p Prefix, most int) (names []string, err error) {
	after := max(p.Prefix, p.After)
	if p.After < p.Prefix {
		names = append(names, p.Prefix) // which does not come after itself, and need not be there
	}
	err = g.store.Range(ctx, p.Kind, after, func(key gatehouse.Key, _ control.State) bool {
		if !strings.HasPrefix(key.Name, p.Prefix) {
			return false
		}
		names = append(names, key.Name)
		return len(names) < most
	})
	return names, err
}

// deleteAll deletes names, and returns how many there were, and the first error.
func (g *Gate) deleteAll(ctx context.Context, kind gatehouse.Kind, names []string) (deleted int, err error) {
	var mu sync.Mutex
	one := func(name string) {
		key := gatehouse.Key{Kind: kind, Name: name}
		d, failed := g.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpDelete})
		mu.Lock()
		defer mu.Unlock()
		if failed == nil && d.Outcome == gatehouse.Granted {
			deleted++
		}
		if err == nil {
			err = failed
		}
	}
	if g.slow == nil {
		for _, name := range names {
			one(name)
		}
		return deleted, err
	}
	var all sync.WaitGroup
	turns := make(chan struct{}, deletesAtOnce)
	for _, name := range names {
		turns <- struct{}{}
		all.Go(func() {
			one(name)
			<-turns
		})
	}
	all.Wait()
	return deleted, err
}
