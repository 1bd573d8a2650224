package resp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A farStore is a memory store that is slow for names that begin with "far", and answers those it holds up
// when they are let go.
type farStore struct {
	*memory.Store
	under atomic.Int64 // calls under way

	mu   sync.Mutex
	held map[string]chan error // what they are answered with then, nil being what was decided
}

func newFar() *farStore {
	return &farStore{
		Store: memory.New(memory.Config{Now: new(stillClock).now}), held: make(map[string]chan error),
	}
}

func (s *farStore) Apply(c *control.Change) {
	if !strings.HasPrefix(c.Key.Name, "far") {
		s.Store.Apply(c)
		return
	}
	go func() { c.Done(s.serve(c.Key, c.Turns)) }() // ends when it is let go
}

// serve serves a queue, after it was let go.
func (s *farStore) serve(key gatehouse.Key, queue []control.Turn) error {
	s.mu.Lock()
	held := s.held[key.Name]
	s.mu.Unlock()
	s.under.Add(1)
	defer s.under.Add(-1)
	if held != nil {
		if err := <-held; err != nil {
			return err
		}
	}
	return (&control.Change{Key: key, Turns: queue}).ApplyTo(s.Store)
}

// hold holds up all commands for a name, until the returned function is called.
func (s *farStore) hold(name string) (letGo func()) {
	held := make(chan error)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = held
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, name)
		close(held)
	})
}

// inHand waits until so many calls are under way at the store.
func (s *farStore) inHand(t *testing.T, n int64) {
	t.Helper()
	until(t, fmt.Sprintf("%d calls are under way", n), func() bool { return s.under.Load() == n })
}

// A command whose store hangs keeps nobody waiting but those behind it on its connection.
func TestHangingStoreBlocksOneConnection(t *testing.T) {
	for _, command := range []string{
		"CL.THROTTLE far:1 4 1 60", "GH.ACQUIRE gcra/far:1 SIZE 5", "GH.COUNT counter/far:1",
		"GH.RELEASE lock/far:1 KEY me", "GH.DELETE lock/far:1", "GH.STATS gcra/far:1", "GH.WAIT event/far:1",
	} {
		t.Run(command, func(t *testing.T) {
			s := newFar()
			d := openStore(t, Config{}, s)
			letGo := s.hold("far:1")
			defer letGo()
			stuck := d.dial(t)
			stuck.send(wire(strings.Fields(command)...) + wire("PING"))
			s.inHand(t, 1)
			for range 8 { // on every event loop
				c := d.dial(t)
				c.want("PING", "PONG")
				c.want("CL.THROTTLE near 99 1 60 0", "[0 100 100 -1 0]")
				c.want("CL.THROTTLE far:2 99 1 60 0", "[0 100 100 -1 0]")
				c.want("GH.COUNT counter/far:"+c.LocalAddr().String(), "1")
			}
			if command == "GH.WAIT event/far:1" {
				letGo()
				d.dial(t).want("GH.SEND event/far:1 MESSAGE text", "OK")
			}
			letGo()
			_ = stuck.answer()
			if got := stuck.answer(); got != "PONG" {
				t.Errorf("behind the command that hung came %s, want PONG", got)
			}
		})
	}
}

// A pipeline on different keys is under way together, up to a limit, and is answered in its order.
func TestPipelineUnderWayTogether(t *testing.T) {
	s := newFar()
	d := openStore(t, Config{}, s)
	c := d.dial(t)
	const commands = maxOverlapping + 4
	var letGo []func()
	pipeline := ""
	for i := range commands {
		letGo = append(letGo, s.hold(fmt.Sprint("far:", i)))
		if i%2 == 0 {
			pipeline += wire("GH.COUNT", fmt.Sprint("counter/far:", i), "AMOUNT", fmt.Sprint(i))
		} else { // two for one key are one call
			pipeline += wire("THROTTLE", fmt.Sprint("far:", i), "9999", "1", "60", fmt.Sprint(i))
			pipeline += wire("THROTTLE", fmt.Sprint("far:", i), "9999", "1", "60", fmt.Sprint(i))
		}
	}
	c.send(pipeline + wire("PING"))
	s.inHand(t, maxOverlapping)
	d.dial(t).want("PING", "PONG")
	if n := s.under.Load(); n != maxOverlapping {
		t.Errorf("%d calls of one connection are under way, want %d", n, maxOverlapping)
	}
	for i := commands - 1; i >= 0; i-- {
		letGo[i]()
	}
	for i := range commands {
		if i%2 == 0 {
			if got := c.answer(); got != fmt.Sprint(i) {
				t.Errorf("answer %d is %s, want its own", i, got)
			}
			continue
		}
		for n := int64(1); n <= 2; n++ {
			remaining := fmt.Sprintf("[1 9999 %d ", 9999-n*int64(i))
			if got := c.answer(); !strings.HasPrefix(got, remaining) {
				t.Errorf("answer %d is %s, want %s…", i, got, remaining)
			}
		}
	}
	if got := c.answer(); got != "PONG" {
		t.Errorf("the last answer is %s, want PONG", got)
	}
}

// Whatever comes in a pipeline is answered as with a store that is not slow.
func TestPipelineAtASlowStore(t *testing.T) {
	words := []string{
		"CL.THROTTLE %s 4 1 60", "CL.THROTTLE %s 4 1 60 2", "CL.THROTTLE %s 4 1 60 -1", "CL.THROTTLE %s x",
		"CL.THROTTLE %s 1 x 60", "CL.THROTTLE %s 1 0 60", "THROTTLE %s 5 1 60", "GCRA %s 4 1 60 TOKENS 2",
		"CL.THROTTLE", "PING %s", "NOTHING %s", "GH.DELETE gcra/%s", "GH.COUNT counter/%s",
		"GH.COUNT counter/%s AMOUNT x", "GH.VALUE counter/%s", "GH.ACQUIRE lock/%s KEY %[1]s MAXWAIT 0",
		"GH.RELEASE lock/%s KEY %[1]s", "GH.ACQUIRE gcra/%s MAXWAIT 0 SIZE 5 INTERVAL 300000 WITH DETAILS",
		"GH.ACQUIRE lock/%s KEY %[1]s", "GH.LIST gcra MOST 0", "GH.PEEK gcra/%s SIZE 5 INTERVAL 300000",
		"GH.ACQUIRE nothing/%s", "GH.ACQUIRE",
	}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		var far, near strings.Builder
		for range 200 {
			word := words[random.IntN(len(words))]
			place := string(rune('a' + random.IntN(20)))
			if strings.Contains(word, "%") {
				word = fmt.Sprintf(word, "far"+place)
			}
			word += lineEnd
			if random.IntN(2) == 0 { // as clients write it, and again and again
				word = strings.Repeat(wire(strings.Fields(word)...), 1+random.IntN(8)/7*random.IntN(40))
			}
			far.WriteString(word)
			near.WriteString(strings.ReplaceAll(word, "far", "sea"))
		}
		want := say(t, memory.New(memory.Config{Now: new(stillClock).now}), near.String())
		got := strings.ReplaceAll(say(t, newFar(), far.String()), "far", "sea")
		if got != want {
			t.Fatalf("seed %d: the pipeline\n%s\nis answered\n%q\nwant\n%q", seed, far.String(), got, want)
		}
	}
}

// A key is checked in a batch that is new because the one before is under way, too.
func TestEmptyKeyAtASlowStore(t *testing.T) {
	s := newFar()
	d := openStore(t, Config{}, s)
	c := d.dial(t)
	c.want("CL.THROTTLE far:1 4 1 60", "[0 5 4 -1 60]")
	c.send(wire("CL.THROTTLE", "", "4", "1", "60"))
	if got := c.answer(); !strings.HasPrefix(got, "-INVALID") {
		t.Errorf("an empty key is answered %s, want -INVALID", got)
	}
}

// say is what is answered to a pipeline, to the last byte.
func say(t *testing.T, store gate.Store, pipeline string) string {
	t.Helper()
	d := openStore(t, Config{}, store)
	defer d.shut(t)
	c := d.dial(t)
	c.send(pipeline + "ECHO end\r\n")
	var all strings.Builder
	for line := ""; line != "end\r\n"; {
		var err error
		if line, err = c.reader.ReadString('\n'); err != nil {
			t.Fatalf("after %q: %v", all.String(), err)
		}
		all.WriteString(line)
	}
	return all.String()
}

// A client that hangs up while the store has its commands gives back what they are granted.
func TestHangUpWhileTheStoreWorks(t *testing.T) {
	s := newFar()
	d := openStore(t, Config{}, s)
	gone := d.dial(t)
	letGo := []func(){s.hold("far:lock"), s.hold("far:rate"), s.hold("far:slots")}
	gone.send(wire("GH.ACQUIRE", "lock/far:lock", "KEY", "gone", "MAXWAIT", "0", "EXPIRES", "0") +
		strings.Repeat(wire("CL.THROTTLE", "far:rate", "9", "1", "60"), 3) +
		wire("GH.ACQUIRE", "semaphore/far:slots", "KEY", "gone", "EXPIRES", "0", "MAXWAIT", "0"))
	s.inHand(t, 3)
	_ = gone.Close()
	for _, letGo := range letGo {
		letGo()
	}
	until(t, "it is gone", func() bool { return d.open.Load() == 0 })
	if err := d.gate.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	c := d.dial(t)
	c.want("GH.ACQUIRE lock/far:lock KEY next MAXWAIT 0", "next")
	c.want("GH.ACQUIRE semaphore/far:slots KEY next MAXWAIT 0", "next")
	c.want("CL.THROTTLE far:rate 9 1 60 0", "[0 10 10 -1 0]")
}

// A store that fails is told to whoever asked, in its turn.
func TestErrorsOfASlowStore(t *testing.T) {
	s := newFar()
	d := openStore(t, Config{}, s)
	c := d.dial(t)
	s.hold("far:1")
	s.hold("far:2")
	s.mu.Lock()
	held := []chan error{s.held["far:1"], s.held["far:2"]}
	s.mu.Unlock()
	c.send(wire("CL.THROTTLE", "far:1", "1", "1", "1") + wire("CL.THROTTLE", "far:1", "1", "1", "1") +
		wire("GH.COUNT", "counter/far:2") + wire("ECHO", "x"))
	s.inHand(t, 2)
	cut := gatehouse.Errorf(gatehouse.CodeUnavailable, "the wire is cut")
	held[1] <- cut
	held[0] <- cut
	for _, want := range []string{
		"-UNAVAILABLE the wire is cut", "-UNAVAILABLE the wire is cut", "-UNAVAILABLE the wire is cut", "x",
	} {
		if got := c.answer(); got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
	}
}

// A long pipeline is not too much for a connection, however slowly it is answered.
func TestLongPipelineAtASlowStore(t *testing.T) {
	c := openStore(t, Config{}, newFar()).dial(t)
	const commands = 50_000
	command := wire("GH.COUNT", "counter/far:"+strings.Repeat("x", 50))
	go func() { c.send(strings.Repeat(command, commands)) }()
	for i := range commands {
		if got := c.answer(); got != fmt.Sprint(i+1) {
			t.Fatalf("answer %d is %s, want %d", i, got, i+1)
		}
	}
}

// A server that stops answers what the store has in hand.
func TestShutdownWhileTheStoreWorks(t *testing.T) {
	s := newFar()
	d := openStore(t, Config{}, s)
	c := d.dial(t)
	letGo := s.hold("far")
	c.send(wire("GH.COUNT", "counter/far") + wire("GH.COUNT", "counter/far"))
	s.inHand(t, 1)
	done := make(chan struct{})
	go func() { d.shut(t); close(done) }()
	until(t, "the server ends", d.ending.Load)
	letGo()
	for _, want := range []string{"1", "2"} {
		if got := c.answer(); got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
	}
	<-done
}
