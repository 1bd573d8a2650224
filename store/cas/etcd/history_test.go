//go:build linux || darwin

package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/storetest"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// calls is how many the history has: few, unless the environment says otherwise, as make linearizable does.
func calls(t *testing.T) int {
	t.Helper()
	text := os.Getenv("OPERATIONS")
	if text == "" && testing.Short() {
		return 1000
	}
	if text == "" {
		return 2000
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("OPERATIONS is %q, want a number", text)
	}
	return number
}

// Whatever happens to etcd and to the network, there is an order of all calls that explains every answer.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	w := newWorkload(t, cluster, 3)
	faults := w.faults(t)
	w.run(t, calls(t))
	close(faults.stop)
	faults.done.Wait()
	began := time.Now()
	if err := w.history.Check(time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls, of which %d failed, in %v under %d faults, checked in %v",
		w.history.Len(), w.failed.Load(), w.took, faults.number, time.Since(began))
	if failed := w.failed.Load(); failed > int64(w.history.Len())/2 {
		t.Errorf("%d of %d calls failed, want most to work", failed, w.history.Len())
	}
}

// The same for grants over several names.
func TestLinearizableGrants(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	w := &workload{cluster: cluster}
	n := calls(t) * 2
	if os.Getenv("OPERATIONS") == "" {
		n = calls(t) * 3 / 20 // a hung link alone costs a second
	}
	w.left.Store(int64(n))
	faults := w.faults(t)
	began, places := time.Now(), 0
	storetest.GrantHistories(t, storetest.Setup{
		Start: func(storetest.T) storetest.Place {
			places++
			return &workPlace{place{t, cluster, fmt.Sprintf("/grants%d", places)}, w}
		},
		Servers: 3, Leases: true, Calling: func() { w.left.Add(-1) },
	}, n)
	close(faults.stop)
	faults.done.Wait()
	t.Logf("in %v under %d faults", time.Since(began), faults.number)
}

// A workPlace is a place whose links are those of a workload.
type workPlace struct {
	place
	*workload
}

// Open implements storetest.Place.
func (p *workPlace) Open() storetest.Server {
	link := etcdtest.NewLink(p.t, p.place.cluster)
	p.addLink(link)
	return p.openBehind(link, time.Second)
}

// A workload is callers at several servers, each of which has a link of its own to etcd.
type workload struct {
	cluster *etcdtest.Cluster
	servers []*server
	mu      sync.Mutex
	links   []*etcdtest.Link
	history oracle.History
	left    atomic.Int64
	failed  atomic.Int64
	took    time.Duration
}

func newWorkload(tb testing.TB, cluster *etcdtest.Cluster, servers int) *workload {
	tb.Helper()
	w := &workload{cluster: cluster}
	for range servers {
		link := etcdtest.NewLink(tb, cluster)
		w.addLink(link)
		w.servers = append(w.servers, serve(tb, link.URL("")))
	}
	return w
}

func (w *workload) addLink(link *etcdtest.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links = append(w.links, link)
	w.links = w.links[max(0, len(w.links)-3):] // those before are closed
}

// callers is how many call each server at once.
const callers = 6

// run makes so many calls. Each name is used for a while, by all callers, so that no history under one name
// becomes too long to be checked.
func (w *workload) run(tb testing.TB, calls int) {
	tb.Helper()
	began := time.Now()
	w.left.Store(int64(calls))
	var work sync.WaitGroup
	for i, s := range w.servers {
		for n := range callers {
			c := &caller{workload: w, server: s, name: fmt.Sprintf("%d-%d", i, n)}
			work.Go(func() {
				for w.left.Add(-1) >= 0 {
					c.call(tb.Context(), int(w.left.Load())/400)
				}
			})
		}
	}
	work.Wait()
	w.took = time.Since(began)
}

// A caller makes one call after the other, and releases what it holds in between.
type caller struct {
	*workload
	server *server
	name   string
	calls  int
	held   []held
}

// A held is what is held, or may be.
type held struct {
	key   gatehouse.Key
	cmd   gatehouse.Command // of its acquire
	fence uint64            // 0 when it is not known
}

func (c *caller) call(ctx context.Context, round int) {
	c.calls++
	if len(c.held) > 0 && (len(c.held) > 2 || rand.IntN(2) == 0) {
		c.goOn(ctx)
		return
	}
	name := fmt.Sprintf("%d/%d", round, rand.IntN(3))
	switch rand.IntN(6) {
	case 0, 1:
		c.take(ctx, gatehouse.Key{Kind: gatehouse.Lock, Name: name}, 1)
	case 2:
		c.take(ctx, gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}, 3)
	case 3:
		op := gatehouse.OpCount
		if rand.IntN(3) == 0 {
			op = gatehouse.OpValue
		}
		cmd := gatehouse.Command{Op: op, Amount: rand.Int64N(100)}
		_, _ = c.do(ctx, gatehouse.Key{Kind: gatehouse.Counter, Name: name}, cmd)
	case 4:
		cmd := gatehouse.Command{Op: gatehouse.OpSend, Message: fmt.Sprint(c.name, c.calls)}
		if rand.IntN(4) > 0 {
			cmd = gatehouse.Command{Op: gatehouse.OpWait}
		}
		_, _ = c.do(ctx, gatehouse.Key{Kind: gatehouse.Event, Name: name}, cmd)
	default:
		c.wait(ctx, gatehouse.Key{Kind: gatehouse.Lock, Name: name + "/waited"})
	}
}

// take acquires without waiting, under a name of its own.
func (c *caller) take(ctx context.Context, key gatehouse.Key, size int64) {
	cmd := acquire(fmt.Sprintf("%s/%d", c.name, c.calls))
	cmd.Size, cmd.Expires = size, time.Hour
	if rand.IntN(2) == 0 {
		cmd.Expires = 0
	}
	if d, err := c.do(ctx, key, cmd); err != nil || d.Outcome == gatehouse.Granted {
		c.held = append(c.held, held{key, cmd, d.Fence})
	}
}

// goOn releases what is held, or may be, renews it or acquires it again.
func (c *caller) goOn(ctx context.Context) {
	one := c.held[0]
	c.held = c.held[1:]
	cmd := gatehouse.Command{Op: gatehouse.OpRelease, Holder: one.cmd.Holder}
	switch rand.IntN(4) {
	case 0:
		cmd.Op, cmd.Expires = gatehouse.OpRenew, gatehouse.AsAcquired
	case 1:
		cmd = one.cmd
	}
	if cmd.Op != gatehouse.OpAcquire && rand.IntN(2) == 0 {
		cmd.Fence = one.fence
	}
	d, err := c.do(ctx, one.key, cmd)
	switch {
	case err == nil && (cmd.Op == gatehouse.OpRelease || d.Outcome != gatehouse.Granted):
		return
	case err == nil:
		one.fence = d.Fence
	}
	c.held = append(c.held, one)
}

// wait acquires, waiting a little, and releases at once.
func (c *caller) wait(ctx context.Context, key gatehouse.Key) {
	cmd := acquire(fmt.Sprintf("%s/%d", c.name, c.calls))
	cmd.MaxWait, cmd.Expires = 100*time.Millisecond, time.Hour
	if d, err := c.do(ctx, key, cmd); err == nil && d.Outcome == gatehouse.Granted {
		_, _ = c.do(ctx, key, release(cmd.Holder))
	}
}

func (c *caller) do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	d, err := c.history.Do(ctx, c.server, key, cmd)
	if err != nil {
		c.failed.Add(1)
	}
	return d, err
}

// A faulty is what goes wrong while a workload runs.
type faulty struct {
	stop   chan struct{}
	done   sync.WaitGroup
	number int
}

// faults makes things go wrong, one after the other, until it is stopped: the leader or another member is
// killed or paused and comes back, a server's link hangs, loses answers or breaks.
func (w *workload) faults(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{stop: make(chan struct{})}
	stopped := func() bool {
		select {
		case <-f.stop:
			return true
		default:
			return false
		}
	}
	faults := []func() (mend func()){
		func() func() {
			member := w.cluster.Leader(t)
			w.cluster.Kill(member)
			return func() { w.cluster.Restart(t, member) }
		},
		func() func() { return w.onLink((*etcdtest.Link).LoseAnswers) },
		func() func() {
			member := w.cluster.Leader(t)
			w.cluster.Pause(member)
			return func() { w.cluster.Resume(member) }
		},
		func() func() { return w.onLink((*etcdtest.Link).Hang) },
		func() func() {
			member := (w.cluster.Leader(t) + 1) % 3
			w.cluster.Kill(member)
			return func() { w.cluster.Restart(t, member) }
		},
		func() func() { return w.onLink((*etcdtest.Link).Mend) },
	}
	// Calls end in a fault, too: those that are not answered fail when their time is over.
	calls := func(n int64) (goesOn bool) {
		end := w.left.Load() - n
		await.True(t, "calls are made", func() bool { return w.left.Load() < end || stopped() })
		return !stopped()
	}
	f.done.Go(func() {
		for calls(50) {
			mend := faults[f.number%len(faults)]()
			f.number++
			calls(20)
			mend()
			w.cluster.Healthy(t)
		}
	})
	return f
}

// onLink does something to the link of some server.
func (w *workload) onLink(fault func(*etcdtest.Link)) (mend func()) {
	w.mu.Lock()
	link := w.links[rand.IntN(len(w.links))]
	w.mu.Unlock()
	fault(link)
	return link.Mend
}
