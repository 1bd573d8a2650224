package gate

import "fmt"

// Lines returns how many lines a gate has.
func Lines(g *Gate) int { return int(g.lines.Load()) }

// Dump describes lines.
func Dump(g *Gate) (s string) {
	for i := range g.shards {
		for k, l := range g.shards[i].lines {
			s += fmt.Sprintf("%s serving=%v looks=%d glooks=%d watched=%v kept=%+v\n", k, l.serving, l.looks, l.grantLooks, l.watched, l.kept)
			for _, p := range l.grants {
				s += fmt.Sprintf("  grant %s n=%d busy=%v dirty=%v blocked=%d: refused=%v barred=%v retry=%s near=%v full=%v keeps=%v eldest=%v moved=%v held=%v look=%v\n", p.grant.Command.ID, p.grant.number, p.grant.busy, p.grant.dirty, p.grant.blocked, p.refused, p.barred, p.retry, p.near, p.full, p.keeps, p.eldest, p.moved, p.held, p.looking)
			}
			for t := l.head; t != nil; t = t.next {
				s += fmt.Sprintf("  ticket %s n=%d seen=%v offered=%v kept=%v\n", t.Command.Holder, t.number, t.seen, t.offered, t.keptBack)
			}
		}
	}
	return s
}
