package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// heavyLimiters and heavyHolds are commands that keep much: each a new name, or a new part of one.
func heavyLimiters(i int) []string {
	const limits = "9/1h,9/2h,9/3h,9/4h,9/5h,9/6h,9/7h,9/8h"
	key, name := strings.Repeat("k", 490)+fmt.Sprint(i), strings.Repeat("n", 490)+fmt.Sprint(i)
	return []string{
		fmt.Sprintf("GH.ACQUIRE slidingwindow/%d LIMITS %s MODE fine COST 9 MAXWAIT 0", i, limits),
		fmt.Sprintf("GH.RESERVE slidingwindow/%d LIMITS %s MODE fine COST 9 KEY %s", i, limits, key),
		fmt.Sprintf("GH.ACQUIRE slidinglog/%d LIMITS %s MAXWAIT 0", i/9, limits),
		fmt.Sprintf("GH.SEND event/%d MESSAGE %s", i, strings.Repeat("m", 4000)),
		fmt.Sprintf("GH.WAIT barrier/%s SIZE 9 MAXWAIT 0", name),
	}
}

func heavyHolds(i int) []string {
	key, name := strings.Repeat("k", 490)+fmt.Sprint(i), strings.Repeat("n", 490)+fmt.Sprint(i)
	return []string{
		fmt.Sprintf("GH.ACQUIRE semaphore/%s KEY %s EXPIRES 0 MAXWAIT 0", name, key),
		fmt.Sprintf("GH.ACQUIRE semaphore/many SIZE 100000 KEY %s EXPIRES 0 MAXWAIT 0", key),
	}
}

// exhaust sends many commands, and returns how many of them the server had no room for.
func (c *redisConn) exhaust(commands func(int) []string) (refused int) {
	c.t.Helper()
	for i := range 3000 {
		some := commands(i)
		_ = c.SetDeadline(time.Now().Add(patience))
		go c.send(some...)
		for range some {
			if answer := c.answer(); matches("-EXHAUSTED …bytes of memory…are in use…", answer) {
				refused++
			} else if answer[0] == '-' {
				c.t.Fatal(answer)
			}
		}
	}
	return refused
}

// wantNoMemory wants what grows to be refused over HTTP, with the time of a new try. A few may fit yet.
func (s *server) wantNoMemory(t *testing.T) {
	t.Helper()
	message := strings.Repeat("m", 4000)
	a := &answer{status: 204}
	for i := 0; i < 1000 && a.status == 204; i++ {
		a = s.get(t, fmt.Sprintf("/v1/event/http%d/send?message=%s", i, message))
	}
	if !a.is("503 …bytes of memory that this server has for state are in use…") ||
		a.header.Get("Retry-After") != "1" {
		t.Errorf("an event more = %s, Retry-After %q, want 503 for want of memory, and 1",
			a, a.header.Get("Retry-After"))
	}
}

// What names take differs by a factor of 10,000. The server counts bytes, and refuses what it has no memory
// for; what is there goes on, and locks have a part of their own.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 12
	s := start(t, "--max-memory", fmt.Sprint(limit, "MiB"), "--resp", "localhost:0")
	c := dialRedis(t, s.redisAddress(t))
	const before = "GH.ACQUIRE gcra/before SIZE 2 BURST 1 INTERVAL 3600000 MAXWAIT 0"
	c.want(before, "OK")
	limiters, holds := 0, 0
	grown := s.growth(t, func() {
		limiters = c.exhaust(heavyLimiters)
		s.wantNoMemory(t)
		s.want(t, "/v1/lock/deploy/acquire?key=k", "200 k")
		s.want(t, "/v1/lock/deploy/release?key=k", "204")
		s.want(t, "/v1/lock/held/acquire?key=k&expires=0", "200 k")
		holds = c.exhaust(heavyHolds)
	})
	t.Logf("of 15000 limiters %d were refused, of 6000 holds %d; the server grew by %d MiB",
		limiters, holds, grown/mib)
	used := s.figure(t, "gatehouse_state_bytes")
	if used > limit*mib || used < 0.99*limit*mib || limiters < 1000 || holds < 1000 {
		t.Errorf("state takes %.0f bytes, %d limiters and %d holds were refused; want %d MiB and many",
			used, limiters, holds, limit)
	}
	// The heap may be twice what is in use.
	if grown > 3*limit*mib {
		t.Errorf("the memory of the server grew by %d MiB, want at most %d", grown/mib, 3*limit)
	}
	c.want(before, "OK")
	c.want(before, "null")
	s.want(t, "/v1/lock/held/acquire?key=k&expires=0", "200 k")
	s.want(t, "/v1/lock/held/release?key=k", "204")
}

// Whoever makes limiters for a hundred years takes no name from locks and semaphores.
func TestLimitersLeaveNamesForLocks(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-names", "10000", "--resp", "localhost:0")
	c := dialRedis(t, s.redisAddress(t))
	refused := 0
	for i := range 104 {
		var commands []string
		for j := range 100 {
			commands = append(commands, fmt.Sprintf("CL.THROTTLE name%d 10 10 1000000", 100*i+j))
		}
		go c.send(commands...)
		for range commands {
			if strings.HasPrefix(c.answer(), "-EXHAUSTED") {
				refused++
			}
		}
	}
	if refused != 1400 {
		t.Errorf("of 10400 limiters %d were refused, want 1400", refused)
	}
	s.want(t, "/v1/lock/deploy/acquire?key=k", "200 k")
	s.want(t, "/v1/semaphore/db/acquire?key=k", "200 k")
}

// All semaphores and locks together have a limit of holders.
func TestHoldersAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-holders", "3", "--store", "disk:"+t.TempDir())
	s.want(t, "/v1/semaphore/a/acquire?size=9&key=1", "200")
	s.want(t, "/v1/semaphore/a/acquire?size=9&key=2", "200")
	s.want(t, "/v1/lock/b/acquire?key=3", "200")
	for _, name := range []string{"semaphore/a", "semaphore/c", "lock/d"} {
		if a := s.get(t, "/v1/"+name+"/acquire?size=9"); !strings.Contains(a.body, "has 3 holders") {
			t.Errorf("a holder more of %s = %s, want it refused", name, a)
		}
	}
	s.want(t, "/v1/semaphore/a/acquire?size=9&key=1", "200 1")
	if holders := s.figure(t, "gatehouse_holders"); holders != 3 {
		t.Errorf("gatehouse_holders is %.0f, want 3", holders)
	}
	s.want(t, "/v1/semaphore/a/release?key=1", "204")
	s.want(t, "/v1/lock/d/acquire", "200")
}

// Leases are limited on all resources together, and what they take in memory counts with everything else.
func TestLeasesAreLimitedTogether(t *testing.T) {
	t.Parallel()
	s := startCapacity(t, "--grpc", "localhost:0", "--capacity-config", writeTemplates(t, shares),
		"--max-leases-total", "3")
	lease := func(client, resource string) *answer {
		body := fmt.Sprintf(`{"client_id":%q,"resource":[{"resource_id":%q,"wants":1}]}`, client, resource)
		c := s.dial(t)
		c.send(rawRequest("POST /v1/capacity/get", fmt.Sprintf("Content-Length: %d", len(body))) + body)
		return c.answer()
	}
	for _, resource := range []string{"a", "b", "c"} {
		if a := lease("me", resource); a.status != 200 {
			t.Fatalf("a lease on %s = %s, want it", resource, a)
		}
	}
	if a := lease("me", "d"); a.status != 503 || !strings.Contains(a.body, "the server has 3 leases") {
		t.Errorf("a fourth lease = %s, want 503", a)
	}
	if a := lease("me", "a"); a.status != 200 {
		t.Errorf("a lease that is there = %s, want it", a)
	}
	if bytes := s.figure(t, "gatehouse_state_bytes"); bytes < 3000 || bytes > 6000 {
		t.Errorf("three resources take %.0f bytes, want some thousands", bytes)
	}
}

// Holds that have ended do not count as holders, though nobody asks for their semaphore again.
func TestEndedHoldsAreNoHolders(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-holders", "20")
	s.want(t, "/v1/semaphore/s/acquire?size=100&key=lasts&expires=0", "200 lasts")
	for i := range 19 {
		key := fmt.Sprint(i)
		s.want(t, "/v1/semaphore/s/acquire?size=100&key="+key+"&expires=1000", "200 "+key)
	}
	until(t, "a lock is to be had once they have ended", func() bool {
		return s.get(t, "/v1/lock/l/acquire?key=k").status == 200
	})
}

// What a store holds is loaded at the start, though it is more than the server may have by now. What is new
// is refused.
func TestWhatIsStoredIsLoaded(t *testing.T) {
	t.Parallel()
	const names = 20
	at, message := "disk:"+t.TempDir(), strings.Repeat("m", 4000)
	s := start(t, "--store", at)
	for i := range names {
		s.want(t, fmt.Sprintf("/v1/lock/%d/acquire?key=k&expires=0", i), "200 k")
		s.want(t, fmt.Sprintf("/v1/event/%d/send?message=%s", i, message), "204")
		s.want(t, fmt.Sprintf("/v1/counter/%d/count?amount=%d", i, i+1), fmt.Sprint("200 ", i+1))
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = start(t, "--store", at, "--max-names", "5", "--max-holders", "5", "--max-memory", "32KiB")
	loaded, held := s.figure(t, "gatehouse_names"), s.figure(t, "gatehouse_holders")
	if loaded != 3*names || held != names {
		t.Errorf("%v names and %v holders are loaded, want %d and %d", loaded, held, 3*names, names)
	}
	if used := s.figure(t, "gatehouse_state_bytes"); used < names*4000 {
		t.Errorf("what is loaded takes %v bytes, want more than %d", used, names*4000)
	}
	for i := range names {
		s.want(t, fmt.Sprintf("/v1/lock/%d/acquire?key=other&maxwait=0", i), "408")
		s.want(t, fmt.Sprintf("/v1/event/%d/wait", i), "200 "+message)
		s.want(t, fmt.Sprintf("/v1/counter/%d/value", i), fmt.Sprint("200 ", i+1))
	}
	s.want(t, "/v1/lock/new/acquire?key=k", "503")
	s.want(t, "/v1/counter/new/count", "503")
	s.want(t, "/v1/lock/0/release?key=k", "204")
}
