package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// TestWhatIsNoRecord: where something else stands in the place of a record, every request about the name
// says which key of Redis that is, also a grant whose first name it is not. Lists go on without it. Once the
// key is deleted the name begins anew.
func TestWhatIsNoRecord(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newServers(t, redis.Address, 1)[0]
	good := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "a"}
	bad := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "b"}
	one := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 9, Interval: time.Hour},
	}
	const place = "gatehouse:tokenbucket/b"
	check := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), "tokenbucket/b: ") ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", place)) ||
			gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("%s: %v, want it unavailable, tokenbucket/b and its key %q", what, err, place)
		}
	}
	for _, put := range [][]string{
		{"lpush", place, "x"}, {"set", place, "x"}, {"set", place, "a longer text here"},
	} {
		if d, err := s.Do(soonest(t), good, one); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("acquire of %s = %+v, %v", good, d, err)
		}
		redis.CLI(t, "del", place)
		redis.CLI(t, put...)
		_, err := s.Do(soonest(t), bad, one)
		check(put[0]+": acquire", err)
		_, err = decideGrant(s.store, grantOf("g", 9, []gatehouse.Key{good, bad}))
		check(put[0]+": grant", err)
		var names []string
		note := func(k gatehouse.Key, _ control.State) bool {
			names = append(names, k.Name)
			return true
		}
		err = s.store.Range(soonest(t), gatehouse.TokenBucket, "", note)
		if err != nil || strings.Join(names, " ") != "a" {
			t.Errorf("%s: names are %q, %v, want a alone", put[0], names, err)
		}
		redis.CLI(t, "del", place)
		if d, err := s.Do(soonest(t), bad, one); err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("acquire of %s behind that = %+v, %v", bad, d, err)
		}
	}
}
