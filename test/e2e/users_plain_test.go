package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A token that comes without TLS, and not over loopback, is refused with what to do about it, behind Redis's
// words over RESP, be it right or wrong.
func TestPlainTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]`})
	s := start(t, "--resp", ":0", "--trusted-proxy", "203.0.113.9", "--users", file)
	_, port, err := net.SplitHostPort(s.redisAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	here, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	plain := 0
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled."
	for _, address := range here {
		ip := address.(*net.IPNet).IP
		if ip.IsLinkLocalUnicast() {
			continue // which a client reaches by an interface
		}
		// Connections to an address of this machine come from it.
		redis := dialRedis(t, net.JoinHostPort(ip.String(), port))
		if ip.IsLoopback() {
			redis.want("AUTH "+canary+"wrong", wrong)
			redis.want("AUTH "+canary+"ci", "OK")
			continue
		}
		for _, login := range []string{"AUTH " + canary + "ci", "AUTH wrong", "HELLO 3 AUTH ci wrong"} {
			redis.want(login, wrong+
				" a token came over a connection that others can read; use TLS, and make a new token")
			plain++
		}
	}
	_, page := s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "ci"})
	want := fmt.Sprintf("gatehouse_auth_failures_total{protocol=%q,reason=%q} %d\n", "resp", "plain", plain)
	if plain > 0 && !strings.Contains(page, want) {
		t.Errorf("/metrics has no %s", want)
	}
}
