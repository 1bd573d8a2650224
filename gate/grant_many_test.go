package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// countingStore counts the joint changes.
type countingStore struct {
	*memory.Store
	joint atomic.Int64
}

func (s *countingStore) ApplyJoint(c *control.JointChange) {
	s.joint.Add(1)
	s.Store.ApplyJoint(c)
}

// manyGrants are many grants that wait for the same names, which another one has.
type manyGrants struct {
	gate    *gate.Gate
	store   *countingStore
	cancels []func()
	left    atomic.Int64  // that were not answered yet
	next    chan int      // those that were granted
	gone    chan struct{} // closed when all were answered
}

// newManyGrants has n grants of so many names wait.
func newManyGrants(tb testing.TB, n, names int) *manyGrants {
	tb.Helper()
	store := &countingStore{Store: memory.New(memory.Config{})}
	c := &manyGrants{
		gate: gate.New(store, gate.Config{}), store: store,
		next: make(chan int, n), gone: make(chan struct{}),
	}
	var want []string
	for i := range names {
		want = append(want, fmt.Sprint("s", i))
	}
	d, err := c.gate.DoGrant(context.Background(), wants("first", want...))
	if err != nil || d.Outcome != gatehouse.Granted {
		tb.Fatal(d, err)
	}
	c.left.Store(int64(n))
	for i := range n {
		c.cancels = append(c.cancels, submitGrant(c.gate, wants(fmt.Sprint(i), want...),
			func(d gatehouse.Decision, err error) {
				if c.left.Add(-1) == 0 {
					close(c.gone)
				}
				if err == nil && d.Outcome == gatehouse.Granted {
					c.next <- i
				}
			}))
	}
	if got := c.gate.Waiting(); got != n {
		tb.Fatalf("%d wait, want %d", got, n)
	}
	c.store.joint.Store(0)
	return c
}

// However many grants wait for the same names, what becomes of one costs a few looks.
func TestManyGrantsOfTheSameNames(t *testing.T) {
	const n, names = 500, 16
	in := make([]int, n)
	for i := range in {
		in[i] = i
	}
	hangUp := func(order []int) func(*manyGrants) {
		return func(c *manyGrants) {
			for _, i := range order {
				c.cancels[i]()
			}
		}
	}
	back := slices.Clone(in)
	slices.Reverse(back)
	for _, one := range []struct {
		name string
		do   func(c *manyGrants)
		most int64 // looks and undos for each
	}{
		{"hang up", hangUp(in), 2},
		{"the last first", hangUp(back), 2},
		{"in any order", hangUp(rand.New(rand.NewPCG(1, 2)).Perm(n)), 2},
		{"stop", func(c *manyGrants) { c.gate.Close(); <-c.gone }, 2},
		{"one after the other", func(c *manyGrants) {
			last := "first"
			for want := range n {
				mustGrant(t, c.gate, ends(last))
				if got := <-c.next; got != want {
					t.Fatalf("%d was granted, want %d", got, want)
				}
				last = fmt.Sprint(want)
			}
		}, 4},
	} {
		c := newManyGrants(t, n, names)
		one.do(c)
		if left, looks := c.left.Load(), c.store.joint.Load(); left > 0 || looks > one.most*n+8 {
			t.Errorf("%s: %d changes for %d grants, and %d wait still, want at most %d for each", one.name,
				looks, n, left, one.most)
		}
		c.gate.Close()
	}
}

// Many grants leave, while other names are asked for.
func BenchmarkManyGrants(b *testing.B) {
	for _, c := range []struct{ n, names int }{{1000, 16}, {3000, 16}, {20_000, 2}} {
		b.Run(fmt.Sprintf("hang up %d of %d names", c.n, c.names), func(b *testing.B) {
			longest := time.Duration(0)
			for range b.N {
				b.StopTimer()
				many := newManyGrants(b, c.n, c.names)
				b.StartTimer()
				done := make(chan struct{})
				go func() { // ends when all have left
					defer close(done)
					for _, cancel := range many.cancels {
						cancel()
					}
				}()
				for i := 0; many.left.Load() > 0; i++ {
					begin := time.Now()
					cmd := wants("", "other", "another")
					cmd.ID, cmd.MaxWait, cmd.Expires = fmt.Sprint("other", i), 0, time.Millisecond
					if _, err := many.gate.DoGrant(context.Background(), cmd); err != nil {
						b.Fatal(err)
					}
					longest = max(longest, time.Since(begin))
				}
				<-done
			}
			b.ReportMetric(float64(longest)/float64(time.Millisecond), "ms-longest-other")
		})
		b.Run(fmt.Sprintf("close %d of %d names", c.n, c.names), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				many := newManyGrants(b, c.n, c.names)
				b.StartTimer()
				many.gate.Close()
				<-many.gone // the last are answered by another goroutine
			}
		})
	}
}
