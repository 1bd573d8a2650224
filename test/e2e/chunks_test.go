package e2e

import (
	"fmt"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// chunkedServers are some servers on one Redis that take 50 of every limit at once, and keep them.
func chunkedServers(t *testing.T, count int) []*server {
	t.Helper()
	config := configFile(t, `
rules:
  - {match: tokenbucket/*, lazy: 1m, chunk: 50}
  - {match: fixedwindow/*, lazy: 1m, chunk: 50}
`)
	return startShared(t, redistest.Start(t), count, append(patient, "--config", config)...)
}

// passAll asks each server until it lets nothing through any more, and returns how many it let through.
func passAll(t *testing.T, servers []*server, acquire string) (passed int) {
	t.Helper()
	for _, s := range servers {
		for s.get(t, acquire).is("204") {
			passed++
		}
	}
	return passed
}

// Whatever clients do between, a limit that is taken in chunks lets through what it says since the last reset
// or delete, and what was refunded of what they took. What is in the chunks of other servers counts as taken.
func TestChunksKeepTheLimitWhateverIsGivenBack(t *testing.T) {
	steps := []struct {
		name, request, status string
		freed                 int // by it, of what the servers have let through before, one each
	}{
		{"refund", "%s/refund?cost=50", "204", 1},
		{"reset", "%s/reset", "204", 1}, // what others have let through is not known yet
		{"delete", "DELETE %s", "204", 1},
		{"stats", "%s/stats", "200", 0},
	}
	for count := 1; count <= 3; count += 2 {
		servers := chunkedServers(t, count)
		for _, kind := range []string{"tokenbucket", "fixedwindow"} {
			for _, step := range steps {
				const size = 150
				path := fmt.Sprintf("/v1/%s/%s", kind, step.name)
				acquire := fmt.Sprintf("%s/acquire?size=%d&interval=31536000000&maxwait=0", path, size)
				atEach(t, servers, acquire)
				servers[0].want(t, fmt.Sprintf(step.request, path), step.status)
				n, want := passAll(t, servers, acquire), size-count+step.freed
				mustPass(t, fmt.Sprintf("after %s at %d servers", path, count), n, want)
			}
		}
	}
}

func atEach(t *testing.T, servers []*server, request string) {
	t.Helper()
	for _, s := range servers {
		s.want(t, request, "204")
	}
}

func mustPass(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d passed, want %d", what, got, want)
	}
}
