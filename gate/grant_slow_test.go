package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A grantMob is callers who want slots of several semaphores at a slow store, alone or together.
type grantMob struct {
	*mob
	sizes  [4]int64
	within [4]atomic.Int64 // how many slots of each are held
}

func (m *grantMob) name(i int) string { return fmt.Sprint("mob", i) }

// visit takes slots in some way, and gives them back.
func (m *grantMob) visit(t *testing.T, id string) {
	t.Helper()
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: 5 * time.Second}
	var in []int
	for i := range m.sizes {
		if m.draw(2) == 0 {
			in = append(in, i)
			cmd.Want = append(cmd.Want, gatehouse.Member{
				Key: semaphore(m.name(i)), Rule: gatehouse.Rule{Size: m.sizes[i]}, Cost: 1,
			})
		}
	}
	m.shuffle(cmd.Want)
	if m.draw(3) > 0 {
		cmd.MaxWait = m.upTo(300 * time.Millisecond)
	}
	switch {
	case len(in) == 0:
		return
	case len(in) == 1 && m.draw(2) == 0:
		m.visitOne(in[0], id, cmd.MaxWait)
		return
	case !m.acquire(t, cmd):
		return
	}
	m.stay(in)
	_, _ = m.gate.DoGrant(context.Background(), gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id})
}

func (m *grantMob) shuffle(want []gatehouse.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.random.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
}

// visitOne takes a slot by a single command.
func (m *grantMob) visitOne(i int, id string, maxWait time.Duration) {
	one := acquire(id)
	one.Size, one.Expires, one.MaxWait = m.sizes[i], 5*time.Second, maxWait
	if d, err := m.gate.Do(context.Background(), semaphore(m.name(i)), one); err != nil ||
		d.Outcome != gatehouse.Granted {
		m.note(err)
		return
	}
	m.stay([]int{i})
	_, _ = m.gate.Do(context.Background(), semaphore(m.name(i)), release(id))
}

func (m *grantMob) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed++
	}
}

// acquire acquires a grant in one of several ways, and reports whether it was told that it has it.
func (m *grantMob) acquire(t *testing.T, cmd gatehouse.GrantCommand) bool {
	t.Helper()
	if m.draw(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), m.upTo(400*time.Millisecond)+1)
		defer cancel()
		d, err := m.gate.DoGrant(ctx, cmd)
		m.note(err)
		return err == nil && d.Outcome == gatehouse.Granted
	}
	answers := make(chan struct{}, 2)
	r := &gate.GrantRequest{Command: cmd, Decided: func(*gate.GrantRequest) { answers <- struct{}{} }}
	quickly(t, "SubmitGrant", func() { m.gate.SubmitGrant(r) })
	givesUp := m.draw(2) == 0
	if givesUp { // whatever it has been told meanwhile
		time.Sleep(m.upTo(300 * time.Millisecond))
		quickly(t, "CancelGrant", func() { m.gate.CancelGrant(r) })
	}
	<-answers
	granted := r.Err == nil && r.Decision.Outcome == gatehouse.Granted
	m.note(r.Err)
	time.Sleep(time.Second)
	if len(answers) > 0 {
		t.Error("it was answered twice")
	}
	return granted && !givesUp
}

// stay has slots for a while.
func (m *grantMob) stay(in []int) {
	for _, i := range in {
		if n := m.within[i].Add(1); n > m.sizes[i] {
			m.most++
		}
	}
	m.mu.Lock()
	m.told++
	m.mu.Unlock()
	time.Sleep(m.upTo(50 * time.Millisecond))
	for _, i := range in {
		m.within[i].Add(-1)
	}
}

// Whatever a slow store does, and whenever grants are canceled, nothing is held twice, every request is
// answered once, and nothing is left in the end.
func TestGrantMobAtASlowStore(t *testing.T) {
	told, failed := 0, 0
	for seed := range uint64(sampled(40)) {
		failing := int(seed%3) * 4
		synctest.Test(t, func(t *testing.T) {
			m := &grantMob{mob: newMob(seed, failing)}
			for i := range m.sizes {
				m.sizes[i] = 1 + int64(m.draw(3))
			}
			var all sync.WaitGroup
			for caller := range 12 {
				all.Go(func() {
					for round := range 20 {
						time.Sleep(m.upTo(40 * time.Millisecond))
						m.visit(t, fmt.Sprint(caller, ".", round))
					}
				})
			}
			all.Wait()
			if m.most > 0 {
				t.Errorf("seed %d: %d times more was held than there is", seed, m.most)
			}
			told, failed = told+m.told, failed+m.failed
			time.Sleep(time.Minute) // what the store has not told us of ends by itself, and lines linger
			for i := range m.sizes {
				m.store.left(t, m.gate, semaphore(m.name(i)))
			}
			if n := gate.Lines(m.gate); n > 0 || t.Failed() {
				t.Fatalf("seed %d: %d lines are left", seed, n)
			}
		})
	}
	if told < sampled(1000) || failed < sampled(100) {
		t.Errorf("%d were granted and %d failed: the test did not test what it should", told, failed)
	}
}

// The same on real threads, with callers who hang up just as slots are handed over.
func TestHangUpAtTheInstantOfAGrant(t *testing.T) {
	const callers = 8
	rounds := sampled(1500)
	g := newGate()
	var inside [3]atomic.Int64
	var twice, granted atomic.Int64
	var all sync.WaitGroup
	for number := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(number), 0)) //nolint:gosec // a test's
			for round := range rounds {
				id := fmt.Sprint(number, ".", round)
				names := random.Perm(3)[:1+random.IntN(3)]
				if !hangUp(g, id, names, round) {
					continue
				}
				for _, i := range names {
					if inside[i].Add(1) > 1 {
						twice.Add(1)
					}
				}
				granted.Add(1)
				runtime.Gosched()
				for _, i := range names {
					inside[i].Add(-1)
				}
				if err := leave(g, id, names, round); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := g.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	wantIdle(t, g, "t0", "t1", "t2")
	if n := granted.Load(); n == 0 || n == int64(callers*rounds) || twice.Load() > 0 {
		t.Errorf("%d of %d were granted, %d times something was held twice", n, callers*rounds, twice.Load())
	}
}

// isSingle reports whether a caller asks by a single command.
func isSingle(names []int, round int) bool { return len(names) == 1 && round%4 > 1 }

// leave gives back what hangUp was granted.
func leave(g *gate.Gate, id string, names []int, round int) error {
	if isSingle(names, round) {
		_, err := g.Do(context.Background(), semaphore(fmt.Sprint("t", names[0])), release(id))
		return err
	}
	_, err := g.DoGrant(context.Background(), ends(id))
	return err
}

// hangUp acquires a grant with a context that may end at about the time of the grant.
func hangUp(g *gate.Gate, id string, names []int, round int) (granted bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if round%2 == 0 {
		go func() {
			for range round % 7 {
				_ = g.Waiting() // a moment that differs from round to round
			}
			cancel()
		}()
		if round%16 == 0 {
			runtime.Gosched()
		}
	}
	if isSingle(names, round) {
		d, err := g.Do(ctx, semaphore(fmt.Sprint("t", names[0])), acquire(id))
		return err == nil && d.Outcome == gatehouse.Granted
	}
	cmd := wants(id)
	for _, i := range names {
		cmd.Want = append(cmd.Want, wants("", fmt.Sprint("t", i)).Want...)
	}
	d, err := g.DoGrant(ctx, cmd)
	return err == nil && d.Outcome == gatehouse.Granted
}

// At a slow store too, requests for the same names are granted in order of arrival, also those that come
// while the first look at another one is under way, and single commands do not overtake a grant that lacks no
// other name.
func TestOrderOfGrantsAtASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newFar(7*time.Millisecond, 5*time.Millisecond)
		l := newLog()
		mustGrant(t, g, wants("first", "a", "b"))
		want := []string{}
		for i := range 8 {
			name := fmt.Sprint(i)
			want = append(want, name)
			if i%3 == 2 {
				submit(g, semaphore("a"), acquire(name), l.done(name))
			} else {
				cmd := wants(name, "a", "b")
				if i%2 == 0 {
					cmd = wants(name, "b", "a")
				}
				submitGrant(g, cmd, l.done(name))
			}
			time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		}
		time.Sleep(time.Second)
		l.wantOrder(t)
		mustGrant(t, g, ends("first"))
		for i, name := range want {
			time.Sleep(time.Second)
			l.wantOrder(t, want[:i+1]...)
			if i%3 == 2 {
				must(t, g, semaphore("a"), release(name))
			} else {
				mustGrant(t, g, ends(name))
			}
		}
		time.Sleep(time.Minute)
		s.left(t, g, semaphore("a"))
	})
}

// Close and a delete reach grants that are at a slow store, at every moment of their first looks.
func TestGrantsAtASlowStoreEnd(t *testing.T) {
	for _, how := range []string{"close", "delete"} {
		for moment := range 50 {
			synctest.Test(t, func(t *testing.T) {
				s, g := newFar(7*time.Millisecond, 5*time.Millisecond)
				l := newLog()
				mustGrant(t, g, wants("first", "a"))
				cmd := wants("second", "a", "b")
				cmd.MaxWait = 100 * time.Millisecond
				submitGrant(g, cmd, l.done("second"))
				time.Sleep(time.Duration(moment) * time.Millisecond)
				if how == "close" {
					g.Close()
				} else {
					must(t, g, semaphore("a"), gatehouse.Command{Op: gatehouse.OpDelete})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				r := l.get("second")
				switch {
				case r.count != 1:
					t.Errorf("after %d ms: answered %d times, want once", moment, r.count)
				case how == "close" && gatehouse.CodeOf(r.err) != gatehouse.CodeUnavailable:
					t.Errorf("closed after %d ms: %s, %v, want unavailable", moment, r.outcome, r.err)
				// One that is refused only after the delete finds a new name, and is granted.
				case how == "delete" && r.outcome != gatehouse.Deleted && r.outcome != gatehouse.Granted:
					t.Errorf("deleted after %d ms: %s, %v, want it told", moment, r.outcome, r.err)
				}
				if how == "delete" && r.outcome == gatehouse.Granted {
					mustGrant(t, g, ends("second"))
				}
				if err := g.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				s.left(t, g, semaphore("b"))
			})
		}
	}
}

// What is canceled at any moment leaves nothing behind, and is answered once.
func TestGrantIsCanceledAtEveryStep(t *testing.T) {
	for moment := range 120 {
		synctest.Test(t, func(t *testing.T) {
			s, g := newFar(7*time.Millisecond, 5*time.Millisecond)
			l := newLog()
			mustGrant(t, g, wants("first", "a"))
			start := time.Now()
			cancel := submitGrant(g, wants("second", "b", "a"), l.done("second"))
			topup := aTopup(g, l)
			time.AfterFunc(45*time.Millisecond, func() {
				_, _ = g.DoGrant(context.Background(), ends("first"))
			})
			time.Sleep(time.Duration(moment) * time.Millisecond)
			cancel()
			topup()
			time.Sleep(200*time.Millisecond - time.Since(start))
			if a, b := l.get("second").count, l.get("topup").count; a != 1 || b != 1 {
				t.Errorf("canceled after %d ms: answered %d and %d times, want once", moment, a, b)
			}
			time.Sleep(time.Minute)
			mustGrant(t, g, wants("third", "a", "b"))
			mustGrant(t, g, ends("third"))
			d := mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "limited"})
			peek := gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
			if left := must(t, g, limiter("tokens"), peek).Remaining; left != 10-d.Want[0].Cost || left != 6 {
				t.Errorf("canceled after %d ms: %d tokens are left, and %d count, want 6 and 4", moment, left,
					d.Want[0].Cost)
			}
			time.Sleep(time.Minute)
			s.left(t, g, semaphore("a"))
			s.left(t, g, semaphore("b"))
		})
	}
}

// aTopup submits a topup of a grant, which returns when it is canceled.
func aTopup(g *gate.Gate, l *log) (cancel func()) {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: "limited", Expires: time.Hour}
	cmd.Want = []gatehouse.Member{
		{Key: limiter("tokens"), Rule: gatehouse.Rule{Size: 10, Interval: time.Hour}, Cost: 4},
	}
	_, _ = g.DoGrant(context.Background(), cmd)
	return submitGrant(g, gatehouse.GrantCommand{
		Op: gatehouse.OpTopUp, ID: "limited", MaxWait: gatehouse.Forever,
		Costs: []gatehouse.MemberCost{{Key: limiter("tokens"), Cost: 3}},
	}, l.done("topup"))
}
