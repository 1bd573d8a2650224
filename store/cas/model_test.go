package cas_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// How long a model's clients work while things go wrong, and after that.
const (
	trouble = 15 * time.Second
	peace   = 5 * time.Second
)

// slots is the size of the semaphores of a model.
const slots = 3

// A model is some servers with clients, a store in which much goes wrong, and what must hold even so.
type model struct {
	seed    uint64
	store   *castest.Store
	servers []*cas.Store
	gates   []*gate.Gate
	lossy   bool // the store may lose what it has been given

	mu      sync.Mutex
	wrong   []string
	fences  map[gatehouse.Key]uint64 // the greatest under each name
	held    map[gatehouse.Key]int64  // by clients that know it
	counted map[string]*tally
	granted map[gatehouse.Key][]time.Time // of limiters
	served  int                           // calls that were decided since the trouble is over
	calm    bool
	over    atomic.Bool
}

// A tally is what is known of a counter.
type tally struct{ known, unknown int64 }

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

func (m *model) fault(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complain(format, args...)
}

func (m *model) complain(format string, args ...any) {
	if len(m.wrong) < 5 {
		m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	}
}

// changed looks at each new record.
func (m *model) changed(key gatehouse.Key, data []byte) {
	if data == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := cas.ReadRecord(key.Kind, data, time.Time{})
	if err != nil {
		m.complain("%s: %v", key, err)
		return
	}
	semaphore, ok := c.State.(*control.Semaphore)
	if !ok {
		return
	}
	size := int64(slots)
	if key.Kind == gatehouse.Lock {
		size = 1
	}
	held, last := int64(0), m.fences[key]
	for _, h := range semaphore.Holds() {
		if !h.Until.IsZero() && h.Until.UnixNano() <= c.AsOf {
			continue
		}
		held += h.Cost
		m.fences[key] = max(m.fences[key], h.Fence)
	}
	if held > size {
		m.complain("%s: %d held of %d", key, held, size)
	}
	if now := m.fences[key]; now < last {
		m.complain("%s: fencing token %d after %d", key, now, last)
	}
}

// took notes what a client holds now, or no more.
func (m *model) took(key gatehouse.Key, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := int64(slots)
	if key.Kind == gatehouse.Lock {
		size = 1
	}
	if m.held[key] += n; m.held[key] > size && !m.lossy {
		m.complain("%s: clients hold %d of %d", key, m.held[key], size)
	}
}

// haunt makes things go wrong.
func (m *model) haunt(rng *rand.Rand, backends []*castest.Server) {
	chance := func() float64 { return rng.Float64() * rng.Float64() * 0.3 }
	for end := time.Now().Add(trouble); time.Now().Before(end); {
		m.store.Set(castest.Faults{
			Latency: time.Duration(rng.Int64N(int64(60 * time.Millisecond))), Unsent: chance(),
			LostRequest: chance(), LostAnswer: chance(), Late: chance(), Silent: 0.5, Twice: chance(),
			LostWake: chance() * 3, TwiceWoken: chance(),
		})
		pass(time.Duration(rng.Int64N(int64(2 * time.Second))))
		switch what := rng.IntN(8); {
		case what == 0:
			m.store.Pause()
			pass(time.Duration(rng.Int64N(int64(2 * time.Second))))
			m.store.Resume()
		case what == 1:
			b := backends[rng.IntN(len(backends))]
			b.Cut(true)
			pass(time.Duration(rng.Int64N(int64(5 * time.Second))))
			b.Cut(false)
		case what == 2:
			m.store.Jump(time.Duration(rng.Int64N(int64(2*time.Second))) - 1500*time.Millisecond)
		case what == 3:
			m.store.Restart(0) // all connections break
		case what == 4 && m.lossy:
			m.store.Restart(time.Duration(rng.Int64N(int64(time.Second))))
		case what == 5 && m.lossy && rng.IntN(3) == 0:
			m.store.Restart(gatehouse.Forever)
		case what == 6 && m.lossy:
			m.store.Jump(time.Duration(rng.Int64N(int64(2*time.Minute))) - time.Minute)
		}
	}
	m.store.Set(castest.Faults{Latency: time.Millisecond})
}

// runModel plays one seed.
func runModel(t *testing.T, seed uint64, leases, lossy bool) *model {
	t.Helper()
	m := &model{
		seed: seed, lossy: lossy, fences: map[gatehouse.Key]uint64{}, held: map[gatehouse.Key]int64{},
		counted: map[string]*tally{}, granted: map[gatehouse.Key][]time.Time{},
	}
	synctest.Test(t, func(*testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m.store = castest.New(seed, leases)
		m.store.Changed = m.changed
		var backends []*castest.Server
		for i := range 1 + rng.IntN(3) {
			b := m.store.Server(time.Duration(rng.Int64N(int64(40 * time.Millisecond))))
			s := cas.New(b, cas.Config{Server: uint32(i + 1), Names: 1 + rng.IntN(300)})
			backends, m.servers = append(backends, b), append(m.servers, s)
			m.gates = append(m.gates, gate.New(s, gate.Config{FirstTicket: cas.FirstTicket(uint32(i + 1))}))
		}
		var clients sync.WaitGroup
		for i := range 2 + rng.IntN(8) {
			c := &client{model: m, id: fmt.Sprint("c", i), rand: rand.New(rand.NewPCG(seed, uint64(i+10)))}
			clients.Go(func() {
				for !m.over.Load() {
					c.step()
				}
			})
		}
		m.haunt(rng, backends)
		pass(time.Second)
		m.mu.Lock()
		m.calm = true
		m.mu.Unlock()
		pass(peace)
		m.over.Store(true)
		clients.Wait()
		m.end()
	})
	return m
}

// end looks at what is left when all is over.
func (m *model) end() {
	if m.served == 0 {
		m.fault("nothing was decided after the trouble was over")
	}
	pass(20 * time.Second)
	for i, s := range m.servers {
		if n := s.PendingUndos(); n > 0 {
			m.fault("server %d: %d undos are owed", i, n)
		}
		if n := m.gates[i].Waiting(); n > 0 {
			m.fault("server %d: %d wait", i, n)
		}
	}
	m.left()
	for i, g := range m.gates {
		g.Close()
		if err := g.Drain(context.Background()); err != nil {
			m.fault("drain: %v", err)
		}
		m.servers[i].Close()
	}
	if !m.lossy {
		m.limits()
	}
}

// left looks at what is left in the store.
func (m *model) left() {
	for _, key := range []gatehouse.Key{
		named(gatehouse.Lock, "lock"), named(gatehouse.Semaphore, "semaphore"),
		named(gatehouse.Semaphore, "other"), named(gatehouse.Counter, "counter"),
		named(gatehouse.Barrier, "barrier"),
	} {
		d, err := m.gates[0].Do(context.Background(), key, gatehouse.Command{Op: gatehouse.OpStats})
		if err != nil {
			m.fault("%s: %v", key, err)
			continue
		}
		if d.Outcome != gatehouse.Granted {
			continue
		}
		switch key.Kind {
		case gatehouse.Barrier:
			if d.Limit != d.Remaining && d.Remaining > 0 {
				m.fault("%s: %d arrivals are left", key, d.Limit-d.Remaining)
			}
		case gatehouse.Counter:
			if t := m.counted[key.Name]; t != nil && !m.lossy &&
				(d.Value < t.known || d.Value > t.known+t.unknown) {
				m.fault("%s: stands at %d, want %d to %d", key, d.Value, t.known, t.known+t.unknown)
			}
		default:
			if d.Remaining != d.Limit && !m.lossy {
				m.fault("%s: %d of %d are still held", key, d.Limit-d.Remaining, d.Limit)
			}
		}
	}
	for key, data := range m.store.Records() {
		if c, err := cas.ReadRecord(key.Kind, data, m.store.Now()); err != nil || c.Heads > 0 {
			m.fault("%s: %d heads are left: %v", key, c.Heads, err)
		}
	}
}

// limits looks whether a limiter let too many through in a window of its own time.
func (m *model) limits() {
	for key, at := range m.granted {
		in := map[int64]int{}
		for _, a := range at {
			in[a.UnixNano()/int64(500*time.Millisecond)]++
		}
		for _, n := range in {
			if n > slots {
				m.fault("%s: %d in one window, want at most %d", key, n, slots)
			}
		}
	}
}

// seeds is how many seeds are played of each model: 15, with -short 5, or what SEEDS says.
func seeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEEDS")
	if text == "" && testing.Short() {
		return 5
	}
	if text == "" {
		return 15
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEEDS: %v", err)
	}
	return n
}

// A seed is nearly the whole story: go test ./store/cas -run 'TestModel/etcd/seed=17$'. What happens at one
// instant does so in any order, and nonces are random: it may take some tries.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		name          string
		leases, lossy bool
	}{
		{"redis", false, false}, {"etcd", true, false}, {"redis that loses data", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range seeds(t) {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					m := runModel(t, seed, c.leases, c.lossy)
					for _, wrong := range m.wrong {
						t.Error(wrong)
					}
					if t.Failed() {
						t.Log(m.store.Log())
					}
				})
			}
		})
	}
}
