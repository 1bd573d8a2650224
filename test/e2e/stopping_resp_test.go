package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// A command that was in the server's socket before SIGTERM is answered, as a request over HTTP is.
func TestStoppingAnswersCommandsThatHaveArrived(t *testing.T) {
	t.Parallel()
	s := start(t, "--resp", "localhost:0")
	const each = 200 // more than an event loop looks at in one go
	address := s.redisAddress(t)
	var conns []*redisConn
	for range each {
		conns = append(conns, dialRedis(t, address)) // nothing was asked yet
		c := dialRedis(t, address)                   // idle behind an answer
		c.want("PING", "PONG")
		conns = append(conns, c)
	}
	until(t, "all are accepted", func() bool {
		return s.figure(t, `gatehouse_connections{protocol="resp"}`) >= 2*each
	})
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range each {
		conns = append(conns, dialRedis(t, address)) // not accepted yet
	}
	for _, c := range conns {
		c.send("GH.COUNT counter/late")
	}
	s.signal(syscall.SIGTERM)
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	lost := make(map[string]int)
	for i, c := range conns {
		what := [...]string{"fresh", "idle"}[i%2]
		if i >= 2*each {
			what = "not accepted"
		}
		if line, err := c.reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, ":") {
			lost[what]++
		}
	}
	if len(lost) > 0 {
		t.Errorf("of %d each, so many commands had no answer: %v", each, lost)
	}
}
