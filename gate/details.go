package gate

import (
	"context"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// Describe tells about the first names with a prefix, at most the given number, in order. Unlike that of a
// delete, the prefix may be empty.
func (g *Gate) Describe(ctx context.Context, p Prefix, most int) (all []gatehouse.NameDetails, err error) {
	if most < 1 {
		return nil, nil
	}
	now, err := g.storeTime(ctx)
	if err != nil {
		return nil, err
	}
	err = g.store.Range(ctx, p.Kind, max(p.After, beforePrefix(p.Prefix)),
		func(key gatehouse.Key, s control.State) bool {
			if !strings.HasPrefix(key.Name, p.Prefix) {
				return false
			}
			all = append(all, control.Describe(now, key.Name, s))
			return len(all) < most
		})
	for i := range all {
		if l := g.lineOf(gatehouse.Key{Kind: p.Kind, Name: all[i].Name}); l != nil {
			all[i].Waiting = l.len()
		}
	}
	return all, err
}

// beforePrefix is a text behind which the first name of a list is the first with a prefix: one that is before
// all of them, and behind all others that are. No name has a byte of 255, as it would not be UTF-8.
func beforePrefix(prefix string) string {
	n := len(prefix)
	if n == 0 || prefix[n-1] == 0 {
		return ""
	}
	return prefix[:n-1] + string([]byte{prefix[n-1] - 1, 0xff})
}

// storeTime asks for the store's time. The name is one that is not used, and not made by being asked about.
func (g *Gate) storeTime(ctx context.Context) (time.Time, error) {
	d, err := g.Do(ctx, gatehouse.Key{Kind: gatehouse.Counter, Name: "gatehouse/now"},
		gatehouse.Command{Op: gatehouse.OpStats})
	return d.At, err
}
