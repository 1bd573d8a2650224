package activity

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// While a store does not answer nothing is told of its names, and afterwards only what came since.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(func(c *Config) {
			c.Busiest = func(int) []gatehouse.Key { return []gatehouse.Key{key("a")} }
		})
		run(t, m)
		for range 50 {
			take(t, g, "a")
		}
		var r reader
		stop, _ := m.Follow("", seesAll, r.send, r.end)
		defer stop()
		m.Watch(r.id(t), []gatehouse.Key{key("a")})
		time.Sleep(2*sampleEvery + time.Millisecond)
		g.away.Store(true)
		time.Sleep(2 * sampleEvery)
		var f frame
		decodeEvent(t, r.last(), "frame", &f)
		if len(f.Rows) != 0 {
			t.Errorf("frame %s while the store is away, want no row, as nothing is known", r.last())
		}
		g.away.Store(false)
		time.Sleep(sampleEvery)
		for _, p := range m.History(key("a")) {
			if p.Granted != 0 {
				t.Errorf("%v a second were granted at %s, want 0, as nothing was asked", p.Granted, p.At)
			}
		}
		if !strings.Contains(string(r.last()), `"granted":50,"refused":0,"granted_rate":0`) {
			t.Errorf("frame %s after the store is back, want 50 and none a second", r.last())
		}
	})
}
