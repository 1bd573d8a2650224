package cas

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// The estimate is never ahead of the store, and behind it by no more than an answer takes; the latest is
// never behind it. A clock that is set is followed at the next answer.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		c := &storeClock{start: time.Now()}
		if _, known := c.storeTime(); known {
			t.Fatal("the time is known before there was an answer")
		}
		offset := 42 * time.Hour // of the store
		for i := range 500 {
			if i%50 == 49 {
				offset += time.Duration(rng.Int64N(int64(time.Hour))) - 30*time.Minute
			}
			there, back := upTo(rng, 20*time.Millisecond), upTo(rng, 20*time.Millisecond)
			sent := c.elapsedTime()
			time.Sleep(there)
			now := time.Now().Add(offset)
			time.Sleep(back)
			c.noteReply(now, sent, c.elapsedTime())
			truth := time.Now().Add(offset).UnixNano()
			got, known := c.storeTime()
			if late := time.Duration(truth - got); !known || late < 0 || late > there+back {
				t.Fatalf("answer %d: the estimate is %s behind, want 0 to %s", i, late, there+back)
			}
			ahead := time.Duration(c.latestTime() - truth)
			if ahead < 0 || ahead > there+back+time.Millisecond {
				t.Fatalf("answer %d: the latest is %s ahead, want 0 to %s", i, ahead, there+back)
			}
			time.Sleep(upTo(rng, time.Second))
		}
	})
}

// A name that is used stays; one that is not goes when others come.
func TestCache(t *testing.T) {
	c := &cache{most: 100 * cacheParts}
	named := func(i int) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint(i)} }
	used := c.entryFor(named(-1))
	idle := c.entryFor(named(-2))
	for i := range 100_000 {
		c.entryFor(named(i))
		if c.entryFor(named(-1)) != used {
			t.Fatalf("a name that is always used is forgotten after %d others", i)
		}
	}
	if c.entryFor(named(-2)) == idle {
		t.Error("a name that was not used is remembered after 100,000 others")
	}
	if n := c.countNames(); n > 2*c.most {
		t.Errorf("%d names are remembered, want at most %d", n, 2*c.most)
	}
}

// A doubt reaches one name, or all of them, young and old.
func TestDoubt(t *testing.T) {
	c := &cache{most: 4 * cacheParts}
	var all []*entry
	for i := range 60 {
		all = append(all, c.entryFor(gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint(i)}))
	}
	last := all[len(all)-1]
	c.markStale(last.key)
	c.markStale(gatehouse.Key{Kind: gatehouse.Event, Name: "59"})
	for _, e := range all {
		if doubtful := e.stale.Load(); doubtful != (e == last) {
			t.Errorf("%s is doubtful: %t", e.key, doubtful)
		}
	}
	c.markStale(gatehouse.Key{})
	for _, e := range all {
		if c.entryFor(e.key) == e && !e.stale.Load() {
			t.Errorf("%s is not doubtful when all are", e.key)
		}
	}
}

func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}
