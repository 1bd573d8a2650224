package e2e

import (
	"fmt"
	"syscall"
	"testing"
)

// A request that was in the server's socket before SIGTERM is answered, whatever its connection was doing.
// The server is halted meanwhile, so that it learns of requests and signal at the same time.
func TestStoppingAnswersWhatHasArrived(t *testing.T) {
	t.Parallel()
	s := start(t, "--read-timeout", "5m") // connections that ask nothing stay, however long this takes
	const each = 40
	var conns []*conn
	for i := range each {
		c := s.dial(t) // nothing was asked yet
		conns = append(conns, c)
		c = s.dial(t) // idle behind an answer
		c.ask(fmt.Sprintf("/v1/counter/a%d/count", i))
		c.answer()
		conns = append(conns, c)
		c = s.dial(t) // idle behind a wait, so that it was parked
		c.ask(fmt.Sprintf("/v1/event/e%d/wait?maxwait=1", i))
		c.answer()
		conns = append(conns, c)
	}
	until(t, "all are accepted", func() bool {
		return s.figure(t, `gatehouse_connections{protocol="http"}`) >= 3*each
	})
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range each {
		conns = append(conns, s.dial(t)) // not accepted yet
	}
	for _, c := range conns {
		c.ask("/v1/counter/late/count")
	}
	s.signal(syscall.SIGTERM)
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	lost := make(map[string]int)
	for i, c := range conns {
		what := [...]string{"fresh", "idle", "parked"}[i%3]
		if i >= 3*each {
			what = "not accepted"
		}
		if a, err := c.read(); err != nil || a.status != 200 && a.status != 503 {
			lost[what]++
		}
	}
	if len(lost) > 0 {
		t.Errorf("of %d each, so many requests had no answer: %v", each, lost)
	}
}
