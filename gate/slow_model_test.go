package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// A mob is callers who want slots of one semaphore at a slow store, in every way there is.
type mob struct {
	store  *farStore
	gate   *gate.Gate
	key    gatehouse.Key
	size   int64
	inside atomic.Int64

	mu     sync.Mutex // of random and the counts
	random *rand.Rand
	most   int64
	told   int // how many were told that they have a slot
	failed int // calls that were told of an error
}

// upTo is a random length of time.
func (m *mob) upTo(most time.Duration) time.Duration {
	return time.Duration(m.draw(int(most)))
}

func (m *mob) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

// newMob makes a mob in front of a store whose calls take up to 30 ms each way, a few of which fail.
func newMob(seed uint64, failing int) *mob {
	s, g := newFar(0, 0)
	m := &mob{store: s, gate: g, key: semaphore("mob")}
	m.random = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
	m.size = 1 + int64(m.draw(3))
	s.there = func() time.Duration { return m.upTo(30 * time.Millisecond) }
	s.back = s.there
	s.fails = func() (before, after bool) {
		return m.draw(100) < failing, m.draw(100) < failing
	}
	return m
}

// visit takes a slot in some way, and gives it back.
func (m *mob) visit(t *testing.T, holder string) {
	t.Helper()
	cmd := acquire(holder)
	cmd.Size, cmd.Expires, cmd.MaxWait = m.size, 5*time.Second, m.upTo(200*time.Millisecond)
	if m.draw(3) == 0 {
		cmd.MaxWait = 0
	}
	var d gatehouse.Decision
	var err error
	switch m.draw(3) {
	case 0:
		d, err = m.gate.Do(context.Background(), m.key, cmd)
	case 1:
		ctx, cancel := context.WithTimeout(context.Background(), m.upTo(150*time.Millisecond))
		d, err = m.gate.Do(ctx, m.key, cmd)
		cancel()
	default:
		d, err = m.submit(t, cmd)
	}
	m.mu.Lock()
	if err != nil {
		m.failed++
	}
	m.mu.Unlock()
	if err != nil || d.Outcome != gatehouse.Granted {
		return
	}
	inside := m.inside.Add(1)
	m.mu.Lock()
	m.told++
	m.most = max(m.most, inside)
	m.mu.Unlock()
	time.Sleep(m.upTo(50 * time.Millisecond))
	m.inside.Add(-1)
	if m.draw(2) == 0 {
		_, _ = m.gate.Do(context.Background(), m.key, release(holder))
		return
	}
	_, _ = together(m.gate, m.key, release(holder), gatehouse.Command{Op: gatehouse.OpStats})
}

// submit submits a command, and cancels it after a random while or waits for the answer.
func (m *mob) submit(t *testing.T, cmd gatehouse.Command) (gatehouse.Decision, error) {
	t.Helper()
	answers := make(chan struct{}, 2)
	r := &gate.Request{Key: m.key, Command: cmd, Decided: func(*gate.Request) { answers <- struct{}{} }}
	quickly(t, "Submit", func() { m.gate.Submit(r) })
	givesUp := m.draw(2) == 0
	if givesUp { // whatever it has been told meanwhile
		time.Sleep(m.upTo(200 * time.Millisecond))
		quickly(t, "Cancel", func() { m.gate.Cancel(r) })
	}
	<-answers
	d, err := *r.Decision, r.Err
	time.Sleep(time.Second)
	if len(answers) > 0 {
		t.Error("it was answered twice")
	}
	if givesUp {
		return gatehouse.Decision{}, nil
	}
	return d, err
}

// Whatever a slow store does, no more are told that they have a slot than there are, everybody is answered,
// and nothing is left in the end.
func TestMobAtASlowStore(t *testing.T) {
	told, failed := 0, 0
	for seed := range uint64(sampled(60)) {
		failing := int(seed%3) * 4
		synctest.Test(t, func(t *testing.T) {
			m := newMob(seed, failing)
			var all sync.WaitGroup
			for caller := range 12 {
				all.Go(func() {
					for round := range 20 {
						time.Sleep(m.upTo(40 * time.Millisecond))
						m.visit(t, fmt.Sprint(caller, "/", round))
					}
				})
			}
			done := make(chan struct{})
			go func() { all.Wait(); close(done) }()
			for over := false; !over; {
				time.Sleep(m.upTo(100*time.Millisecond) + 1)
				m.store.wake()
				select {
				case <-done:
					over = true
				default:
				}
			}
			if m.most > m.size {
				t.Errorf("seed %d: %d held at once, want at most %d", seed, m.most, m.size)
			}
			told, failed = told+m.told, failed+m.failed
			if failing > 0 { // what the store has not told us of ends by itself
				time.Sleep(10 * time.Second)
			}
			m.store.left(t, m.gate, m.key)
		})
	}
	if told < sampled(1000) || failed < sampled(100) {
		t.Errorf("%d were granted and %d failed: the test did not test what it should", told, failed)
	}
}
