package slidingwindow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// tests are those of this package.
type tests struct{ *testing.M }

// Run runs them. They fail if a window was left that nobody has stopped.
func (t tests) Run() int {
	code := t.M.Run()
	if left := sw.Left(); left != "" {
		fmt.Println(left)
		return 1
	}
	return code
}

var errBroken = errors.New("the store is broken")

// epoch is a whole minute, at which windows of all sizes used here begin.
func epoch() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// at is so many seconds after the epoch.
func at(seconds float64) time.Time {
	return epoch().Add(time.Duration(seconds*1e9 + 0.5))
}

// A name is what a store calls a count.
type name struct {
	key   string
	start int64
}

// A plainStore is a Datastore in memory, with the two methods that are asked for.
type plainStore struct {
	mu     sync.Mutex
	counts map[name]int64
	calls  []string      // "Add 2", "Get"; those for a window before the epoch have "before: " in front
	asked  int           // how often it was asked, by a call or a round trip
	err    error         // that every call returns
	lose   bool          // what Add adds is added, and the answer lost
	pass   func()        // what every call takes, in virtual time
	held   chan struct{} // calls wait until it is closed
}

// newPlainStore returns a store that is empty, and panics outside a bubble. All windows with a store have one
// courier, and what that begins must end in the bubble it began in: a goroutine that was left outside would
// take on what is to be done in a bubble, which is fatal.
func newPlainStore() *plainStore {
	synctest.Wait()
	return &plainStore{counts: map[name]int64{}}
}

func (s *plainStore) Add(key string, start, delta int64) (int64, error) {
	return s.call(fmt.Sprintf("Add %d", delta), name{key, start}, delta)
}

func (s *plainStore) Get(key string, start int64) (int64, error) {
	return s.call("Get", name{key, start}, 0)
}

func (s *plainStore) call(what string, n name, delta int64) (int64, error) {
	if err := s.wait(context.Background()); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.start < epoch().UnixNano() {
		what = "before: " + what
	}
	s.calls = append(s.calls, what)
	if s.err != nil {
		return 0, s.err
	}
	s.counts[n] += delta
	if s.lose && delta != 0 {
		s.lose = false
		return 0, errBroken
	}
	return s.counts[n], nil
}

// slow makes every call take so long, in virtual time.
func (s *plainStore) slow(d time.Duration) { s.pass = func() { <-time.After(d) } }

// wait takes as long as a call is to take, or until ctx ends.
func (s *plainStore) wait(ctx context.Context) error {
	s.mu.Lock()
	s.asked++
	pass, held := s.pass, s.held
	s.mu.Unlock()
	if pass != nil {
		pass()
	}
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes how the store behaves.
func (s *plainStore) change(how func(s *plainStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(s)
}

// count is the count of the window that begins so many seconds after the epoch.
func (s *plainStore) count(key string, seconds float64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[name{key, at(seconds).UnixNano()}]
}

// takeCalls returns the calls so far, without those for windows before the epoch, and forgets them.
func (s *plainStore) takeCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := slices.DeleteFunc(s.calls, func(call string) bool { return call[0] == 'b' })
	s.calls = nil
	return calls
}

// A batchStore is an Exchanger in memory, which remembers the sums of all sources.
type batchStore struct {
	*plainStore
	sums  map[source]int64
	trips []int // how many pushes each round trip had
}

type source struct {
	name
	source uint64
}

func newBatchStore() *batchStore {
	return &batchStore{plainStore: newPlainStore(), sums: map[source]int64{}}
}

func (s *batchStore) Exchange(ctx context.Context, pushes []sw.Push) {
	if err := s.wait(ctx); err != nil {
		for i := range pushes {
			pushes[i].Err = err
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trips = append(s.trips, len(pushes))
	lost := s.lose
	s.lose = false
	for i := range pushes {
		p := &pushes[i]
		if p.Err = s.err; p.Err == nil {
			p.Total = s.push(p)
		}
		if lost {
			p.Total, p.Err = 0, errBroken
		}
	}
}

func (s *batchStore) push(p *sw.Push) int64 {
	n := name{p.Key, p.Start}
	if p.Delta == 0 {
		return s.counts[n]
	}
	if _, ok := s.counts[n]; !ok { // it was lost, or never there
		maps.DeleteFunc(s.sums, func(of source, _ int64) bool { return of.name == n })
	}
	from := source{n, p.Source}
	s.counts[n] += p.Sum - s.sums[from]
	s.sums[from] = p.Sum
	return s.counts[n]
}

// A mode is one of the ways to share counts.
type mode struct {
	name     string
	blocking bool
	batch    bool
}

var modes = []mode{
	{"blocking", true, false},
	{"blocking batch", true, true},
	{"nonblocking", false, false},
	{"nonblocking batch", false, true},
}

// store returns a new store of the mode, twice: as what limiters use, and as what a test looks into.
func (m mode) store() (sw.Datastore, *plainStore) {
	if m.batch {
		s := newBatchStore()
		return s, s.plainStore
	}
	s := newPlainStore()
	return s, s
}

func (m mode) synchronizer(store sw.Datastore, interval time.Duration) sw.Synchronizer {
	if m.blocking {
		return sw.NewBlockingSynchronizer(store, interval)
	}
	return sw.NewNonblockingSynchronizer(store, interval)
}

// limiter returns a limiter of key "test" that ends with the test.
func (m mode) limiter(t *testing.T, l limits, store sw.Datastore) *sw.Limiter {
	t.Helper()
	return newLimiter(t, l, func() (sw.Window, sw.StopFunc) {
		return sw.NewSyncWindow("test", m.synchronizer(store, l.interval))
	})
}

// limits are what a limiter is made with.
type limits struct {
	size     time.Duration
	limit    int64
	interval time.Duration
}

func tenPerSecond() limits { return limits{time.Second, 10, 200 * time.Millisecond} }

// newLimiter returns a limiter that is stopped with the test.
func newLimiter(t *testing.T, l limits, newWindow sw.NewWindow) *sw.Limiter {
	t.Helper()
	limiter, stop := sw.NewLimiter(l.size, l.limit, newWindow)
	t.Cleanup(stop)
	return limiter
}

func localWindow() (sw.Window, sw.StopFunc) { return sw.NewLocalWindow() }

// local returns a limiter that shares nothing.
func local(t *testing.T, size time.Duration, limit int64) *sw.Limiter {
	t.Helper()
	return newLimiter(t, limits{size: size, limit: limit}, localWindow)
}

// allows fails the test when n do not pass so many seconds after the epoch.
func allows(t *testing.T, l *sw.Limiter, seconds float64, n int64) {
	t.Helper()
	if !l.AllowN(at(seconds), n) {
		t.Errorf("AllowN(%.9gs, %d) = false, want true", seconds, n)
	}
}

// denies fails the test when n pass so many seconds after the epoch.
func denies(t *testing.T, l *sw.Limiter, seconds float64, n int64) {
	t.Helper()
	if l.AllowN(at(seconds), n) {
		t.Errorf("AllowN(%.9gs, %d) = true, want false", seconds, n)
	}
}

// decisions are allows and denies by the answer that is wanted.
var decisions = map[bool]func(t *testing.T, l *sw.Limiter, seconds float64, n int64){
	true: allows, false: denies,
}

// passed is how many of so many single events pass at one time.
func passed(l *sw.Limiter, seconds float64, events int) (n int) {
	for range events {
		if l.AllowN(at(seconds), 1) {
			n++
		}
	}
	return n
}
