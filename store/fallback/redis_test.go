//go:build unix

package fallback_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"github.com/gatehousehq/gatehouse/store/fallback"
)

// budget is how long a call of Redis may take.
const budget = breaker.DefaultTimeout

// late is how much later than its budget a call may return on the busiest machine. What exceeds it hangs.
const late = 30 * time.Second

// outages are what can happen to a Redis, and how it comes back.
var outages = []struct {
	fact    string
	away    func(*redistest.Server)
	back    func(testing.TB, *redistest.Server)
	forgets bool
}{
	{"killed, and started again, empty", (*redistest.Server).Kill,
		func(tb testing.TB, s *redistest.Server) { tb.Helper(); s.Restart(tb) }, true},
	{"stopped for a while", (*redistest.Server).Freeze,
		func(_ testing.TB, s *redistest.Server) { s.Thaw() }, false},
}

// A real Redis goes away and comes back: no call takes longer than it may, those after the first cost
// nothing, the rules hold, and all is well again by itself.
func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	for _, c := range outages {
		t.Run(c.fact, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			t.Cleanup(server.Thaw) // for the end
			circuit, store := onRedis(t, server)
			held := acquireLock(t, store, "k", gatehouse.Granted)
			c.away(server)
			_, took, err := ask(store, lock(), held)
			if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || took > budget+late {
				t.Errorf("the first command = %v after %s, want unavailable after %s", err, took, budget)
			}
			checkRules(t, store)
			c.back(t, server)
			redistest.Until(t, func() bool {
				_, err := circuit.Away()
				return err == nil
			})
			want := gatehouse.Refused
			if c.forgets {
				want = gatehouse.Granted
			}
			acquireLock(t, store, "other", want)
		})
	}
}

// lock is what is held over an outage.
func lock() gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: "l"} }

// acquireLock acquires the lock, with an outcome that is wanted, and returns the command. Redis is there, but
// on a busy machine it may take longer than a call has: then it is asked again for another holder, because
// what came of the call is taken back.
func acquireLock(
	t *testing.T, store *fallback.Store, holder string, want gatehouse.Outcome,
) (cmd gatehouse.Command) {
	t.Helper()
	cmd = gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1}, Expires: time.Hour,
	}
	var d gatehouse.Decision
	tries := 0
	redistest.Until(t, func() (answered bool) {
		tries++
		cmd.Holder = fmt.Sprint(holder, tries)
		var err error
		d, _, err = ask(store, lock(), cmd)
		// A refusal may be for what came of a call before, until that is taken back.
		return err == nil && (d.Outcome == want || d.Outcome == gatehouse.Granted)
	})
	if d.Outcome != want {
		t.Errorf("the lock for %s = %+v, want %s", cmd.Holder, d, want)
	}
	return cmd
}

// onRedis makes a store on a Redis, by rules for three buckets.
func onRedis(t *testing.T, server *redistest.Server) (*breaker.Breaker, *fallback.Store) {
	t.Helper()
	backend, err := redis.Open("redis://" + server.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	shared := cas.New(backend, cas.Config{Server: 1, Timeout: budget})
	t.Cleanup(shared.Close)
	circuit := breaker.New(shared, breaker.Config{})
	t.Cleanup(circuit.Close)
	rules := map[string]fallback.Answer{"allow": fallback.Allow, "share": fallback.LocalShare}
	return circuit, fallback.New(circuit, fallback.Config{
		Servers: 2, Rule: func(key gatehouse.Key) fallback.Answer { return rules[key.Name] },
	})
}

// checkRules asks a hundred times while Redis is away.
func checkRules(t *testing.T, store *fallback.Store) {
	t.Helper()
	granted := map[string]int{}
	began := time.Now()
	for range 100 {
		for _, name := range []string{"allow", "share", "refuse"} {
			d, _, err := ask(store, bucket(name), acquire(8, 1))
			if (err != nil) != (name == "refuse") {
				t.Fatalf("%s = %+v, %v, want an error for refuse alone", name, d, err)
			}
			if d.Outcome == gatehouse.Granted {
				granted[name]++
			}
		}
	}
	if took := time.Since(began); took > budget+late {
		t.Errorf("300 commands took %s, want next to nothing", took)
	}
	if granted["allow"] != 100 || granted["share"] != 4 || granted["refuse"] != 0 {
		t.Errorf("granted were %v, want 100 by allow and half of 8 by local-share", granted)
	}
}
