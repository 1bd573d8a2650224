package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A pool is semaphores that grants and single commands want, and a simple model of who has what. Only one
// goroutine acts, and between its acts everything comes to rest.
type pool struct {
	t        *testing.T
	gate     *gate.Gate
	random   *rand.Rand
	start    time.Time
	sizes    map[string]int64
	askers   []*asker // in order of arrival
	answered int
	granted  int
	// kept is when each name was seen to be kept for a grant while it could serve somebody behind.
	kept   map[string][]time.Time
	passed []overtaking
	mu     sync.Mutex // for the answers, which come on any goroutine
}

// An overtaking is one who was granted before another one who came earlier was answered.
type overtaking struct{ first, behind *asker }

// An asker is a grant, or a single command for one name.
type asker struct {
	id      int
	want    map[string]int64
	single  bool
	expires time.Duration
	cancel  func()
	answers int
	outcome gatehouse.Outcome
	err     error
	since   time.Time // of its grant
	ended   bool      // it was released
	lost    map[string]bool
	left    bool // it was canceled
	waits   bool
}

func newPool(t *testing.T, seed uint64) *pool {
	t.Helper()
	p := &pool{
		t: t, gate: newGate(), start: time.Now(), sizes: map[string]int64{}, kept: map[string][]time.Time{},
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a test's
	}
	for i := range 5 {
		p.sizes[fmt.Sprint("s", i)] = 1 + p.random.Int64N(3)
	}
	return p
}

// name is one of the names.
func (p *pool) name() string { return fmt.Sprint("s", p.random.IntN(len(p.sizes))) }

// holds reports whether an asker has its slots now.
func (p *pool) holds(a *asker) bool {
	return a.answers > 0 && a.err == nil && a.outcome == gatehouse.Granted && !a.ended && !a.left &&
		time.Now().Before(a.since.Add(a.expires))
}

// free is how many slots of a name are free.
func (p *pool) free(name string) int64 {
	n := p.sizes[name]
	for _, a := range p.askers {
		if p.holds(a) && !a.lost[name] {
			n -= a.want[name]
		}
	}
	return n
}

// ask submits a grant or a single command.
func (p *pool) ask() {
	a := &asker{id: len(p.askers), want: map[string]int64{}, lost: map[string]bool{}, waits: true}
	a.single = p.random.IntN(2) == 0
	names := 1
	if !a.single {
		names += p.random.IntN(4)
	}
	for len(a.want) < names {
		name := p.name()
		a.want[name] = 1 + p.random.Int64N(p.sizes[name])
	}
	a.expires = time.Duration([]int{200, 700, 2000, 3_600_000}[p.random.IntN(4)])*time.Millisecond + 13
	maxWait := gatehouse.Forever
	switch p.random.IntN(4) {
	case 0:
		a.waits, maxWait = false, 0
	case 1:
		maxWait = time.Duration(p.random.IntN(3000))*time.Millisecond + 7
	}
	p.askers = append(p.askers, a)
	if a.single {
		p.askOne(a, maxWait)
		return
	}
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: fmt.Sprint(a.id), Expires: a.expires, MaxWait: maxWait,
	}
	for name, cost := range a.want {
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key: semaphore(name), Rule: gatehouse.Rule{Size: p.sizes[name]}, Cost: cost,
		})
	}
	a.cancel = submitGrant(p.gate, cmd, p.answer(a))
}

func (p *pool) askOne(a *asker, maxWait time.Duration) {
	for name, cost := range a.want {
		cmd := acquire(fmt.Sprint(a.id))
		cmd.Size, cmd.Cost, cmd.Expires, cmd.MaxWait = p.sizes[name], cost, a.expires, maxWait
		done := p.answer(a)
		r := &gate.Request{Key: semaphore(name), Command: cmd}
		r.Decided = func(r *gate.Request) { done(*r.Decision, r.Err) }
		p.gate.Submit(r)
		a.cancel = func() { p.gate.Cancel(r) }
	}
}

// answer is told how a request ended.
func (p *pool) answer(a *asker) func(gatehouse.Decision, error) {
	return func(d gatehouse.Decision, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.answers++
		p.answered++
		a.outcome, a.err, a.since = d.Outcome, err, time.Now()
		if err != nil || d.Outcome != gatehouse.Granted {
			return
		}
		p.granted++
		for name := range a.want {
			if p.free(name) < 0 {
				p.t.Errorf("%d was granted %s, of which no slot was free", a.id, name)
			}
			p.checkTurn(a, name)
		}
	}
}

// checkTurn sees that nobody who wants the same names, or is alone with one, was overtaken.
func (p *pool) checkTurn(a *asker, name string) {
	for _, other := range p.askers[:a.id] {
		if other.answers > 0 || other.left || !other.waits {
			continue
		}
		if other.single && other.want[name] > 0 {
			p.passed = append(p.passed, overtaking{a, other})
		}
		if sameNames(a, other) {
			p.passed = append(p.passed, overtaking{a, other})
		}
	}
}

func sameNames(a, b *asker) bool {
	same := len(a.want) == len(b.want)
	for name := range a.want {
		same = same && b.want[name] > 0
	}
	return same
}

// giveBack releases what one asker has.
func (p *pool) giveBack(a *asker) {
	a.ended = true
	if a.single {
		for name := range a.want {
			_, _ = p.gate.Do(context.Background(), semaphore(name), release(fmt.Sprint(a.id)))
		}
		return
	}
	if _, err := p.gate.DoGrant(context.Background(), ends(fmt.Sprint(a.id))); err != nil {
		p.t.Error(err)
	}
}

// act does something at random.
func (p *pool) act() {
	var waiting, holding []*asker
	for _, a := range p.askers {
		switch {
		case a.answers == 0:
			waiting = append(waiting, a)
		case p.holds(a):
			holding = append(holding, a)
		}
	}
	switch what := p.random.IntN(40); {
	case what < 12 && len(holding) > 0:
		p.giveBack(holding[p.random.IntN(len(holding))])
	case what < 14 && len(waiting) > 0:
		a := waiting[p.random.IntN(len(waiting))]
		a.left = true
		a.cancel()
	case what == 14 && len(holding) > 0: // it could not be told
		a := holding[p.random.IntN(len(holding))]
		a.left = true
		a.cancel()
	case what == 15:
		p.delete(p.name())
	case len(waiting) < 15:
		p.ask()
	}
}

// delete deletes a semaphore, which tells all who wait.
func (p *pool) delete(name string) {
	for _, a := range p.askers {
		if p.holds(a) {
			a.lost[name] = true
		}
	}
	_, _ = p.gate.Do(context.Background(), semaphore(name), gatehouse.Command{Op: gatehouse.OpDelete})
	synctest.Wait()
	for _, a := range p.askers {
		if a.answers == 0 && a.want[name] > 0 {
			p.t.Errorf("%d still waits at %s, which was deleted", a.id, name)
		}
	}
}

// canServe reports whether a name has enough for an asker, and no single command before it.
func (p *pool) canServe(a *asker, name string) bool {
	if p.free(name) < a.want[name] {
		return false
	}
	for _, other := range p.askers[:a.id] {
		if other.answers == 0 && other.single && other.want[name] > 0 {
			return false
		}
	}
	return true
}

// check looks for what must not be, when everything is at rest.
func (p *pool) check() {
	for _, o := range p.passed {
		// Of two that were answered at one instant either may hear of it first.
		if o.behind.answers == 0 {
			p.t.Errorf("%d, %+v, has overtaken %d, %+v", o.first.id, o.first.want, o.behind.id, o.behind.want)
		}
	}
	p.passed = nil
	for _, a := range p.askers {
		if a.answers > 0 {
			continue
		}
		served, alone := true, true
		for name := range a.want {
			served = served && p.canServe(a, name)
			for _, other := range p.askers[:a.id] {
				alone = alone && (other.answers > 0 || other.want[name] == 0)
			}
		}
		switch {
		case served && alone:
			p.t.Fatalf("%s: %d waits although all it wants is free: %+v", time.Since(p.start), a.id, a.want)
		case served:
			p.noteKept(a)
		}
	}
}

// noteKept notes which names are kept from an asker that could be served, by grants that lack something else.
func (p *pool) noteKept(a *asker) {
	for name := range a.want {
		blocked := false
		for _, other := range p.askers[:a.id] {
			if other.answers > 0 || other.want[name] == 0 {
				continue
			}
			if p.lacksOnly(other, name) || sameNames(a, other) {
				return // first come, first served
			}
			blocked = true
		}
		if times := p.kept[name]; blocked && (len(times) == 0 || times[len(times)-1] != time.Now()) {
			p.kept[name] = append(p.kept[name], time.Now())
		}
	}
}

// lacksOnly reports whether nothing but one name is in an asker's way.
func (p *pool) lacksOnly(a *asker, name string) bool {
	for other := range a.want {
		if other != name && !p.canServe(a, other) {
			return false
		}
	}
	return true
}

// checkKept sees that no line was kept for longer than is promised.
func (p *pool) checkKept(step time.Duration) {
	for name, times := range p.kept {
		stretch := 0
		for i, at := range times {
			if i == 0 || at.Sub(times[i-1]) > step {
				stretch = 0
			}
			stretch++
			if d := time.Duration(stretch) * step; d > time.Second+2*step {
				p.t.Errorf("%s was kept for %s at a stretch", name, d)
			}
			from, _ := slices.BinarySearchFunc(times, at.Add(-10*time.Second), time.Time.Compare)
			if d := time.Duration(i-from) * step; d > 5*time.Second+10*step {
				p.t.Errorf("%s was kept for %s of 10 s", name, d)
			}
		}
	}
}

// TestGrantsAgainstTheModel: whatever is asked, canceled and deleted, nothing is held twice, no slot is lost,
// nobody waits for what is free, and every request is answered once.
func TestGrantsAgainstTheModel(t *testing.T) {
	answered, granted, kept := 0, 0, 0
	for seed := range modelSeeds(t) {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, seed)
			const step = 20 * time.Millisecond
			busy := 1 + p.random.IntN(12)
			for range 1500 {
				if p.random.IntN(busy) == 0 {
					p.act()
				}
				p.rest(step)
				p.check()
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			p.checkKept(step)
			p.end()
			answered, granted = answered+p.answered, granted+p.granted
			for _, times := range p.kept {
				kept += len(times)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
	t.Logf("%d answered, %d granted, %d kept", answered, granted, kept)
	if answered < sampled(3000) || granted < sampled(1000) || kept < sampled(100) {
		t.Errorf("%d answered, %d granted, %d kept: the test did not test what it should",
			answered, granted, kept)
	}
}

// rest lets time pass.
func (p *pool) rest(step time.Duration) {
	p.synchronize()
	time.Sleep(step)
	synctest.Wait()
	p.synchronize()
}

// synchronize tells the race detector what it does not know: that a timer's goroutine comes after what was
// done before.
func (p *pool) synchronize() {
	p.mu.Lock()
	p.mu.Unlock() //nolint:gocritic,staticcheck // nothing is done under it
}

// end has everybody leave, and sees that nothing is left.
func (p *pool) end() {
	for _, a := range p.askers {
		if a.answers == 0 {
			a.left = true
			a.cancel()
		} else if p.holds(a) {
			p.giveBack(a)
		}
	}
	synctest.Wait()
	for _, a := range p.askers {
		if a.answers != 1 {
			p.t.Errorf("%d was answered %d times", a.id, a.answers)
		}
	}
	wantIdle(p.t, p.gate, "s0", "s1", "s2", "s3", "s4")
	if n := gate.Lines(p.gate); n != 0 {
		p.t.Errorf("%d lines are left", n)
	}
}
