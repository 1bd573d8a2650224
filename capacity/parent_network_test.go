package capacity_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// An oddWay is a network between servers and their parents in which questions and answers get lost, or come
// late, or twice.
type oddWay struct {
	*tree
	random  *rand.Rand
	letters []letter
	asked   map[*node]time.Time // when a server asked last
}

// A letter is a question on its way.
type letter struct {
	from     *node
	asks     []capacity.Request
	sent, at time.Time
	heard    bool // the answer finds its way back, unless it comes too late
}

// tooLate is after how long a server asks anew.
const tooLate = 3 * time.Second

// run lets time pass.
func (w *oddWay) run(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(step) {
		for _, n := range w.nodes {
			n.core.Expire(w.now)
			if n.parent != nil {
				w.turn(n)
			}
		}
		w.deliver()
		for _, l := range w.leaves {
			l.turn(w.now)
		}
		if held := w.held(); held > w.limit*(1+1e-9) {
			w.t.Fatalf("%v: leaves hold %v, want at most %v", w.now.UTC(), held, w.limit)
		}
	}
}

// turn has a server ask, or give up waiting.
func (w *oddWay) turn(n *node) {
	if n.waits && w.now.Sub(w.asked[n]) >= tooLate {
		n.waits = false
		n.core.ParentFailed(w.now)
	}
	next := n.core.NextAsk()
	if n.waits || next.IsZero() || next.After(w.now) {
		return
	}
	asks := n.core.Asks(w.now)
	if len(asks) == 0 {
		return
	}
	n.waits, w.asked[n] = true, w.now
	prompt := letter{from: n, asks: asks, sent: w.now, at: w.now, heard: true}
	late := prompt
	late.at = w.now.Add(time.Duration(w.random.IntN(100)) * step)
	switch w.random.IntN(8) {
	case 0:
		return // lost
	case 1:
		w.letters = append(w.letters, late)
		return
	case 2: // and once more
		late.heard = false
		w.letters = append(w.letters, late)
	case 3:
		prompt.heard = false
	}
	w.letters = append(w.letters, prompt)
}

// deliver has parents answer what has arrived.
func (w *oddWay) deliver() {
	due := w.letters
	w.letters = nil
	for _, l := range due {
		if l.at.After(w.now) {
			w.letters = append(w.letters, l)
			continue
		}
		var grants []capacity.Grant
		for i := range l.asks {
			g, err := l.from.parent.core.Lease(w.now, l.from.name, onWire(&l.asks[i]))
			if err != nil {
				w.t.Fatal(err)
			}
			g.Lease.Expiry = g.Lease.Expiry.Truncate(time.Second)
			grants = append(grants, g)
		}
		if l.heard && l.from.waits && w.asked[l.from].Equal(l.sent) {
			l.from.waits = false
			l.from.core.Told(w.now, grants)
		}
	}
}

// What is asked early and comes late takes nothing back that was granted since. So at no time is more held
// than there is, as long as no lease of a parent's runs out.
func TestLateQuestionsTakeNothingBack(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 11))
		tr := newTree(t)
		slow := template(300)
		slow.Algorithm.LeaseLength = 120 * time.Second
		root := tr.root(slow)
		for range 3 {
			region := tr.child(root)
			tr.clients(region, 10, 10, 40)
			tr.clients(tr.child(region), 10, 10, 40)
		}
		tr.limit = 300
		tr.run(20 * time.Second)
		odd := oddWay{tree: tr, random: random, asked: make(map[*node]time.Time)}
		for range 60 {
			tr.leaves[random.IntN(len(tr.leaves))].wants = float64(random.IntN(150))
			odd.run(time.Duration(random.IntN(10)) * time.Second)
		}
	}
}
