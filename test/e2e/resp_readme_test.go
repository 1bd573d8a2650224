package e2e

import (
	"os"
	"strings"
	"testing"
)

// What pages show of redis-cli is what it says.
func TestRedisPages(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"docs/protocols/resp.md": 10, "docs/grants.md": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tryRedisExamples(t, name, least)
		})
	}
}

// tryRedisExamples tries those of one page, on a server of its own. There are so many of them at least.
func tryRedisExamples(t *testing.T, name string, least int) {
	t.Helper()
	page, err := os.ReadFile("../../" + name)
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
	if shown < least {
		t.Errorf("%s shows %d commands, want at least %d", name, shown, least)
	}
}
