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
	err = g.VisitNames(ctx, p, func(d gatehouse.NameDetails) bool {
		all = append(all, d)
		return len(all) < most
	})
	// After the visit, during which the store may hold a lock: no line is locked under that.
	for i := range all {
		if l := g.lineOf(gatehouse.Key{Kind: p.Kind, Name: all[i].Name}); l != nil {
			all[i].Waiting = l.len()
		}
	}
	return all, err
}

// VisitNames tells about the names with a prefix, in order, until visit returns false. It leaves out how many
// wait, which [Gate.WaitingNames] has. visit must be quick: the store may hold a lock meanwhile.
func (g *Gate) VisitNames(ctx context.Context, p Prefix, visit func(gatehouse.NameDetails) bool) error {
	now, err := g.storeTime(ctx)
	if err != nil {
		return err
	}
	// Names come in order: the first one without the prefix is behind all that have it, and ends the visit.
	return g.store.Range(ctx, p.Kind, max(p.After, beforePrefix(p.Prefix)),
		func(key gatehouse.Key, s control.State) bool {
			return strings.HasPrefix(key.Name, p.Prefix) && visit(control.Describe(now, key.Name, s))
		})
}

// VisitAllNames is VisitNames for all names of a kind, in whatever order is the quickest for the store.
func (g *Gate) VisitAllNames(
	ctx context.Context, kind gatehouse.Kind, visit func(gatehouse.NameDetails) bool,
) error {
	// A store in memory has no order of its own, and would sort all names for Range.
	quick, ok := g.store.(interface {
		Visit(ctx context.Context, kind gatehouse.Kind, visit control.Visit) error
	})
	if !ok {
		return g.VisitNames(ctx, Prefix{Kind: kind}, visit)
	}
	now, err := g.storeTime(ctx)
	if err != nil {
		return err
	}
	return quick.Visit(ctx, kind, func(key gatehouse.Key, s control.State) bool {
		return visit(control.Describe(now, key.Name, s))
	})
}

// WaitingNames returns how many commands wait at this gate at each name at which any does.
func (g *Gate) WaitingNames() map[gatehouse.Key]int {
	all := make(map[gatehouse.Key]int)
	var lines []*line
	for i := range g.shards {
		sh := &g.shards[i]
		// Copied, so that commands at other names do not wait while the lines are asked.
		lines = lines[:0]
		sh.mu.Lock()
		for _, l := range sh.lines {
			lines = append(lines, l)
		}
		sh.mu.Unlock()
		for _, l := range lines {
			if n := l.len(); n > 0 {
				all[l.key] = n
			}
		}
	}
	return all
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
