package e2e

import (
	"os"
	"strings"
	"testing"
)

// What the page about RESP shows of redis-cli is what it says.
func TestRedisPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/protocols/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	address := start(t).redisAddress(t)
	const prompt = "$ redis-cli -p 5507 "
	shown := 0
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "console\n") {
			continue
		}
		for _, example := range strings.Split(strings.TrimPrefix(block, "console\n"), prompt)[1:] {
			command, want, _ := strings.Cut(example, "\n")
			args := append(append(flagsOf(address), "--no-raw"), strings.Fields(command)...)
			got := runQuietly(t, "", "redis-cli", args...)
			if !matches(strings.TrimSpace(want), strings.TrimSpace(got)) {
				t.Errorf("redis-cli %s says\n%s\nwant\n%s", command, got, want)
			}
			shown++
		}
	}
	if shown < 10 {
		t.Errorf("the page shows %d commands, want at least 10", shown)
	}
}
