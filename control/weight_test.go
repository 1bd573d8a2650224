package control

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// stepped is a state after some commands at one instant.
func stepped(kind gatehouse.Kind, cmds ...gatehouse.Command) State {
	s := New(kind)
	for i := range cmds {
		s.Step(epoch(), &Turn{Command: &cmds[i]})
	}
	return s
}

// inMinute is an acquire from nine in a minute, and inHours one about eight limits.
func inMinute(mode gatehouse.Mode) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1,
		Rule: gatehouse.Rule{Size: 9, Burst: 8, Interval: time.Minute, Mode: mode},
	}
}

func inHours(op gatehouse.Op) gatehouse.Command {
	cmd := gatehouse.Command{Op: op, Cost: 1, Rule: gatehouse.Rule{Mode: gatehouse.ModeFine}}
	var limits []gatehouse.Limit
	for i := range gatehouse.MaxLimits {
		window := time.Hour + time.Duration(i)*time.Hour
		limits = append(limits, gatehouse.Limit{Size: 30_000, Interval: window})
	}
	cmd.Limits = gatehouse.NewLimitList(limits...)
	return cmd
}

// weighty are states of each kind, small and large.
func weighty() map[string]func(i int) State {
	all := map[string]func(int) State{
		"event": func(int) State {
			return stepped(gatehouse.Event, gatehouse.Command{Op: gatehouse.OpWait})
		},
		"event message": func(int) State {
			message := strings.Repeat("x", 4000)
			return stepped(gatehouse.Event, gatehouse.Command{Op: gatehouse.OpSend, Message: message})
		},
		"watchdog": func(int) State {
			return stepped(gatehouse.Watchdog, gatehouse.Command{Op: gatehouse.OpKick})
		},
		"counter": func(int) State {
			return stepped(gatehouse.Counter, gatehouse.Command{Op: gatehouse.OpCount})
		},
		"fine used twice": func(int) State {
			return twice(inMinute(gatehouse.ModeFine))
		},
		"fine of eight": func(int) State {
			return stepped(gatehouse.SlidingWindow, inHours(gatehouse.OpAcquire))
		},
		"fine of eight used twice": func(int) State { return twice(inHours(gatehouse.OpAcquire)) },
		"fine of eight reserved": func(i int) State {
			one, two := inHours(gatehouse.OpAcquire), inHours(gatehouse.OpReserve)
			one.Cost, two.Holder = 30_000, strings.Repeat("k", 500)+fmt.Sprint(i)
			return stepped(gatehouse.SlidingWindow, one, two)
		},
		"gcra paused": func(int) State {
			return stepped(gatehouse.GCRA, inMinute(0),
				feedback(gatehouse.Feedback{Status: 429}))
		},
		"fine of eight reported": func(int) State {
			cmds := []gatehouse.Command{inHours(gatehouse.OpAcquire)}
			for i := range gatehouse.MaxLimits {
				cmds = append(cmds, feedback(gatehouse.Feedback{
					Status: 503, RetryAfter: time.Hour, Remaining: 9, Reset: time.Duration(i+1) * time.Hour,
				}))
			}
			return stepped(gatehouse.SlidingWindow, cmds...)
		},
		"gcra refunded": func(int) State {
			return stepped(gatehouse.GCRA, inMinute(0),
				gatehouse.Command{Op: gatehouse.OpRefund, Cost: 1})
		},
		"calendar": func(int) State {
			return stepped(gatehouse.TokenBucket, gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1, Calendar: gatehouse.Day}, Cost: 1,
			})
		},
	}
	for _, n := range []int{1, 100} {
		all[fmt.Sprintf("bucket with %d grants", n)] = func(int) State { return lentTo(n) }
	}
	all["grant of 16"] = func(i int) State {
		h, cmd := newHouse(), acquireOf(fmt.Sprint(i))
		for j := range gatehouse.MaxMembers {
			cmd.Want = append(cmd.Want, ofLock(fmt.Sprintf("%020d", i*gatehouse.MaxMembers+j)))
		}
		cmd.ID, cmd.Expires = "x", time.Minute
		h.parts.Acquire(&cmd)
		h.serve()
		return h.states[keyOf(gatehouse.Grant, "x")]
	}
	addVarieties(all)
	return all
}

// addVarieties adds states of each kind of limiter, and of few and many.
func addVarieties(all map[string]func(i int) State) {
	for _, v := range varieties() {
		all[v.String()] = func(int) State { return stepped(v.kind, inMinute(v.mode)) }
	}
	for _, n := range []int{1, 100, 3000} {
		all[fmt.Sprintf("log of %d", n)] = func(int) State { return logOf(n) }
		all[fmt.Sprintf("log of %d drained", n)] = func(int) State { return drained(n) }
		for _, key := range []int{10, 500} {
			name := fmt.Sprintf("semaphore of %d with keys of %d", n, key)
			all[name] = func(i int) State { return heldBy(n, fmt.Sprintf("%0*d", key-4, i)) }
		}
		all[fmt.Sprintf("semaphore of %d with owners", n)] = func(int) State { return ownedBy(n) }
		all[fmt.Sprintf("semaphore of %d released", n)] = func(int) State { return released(n) }
		all[fmt.Sprintf("barrier of %d", n)] = func(int) State { return awaitedBy(n) }
	}
}

// twice is a fine window in which something was taken in two parts.
func twice(cmd gatehouse.Command) State {
	s := stepped(gatehouse.SlidingWindow, cmd)
	s.Step(epoch().Add(max(cmd.Interval, time.Hour)/20), &Turn{Command: &cmd})
	return s
}

// lentTo is a bucket with so many grants.
func lentTo(n int) State {
	l := newLessor(gatehouse.TokenBucket)
	for i := range n {
		turn, _ := l.turn(i, gatehouse.OpAcquire, gatehouse.Command{
			Rule: gatehouse.Rule{Size: 1000, Interval: time.Minute}, Cost: 1, Expires: time.Minute,
		})
		l.serve(i, turn)
	}
	return l.state
}

// logOf is a log of so many starts, and drained one of which all but one have passed.
func logOf(n int) State {
	s, cmd := New(gatehouse.SlidingLog), gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 16_000, Interval: time.Hour}, Cost: 1,
	}
	for i := range n {
		s.Step(epoch().Add(time.Duration(i)), &Turn{Command: &cmd})
	}
	return s
}

func drained(n int) State {
	s := logOf(n)
	for i := range n - 1 {
		stats := gatehouse.Command{Op: gatehouse.OpStats}
		s.Step(epoch().Add(time.Hour+time.Duration(i)), &Turn{Command: &stats})
	}
	return s
}

// heldBy is a semaphore with so many holders, whose keys begin alike, and released one without any more.
func heldBy(n int, key string) State {
	s := New(gatehouse.Semaphore)
	for j := range n {
		s.Step(epoch(), &Turn{Command: &gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: int64(n)}, Cost: 1, Expires: time.Hour,
			Holder: fmt.Sprintf("%s%04d", key, j),
		}})
	}
	return s
}

// ownedBy is a semaphore with so many holders, each with an owner.
func ownedBy(n int) State {
	s := New(gatehouse.Semaphore)
	for j := range n {
		s.Step(epoch(), &Turn{Command: &gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: int64(n)}, Cost: 1, Expires: time.Hour,
			Holder: fmt.Sprint(j), Owner: &gatehouse.Owner{
				Name: fmt.Sprint("train-", j), Host: fmt.Sprint("host-", j),
				Purpose: strings.Repeat("p", 200),
			},
		}})
	}
	return s
}

func released(n int) State {
	s := New(gatehouse.Semaphore)
	for _, op := range []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpRelease} {
		for j := range n {
			cmd := gatehouse.Command{
				Op: op, Rule: gatehouse.Rule{Size: int64(n)}, Cost: 1, Holder: fmt.Sprint(j),
			}
			s.Step(epoch(), &Turn{Command: &cmd})
		}
	}
	return s
}

// awaitedBy is a barrier with so many waiters.
func awaitedBy(n int) State {
	s := New(gatehouse.Barrier)
	for j := range n {
		s.Step(epoch(), &Turn{Ticket: Ticket(j + 1), Command: &gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: int64(n) + 1}, MaxWait: -1,
		}})
	}
	return s
}

// heapBytes is how many bytes are in use.
func heapBytes() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestWeights: what states say they weigh is between two thirds of what they take on the heap and one and a
// half times as much.
func TestWeights(t *testing.T) {
	all, bytes := weighty(), 2_000_000
	if testing.Short() {
		bytes /= 4
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		runtime.GC()
		n := max(1, bytes/(all[name](0).Weight()+100))
		if strings.Contains(name, "3000") { // they take time to make
			n = min(n, 100)
		}
		states, weight, before := make([]State, n), 0, heapBytes()
		for i := range states {
			states[i] = all[name](i)
		}
		used := heapBytes() - before
		for _, s := range states {
			weight += s.Weight()
		}
		t.Logf("%-40s %9d bytes by weight, %9d on the heap: %.2f", name, weight/n, used/n,
			float64(weight)/float64(used))
		if 3*weight < 2*used || 2*weight > 3*used {
			t.Errorf("%s weighs %d, and takes %d bytes", name, weight/n, used/n)
		}
	}
}

// TestFineWindowUsedOnce: eight fine windows that are used once take less than 1 KiB with their name.
func TestFineWindowUsedOnce(t *testing.T) {
	used := weighty()["fine of eight"]
	before := heapBytes()
	states := map[string]State{}
	const n = 4000
	for i := range n {
		states[fmt.Sprintf("name-of-a-limiter-%06d", i)] = used(i)
	}
	if each := (heapBytes() - before) / n; each > 1024 {
		t.Errorf("eight fine windows take %d bytes, want at most 1024", each)
	}
	runtime.KeepAlive(states)
}

// TestGrowth: no command makes a state grow by more than was foreseen.
func TestGrowth(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
			now, s := epoch(), New(kind)
			for range 300 {
				now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
				cmd := anyCommand(random, kind)
				grow(t, s, now, &Turn{Command: &cmd, Ticket: Ticket(1 + random.IntN(99))})
			}
			weight := s.Weight()
			read, err := Decode(kind, Encode(nil, s))
			if err != nil || Holders(read) != Holders(s) || read.Weight() > 2*weight+200 {
				t.Fatalf("%s weighs %d, and %d as it is read: %v", kind, weight, read.Weight(), err)
			}
		}
	}
}

// grow applies a command, which must not make the state grow by more than is foreseen.
func grow(t *testing.T, s State, now time.Time, turn *Turn) {
	t.Helper()
	most := 0
	if turn.Op == gatehouse.OpAcquire {
		Expire(now, s) // as checkRoom does
	}
	if g, ok := s.(interface {
		memoryGrowth(time.Time, *Turn) int
	}); ok {
		most = g.memoryGrowth(now, turn)
	}
	before := s.Weight()
	s.Step(now, turn)
	weight := s.Weight()
	if weight-before > most && !givesBack(turn.Command) {
		t.Fatalf("%T: %s makes it grow by %d, want at most %d: %+v", s, turn.Op, weight-before, most,
			turn.Command)
	}
	s.Expiry()
	if s.Weight() != weight {
		t.Fatalf("%T: Expiry changes the weight", s)
	}
}

// givesBack reports whether a command takes nothing, though it may need some bytes for what it gives back.
func givesBack(cmd *gatehouse.Command) bool {
	return cmd.Op != gatehouse.OpAcquire && cmd.Op != gatehouse.OpReserve && cmd.Op != gatehouse.OpSend &&
		cmd.Op != gatehouse.OpFeedback
}

// anyCommand is a command that a kind knows.
func anyCommand(random *rand.Rand, kind gatehouse.Kind) gatehouse.Command {
	cmd := gatehouse.Command{
		Cost: 1 + random.Int64N(2), Rule: gatehouse.Rule{
			Size:     1 + random.Int64N(20),
			Interval: time.Duration(1+random.IntN(3)) * time.Second,
		},
		Holder:  strings.Repeat("k", 1+random.IntN(30)),
		Expires: time.Duration(random.IntN(4)) * time.Second,
		Message: strings.Repeat("m", random.IntN(100)),
		MaxWait: time.Duration(random.IntN(2)) * time.Second,
	}
	switch {
	case kind.Limiter():
		ops := []gatehouse.Op{
			gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpPeek,
			gatehouse.OpDelay, gatehouse.OpCancel, gatehouse.OpRefund, gatehouse.OpReset, gatehouse.OpStats,
			gatehouse.OpFeedback,
		}
		cmd.Op = ops[random.IntN(len(ops))]
		cmd.Feedback = anyFeedback(random)
		cmd.Burst = cmd.Size - 1
		if kind == gatehouse.SlidingWindow {
			cmd.Mode = []gatehouse.Mode{0, gatehouse.ModeFine, gatehouse.ModeStrict}[random.IntN(3)]
		}
		var limits []gatehouse.Limit
		for i := range random.IntN(4) {
			limits = append(limits, gatehouse.Limit{
				Size: 3 + random.Int64N(9), Interval: time.Duration(1+i*2+random.IntN(2)) * time.Second,
			})
		}
		cmd.Limits = gatehouse.NewLimitList(limits...)
	case kind == gatehouse.Semaphore, kind == gatehouse.Lock:
		ops := []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew}
		cmd.Op = ops[random.IntN(len(ops))]
		if random.IntN(2) == 0 {
			cmd.Owner = &gatehouse.Owner{Name: strings.Repeat("o", random.IntN(30)), Host: "h"}
		}
	case kind == gatehouse.Counter:
		cmd.Op = gatehouse.OpCount
	default:
		cmd.Op = gatehouse.OpWait
		if kind == gatehouse.Event && random.IntN(2) == 0 {
			cmd.Op = gatehouse.OpSend
		}
	}
	return cmd
}
