package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// shellBlock is an example whose commands, servers among them, run in one shell.
var shellBlock = regexp.MustCompile("(?s)<!-- tested in one shell -->\n```sh\n(.*?)\n```\n")

// serverAddress is where a server in an example listens.
var serverAddress = regexp.MustCompile(`localhost:55\d\d`)

// The examples of stores and of TLS do what they say: servers are started, killed, and share a Redis.
func TestReadmeOfStores(t *testing.T) {
	t.Parallel()
	for path, least := range map[string]int{"../../README.md": 2, "../../docs/tls.md": 1} {
		tryShellBlocks(t, path, least)
	}
}

// tryShellBlocks runs the examples of a page, of which there are so many or more.
func tryShellBlocks(t *testing.T, path string, least int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	marks := strings.Count(string(text), "<!-- tested in one shell -->")
	if len(blocks) != marks || marks < least {
		t.Fatalf("%s has %d marks and %d shell blocks behind them, want as many, %d or more",
			path, marks, len(blocks), least)
	}
	for _, b := range blocks {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			tryInOneShell(t, b[1])
		})
	}
}

// tryInOneShell runs the commands of an example one after the other, at addresses and in a folder of its own.
func tryInOneShell(t *testing.T, example string) {
	t.Helper()
	redis := redistest.Start(t)
	places := map[string]string{}
	example = serverAddress.ReplaceAllStringFunc(example, func(place string) string {
		if places[place] == "" {
			address, err := freeport.Next()
			if err != nil {
				t.Fatal(err)
			}
			places[place] = address
		}
		return places[place]
	})
	example = strings.ReplaceAll(example, "localhost:6379", redis.Address)
	commands, err := readCommands(example)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", oneScript(commands, places["localhost:5505"]))
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "GATEHOUSE_HTTP="+places["localhost:5505"])
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shown := strings.Split(string(out), "<next>\n")
	for i, c := range commands {
		if got := shown[i]; !matches(endLine(c.want), endLine(got)) {
			t.Errorf("%s\ngives\n%s\nwant\n%s", c.line, got, c.want)
		}
	}
}

// oneScript has the shell run all commands. A server is given the time to come up, says nothing, and is
// killed at the end.
func oneScript(commands []command, address string) string {
	var script strings.Builder
	fmt.Fprintf(&script, "gatehouse() { exec %s \"$@\" 2>>log; }\n", binary())
	script.WriteString("servers=\n")
	for _, c := range commands {
		script.WriteString(c.line + "\n")
		if strings.HasPrefix(c.line, "gatehouse serve") {
			at := address
			if _, given, ok := strings.Cut(c.line, "--http "); ok {
				at, _, _ = strings.Cut(given, " ")
			}
			fmt.Fprintf(&script, "servers=\"$servers $!\"\ndisown\nuntil curl -s http://%s/readyz >/dev/null; "+
				"do kill -0 $! || { cat log; break; }; sleep 0.05; done\n", at)
		}
		if strings.HasPrefix(c.line, "kill ") { // which is faster to say than to do
			script.WriteString("while kill -0 $! 2>/dev/null; do sleep 0.05; done\n")
		}
		script.WriteString("echo '<next>'\n")
	}
	script.WriteString("kill -9 $servers 2>/dev/null\nwait 2>/dev/null\ntrue\n")
	return script.String()
}
