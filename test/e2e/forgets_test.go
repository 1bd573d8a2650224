package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// remembered is how long a server knows that a record should be there, at least.
const remembered = 50 * time.Second

// A Redis that evicts is warned of at the start and in /readyz, and what it has thrown away is counted and
// logged when it is asked for.
func TestRedisThatEvicts(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory-policy", "allkeys-random")
	s := startShared(t, redis, 1, patient...)[0]
	if body := s.get(t, "/readyz").body; !strings.Contains(body, "maxmemory-policy allkeys-random") {
		t.Errorf("/readyz says %q, want the policy in it", body)
	}
	if !strings.Contains(s.journal.String(), "set its maxmemory-policy to noeviction") {
		t.Errorf("no warning of the policy is logged:\n%s", s.journal)
	}
	const locks = 200
	var acquired [locks]time.Time
	for i := range locks {
		acquired[i] = time.Now()
		s.want(t, fmt.Sprintf("/v1/lock/l%d/acquire?key=a&expires=600000&maxwait=0", i), "200 a")
	}
	s.wantMetric(t, `gatehouse_store_vanished_total{store="redis"} 0`)
	const fill = `for i = 1, 4000 do redis.call('SET', 'other' .. i, string.rep('x', 1000)) end`
	redis.CLI(t, "EVAL", fill, "0")
	redis.CLI(t, "CONFIG", "SET", "maxmemory", "3mb")
	again, known := 0, 0
	for i := range locks {
		if s.get(t, fmt.Sprintf("/v1/lock/l%d/acquire?key=b&expires=600000&maxwait=0", i)).status != 200 {
			continue
		}
		again++
		if time.Since(acquired[i]) < remembered {
			known++
		}
	}
	vanished := regexp.MustCompile(`gatehouse_store_vanished_total\{store="redis"\} (\d+)`)
	found := vanished.FindStringSubmatch(s.get(t, "/metrics").body)
	if found == nil {
		t.Fatal("there is no gatehouse_store_vanished_total")
	}
	counted, _ := strconv.Atoi(found[1])
	s.wantMetric(t, `gatehouse_vanished_total{kind="lock"} `+found[1])
	t.Logf("%d of %d locks were granted again, %d of them within %s, %d records counted as vanished",
		again, locks, known, remembered, counted)
	if again == 0 || counted < known {
		t.Errorf("%d locks were granted again and %d records counted; want some, and at least %d",
			again, counted, known)
	}
	if !strings.Contains(s.journal.String(), "the store has lost records before their time") {
		t.Errorf("no loss is logged:\n%s", s.journal)
	}
}

// A Redis whose user may not ask for INFO is used, and what is not known is said.
func TestRedisWithoutInfo(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.CLI(t, "ACL", "SETUSER", "gate", "on", ">secret", "~*", "&*", "+@all", "-info")
	s := start(t, "--store", "redis://gate:secret@"+redis.Address)
	s.want(t, "/v1/lock/l/acquire?key=a&maxwait=0", "200 a")
	if body := s.get(t, "/readyz").body; !strings.Contains(body, "maxmemory-policy unknown") {
		t.Errorf("/readyz says %q, want that the policy is unknown", body)
	}
	if !strings.Contains(s.journal.String(), "whether the store evicts is unknown") {
		t.Errorf("no warning is logged:\n%s", s.journal)
	}
}
