package activity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A countedGate is a gate that counts the questions of a monitor, and answers none while it is away.
type countedGate struct {
	*gate.Gate
	asked atomic.Int64
	away  atomic.Bool
}

// Do implements [Gate].
func (g *countedGate) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	g.asked.Add(1)
	if g.away.Load() {
		return gatehouse.Decision{}, gatehouse.Errorf(gatehouse.CodeUnavailable, "away")
	}
	return g.Gate.Do(ctx, key, cmd)
}

func newMonitor(change func(*Config)) (*Monitor, *countedGate) {
	g := &countedGate{Gate: gate.New(memory.New(memory.Config{}), gate.Config{})}
	config := Config{Gate: g, Now: time.Now, History: DefaultHistory}
	if change != nil {
		change(&config)
	}
	return New(config), g
}

// take acquires one of 60 a minute.
func take(t *testing.T, g *countedGate, name string) {
	t.Helper()
	_, err := g.Gate.Do(t.Context(), key(name), gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 60, Interval: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func key(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.FixedWindow, Name: name} }

// run keeps the history for as long as the test, in whose bubble it is called.
func run(t *testing.T, m *Monitor) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_ = m.Run(ctx) // it has no errors
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// A name that is asked twice a second has two a second in its history, of which one is refused.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(func(c *Config) {
			c.Busiest = func(int) []gatehouse.Key { return []gatehouse.Key{key("a")} }
		})
		run(t, m)
		for range 20 * 60 {
			take(t, g, "a")
			take(t, g, "a")
			time.Sleep(time.Second)
		}
		points := m.History(key("a"))
		if len(points) != samplesKept {
			t.Fatalf("History has %d points, want %d", len(points), samplesKept)
		}
		granted, refused := 0.0, 0.0
		for i, p := range points {
			granted += p.Granted * sampleEvery.Seconds()
			refused += p.Refused * sampleEvery.Seconds()
			if i > 0 && p.At.Sub(points[i-1].At) != sampleEvery {
				t.Errorf("point %d is at %s, want %s behind the one before", i, p.At, sampleEvery)
			}
		}
		// A sample may come before or behind what happens in the same instant.
		if math.Abs(granted-900) > 5 || math.Abs(refused-900) > 5 {
			t.Errorf("fifteen minutes have %v granted and %v refused, want 900 of each", granted, refused)
		}
		if first := points[0].At; time.Since(first) > 15*time.Minute+sampleEvery {
			t.Errorf("the first point is %s old, want 15m", time.Since(first))
		}
	})
}

// A name that somebody looked at is followed for an hour, and no longer. One that is deleted and made again
// never shows a negative rate.
func TestHistoryOfLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		run(t, m)
		take(t, g, "a")
		if points := m.History(key("a")); len(points) != 0 {
			t.Errorf("History at the first look = %v, want none", points)
		}
		time.Sleep(6 * time.Second)
		for range 5 {
			take(t, g, "a")
		}
		time.Sleep(5 * time.Second)
		if points := m.History(key("a")); len(points) != 2 || points[1].Granted != 1 {
			t.Errorf("History = %v, want a second point with 1 a second", points)
		}
		_, _ = g.Gate.Do(t.Context(), key("a"), gatehouse.Command{Op: gatehouse.OpDelete})
		take(t, g, "a")
		time.Sleep(5 * time.Second)
		for _, p := range m.History(key("a")) {
			if p.Granted < 0 || p.Granted > 1 {
				t.Errorf("after a delete History has %v granted a second, want 0 to 1", p.Granted)
			}
		}
		time.Sleep(lookedAtFor + 16*time.Minute)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.tracks) != 0 {
			t.Errorf("%d names have a history an hour after the last look, want none", len(m.tracks))
		}
	})
}

// Without history nothing is kept or asked, and with it no more than 16 MiB.
func TestHistoryIsBounded(t *testing.T) {
	// Beside its samples a name has an entry of a map, and its text.
	if all := (MaxHistory + maxLookedAt) * (unsafe.Sizeof(track{}) + 256); all > 16<<20 {
		t.Errorf("all histories take %d bytes, want at most 16 MiB", all)
	}
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(func(c *Config) { c.History = 0 })
		run(t, m)
		take(t, g, "a")
		m.History(key("a"))
		time.Sleep(time.Hour)
		if n := g.asked.Load(); n != 0 || len(m.tracks) != 0 {
			t.Errorf("without history the gate was asked %d times, and %d names are kept, want none",
				n, len(m.tracks))
		}
		m, _ = newMonitor(func(c *Config) { c.History = 5 })
		for i := range 3 * maxLookedAt {
			m.History(key(fmt.Sprint(i)))
		}
		if len(m.tracks) != maxLookedAt {
			t.Errorf("of many names looked at %d are kept, want %d", len(m.tracks), maxLookedAt)
		}
	})
}

// Whatever is looked at, and however much, the histories of the busiest names stay.
func TestLookingKeepsTheBusiest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy []gatehouse.Key
		for i := range 20 {
			busy = append(busy, key(fmt.Sprint("busy", i)))
		}
		m, _ := newMonitor(func(c *Config) {
			c.History = len(busy)
			c.Busiest = func(int) []gatehouse.Key { return busy }
		})
		run(t, m)
		time.Sleep(sampleEvery + time.Second)
		m.History(busy[0])
		for round := range 3 {
			for i := range 2 * maxLookedAt {
				m.History(key(fmt.Sprint(round, "-", i)))
			}
			time.Sleep(sampleEvery)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		looked := 0
		for _, track := range m.tracks {
			if !track.lookedAt.IsZero() {
				looked++
			}
		}
		for _, key := range busy {
			if m.tracks[key] == nil || m.tracks[key].first != 0 {
				t.Errorf("the history of %s is gone, or began again", key.Name)
			}
		}
		if looked != maxLookedAt || m.lookedAt != looked || len(m.tracks) != len(busy)+maxLookedAt {
			t.Errorf("%d names were looked at, %d by the count, of %d, want %d of %d", looked, m.lookedAt,
				len(m.tracks), maxLookedAt, len(busy)+maxLookedAt)
		}
	})
}

// A reader is a viewer that keeps what it is sent.
type reader struct {
	mu     sync.Mutex
	frames [][]byte
	ended  bool
}

func (r *reader) send(frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, frame)
}

func (r *reader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

func (r *reader) last() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frames[len(r.frames)-1]
}

// id is what the first event has for Watch.
func (r *reader) id(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var hello helloJSON
	decodeEvent(t, r.frames[0], "hello", &hello)
	return hello.Viewer
}

func decodeEvent(t *testing.T, event []byte, name string, into any) {
	t.Helper()
	data, ok := bytes.CutPrefix(event, []byte("event: "+name+"\ndata: "))
	if !ok || json.Unmarshal(data, into) != nil {
		t.Fatalf("event %q, want one of %s", event, name)
	}
}

type frame struct {
	Names, Waiting   int
	Granted, Refused float64
	Rows             []struct {
		Name                     string
		Granted                  int64
		GrantedRate, RefusedRate *float64
		Gone                     bool
	}
}

// One frame a second is made for all viewers, as long as there are any.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var granted atomic.Uint64
		m, g := newMonitor(func(c *Config) {
			c.Totals = func() (uint64, uint64) { return granted.Load(), 2 * granted.Load() }
		})
		time.Sleep(time.Hour)
		take(t, g, "a")
		if g.asked.Load() != 0 {
			t.Errorf("without viewers the gate was asked %d times, want never", g.asked.Load())
		}
		var all [3]reader
		var stops [3]func()
		for i := range all {
			stops[i], _ = m.Follow("", seesAll, all[i].send, all[i].end)
		}
		m.Watch(all[0].id(t), []gatehouse.Key{key("a"), key("absent")})
		time.Sleep(time.Second + time.Millisecond)
		for range 4 {
			take(t, g, "a")
		}
		granted.Store(10)
		time.Sleep(time.Second)
		var f frame
		decodeEvent(t, all[0].last(), "frame", &f)
		if f.Granted != 10 || f.Refused != 20 || len(f.Rows) != 2 || f.Rows[0].Granted != 5 ||
			!f.Rows[1].Gone {
			t.Errorf("frame %s, want 10 and 20 a second, and 5 of a in all", all[0].last())
		}
		if !strings.Contains(string(all[0].last()), `"granted_rate":4,"refused_rate":0`) {
			t.Errorf("frame %s, want 4 a second of a", all[0].last())
		}
		if &all[0].last()[0] != &all[2].last()[0] {
			t.Error("two viewers were sent frames of their own, want one for both")
		}
		for _, stop := range stops {
			stop()
		}
		asked := g.asked.Load()
		time.Sleep(time.Hour)
		if n := g.asked.Load(); n != asked {
			t.Errorf("after the last viewer left the gate was asked %d times, want never", n-asked)
		}
	})
}

// There are at most so many viewers and rows, and none once it is closed.
func TestFollowIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		var all [MaxViewers]reader
		for i := range all {
			if _, ok := m.Follow("", seesAll, all[i].send, all[i].end); !ok {
				t.Fatalf("viewer %d was refused, want %d of them", i, MaxViewers)
			}
		}
		if _, ok := m.Follow("", seesAll, nil, nil); ok {
			t.Errorf("viewer %d was let in", MaxViewers+1)
		}
		var keys []gatehouse.Key
		for i := range 2 * maxFrameRows {
			keys = append(keys, key(fmt.Sprint(i)))
		}
		m.Watch(all[7].id(t), keys)
		synctest.Wait()
		g.asked.Store(0)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := g.asked.Load(); n != maxFrameRows {
			t.Errorf("a frame looked at %d names, want %d", n, maxFrameRows)
		}
		m.Close()
		for i := range all {
			if !all[i].ended {
				t.Errorf("viewer %d was not told of the end", i)
			}
		}
		if _, ok := m.Follow("", seesAll, nil, nil); ok {
			t.Error("a viewer was let in after Close")
		}
	})
}

// Where each look is a call over the network there are fewer of them.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		m, g := newMonitor(func(c *Config) {
			c.Shared = true
			c.Busiest = func(n int) []gatehouse.Key { most = n; return nil }
		})
		run(t, m)
		var r reader
		stop, _ := m.Follow("", seesAll, r.send, r.end)
		m.Watch(r.id(t), []gatehouse.Key{key("a")})
		synctest.Wait()
		g.asked.Store(0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if most != sharedHistory {
			t.Errorf("a shared store was asked for the %d busiest names, want %d", most, sharedHistory)
		}
		if n := g.asked.Load(); n > 24+1 {
			t.Errorf("a name was looked at %d times a minute, want 12 for frames and 12 for the history", n)
		}
		stop()
	})
}

// seesAll is the view of a viewer who may see everything.
func seesAll() (View, bool) { return nil, true }
