package gate

import "github.com/gatehousehq/gatehouse"

// Lines returns how many lines a gate has.
func Lines(g *Gate) int { return int(g.lines.Load()) }

// KeepPeriod is from one time in which lines may be kept to the next.
const KeepPeriod = keepPeriod

// Firsts returns how many grants a line takes for the first of those that want the same, and how many it has.
func Firsts(g *Gate, key gatehouse.Key) (firsts, grants int) {
	l := g.lineOf(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	g.grants.mu.Lock()
	defer g.grants.mu.Unlock()
	return len(l.firsts), len(l.grants)
}
