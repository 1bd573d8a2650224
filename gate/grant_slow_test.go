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

// Whatever a slow store does, and whenever grants are canceled, nothing is held twice, every request is answered
// once, and nothing is left in the end.
func TestGrantMobAtASlowStore(t *testing.T) {
	told, failed := 0, 0
	for seed := range uint64(40) {
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
				t.Fatalf("seed %d: %d lines are left:\n%s", seed, n, gate.Dump(m.gate))
			}
		})
	}
	if told < 1000 || failed < 100 {
		t.Errorf("%d were granted and %d failed: the test did not test what it should", told, failed)
	}
}

// The same on real threads, with callers who hang up just as slots are handed over.
func TestHangUpAtTheInstantOfAGrant(t *testing.T) {
	const callers, rounds = 8, 1500
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
				if _, err := g.DoGrant(context.Background(), ends(id)); err != nil {
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
	if n := granted.Load(); n == 0 || n == callers*rounds || twice.Load() > 0 {
		t.Errorf("%d of %d were granted, %d times something was held twice", n, callers*rounds, twice.Load())
	}
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
	cmd := wants(id)
	for _, i := range names {
		cmd.Want = append(cmd.Want, wants("", fmt.Sprint("t", i)).Want...)
	}
	d, err := g.DoGrant(ctx, cmd)
	return err == nil && d.Outcome == gatehouse.Granted
}
