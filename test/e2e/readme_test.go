package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A command is a line of an example, with the output it is said to have.
type command struct {
	line, want string
}

// block is a shell example that is marked to be tried.
var block = regexp.MustCompile("(?s)<!-- tested -->\n```sh\n(.*?)\n```\n")

// Every example that is marked does what it says, in the order of reading and on one server.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"README.md", "docs/protocols/http.md", "docs/grants.md", "docs/recipes/llm-tokens.md",
		"docs/recipes/third-party-api.md", "docs/feedback.md", "docs/page.md",
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			tryExamples(t, page)
		})
	}
}

// capacityFile is a file that the page tells its reader to write.
var capacityFile = regexp.MustCompile("(?s)<!-- capacity.yaml -->\n```yaml\n(.*?)```\n")

// flagsFor are those that the server of a page has.
func flagsFor(t *testing.T, page string) []string {
	t.Helper()
	found := capacityFile.FindStringSubmatch(page)
	if found == nil {
		return nil
	}
	path := filepath.Join(t.TempDir(), "capacity.yaml")
	if err := os.WriteFile(path, []byte(found[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--capacity-config", path}
}

// tryExamples tries those of one page, on a server of its own.
func tryExamples(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatalf("the examples of %s are to be tried: %v", page, err)
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	if marks := strings.Count(string(text), "<!-- tested -->"); len(blocks) == 0 || marks != len(blocks) {
		t.Fatalf("%s has %d marks and %d shell blocks right behind them, want as many, and some",
			page, marks, len(blocks))
	}
	s := start(t, flagsFor(t, string(text))...)
	for _, b := range blocks {
		commands, err := readCommands(b[1])
		if err != nil {
			t.Errorf("in the example\n%s\n%v", b[1], err)
			continue
		}
		s.runExample(t, commands)
	}
}

// readCommands takes an example apart: lines that begin with "$ ", and their output. A line with an open
// quote goes on with the next one.
func readCommands(text string) (commands []command, err error) {
	for line := range strings.Lines(text) {
		if after, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, command{line: strings.TrimSuffix(after, "\n")})
			continue
		}
		if len(commands) == 0 {
			return nil, fmt.Errorf("the line %q comes before any command", line)
		}
		last := &commands[len(commands)-1]
		if strings.Count(last.line, "'")%2 == 1 {
			last.line += "\n" + strings.TrimSuffix(line, "\n")
			continue
		}
		last.want += line
	}
	if len(commands) == 0 {
		return nil, fmt.Errorf("it has no line that begins with $")
	}
	return commands, nil
}

// runExample runs the commands of one example; those that end in " &" at the same time as the rest.
func (s *server) runExample(t *testing.T, commands []command) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var background []func()
	for _, c := range commands {
		line, behind := strings.CutSuffix(strings.TrimSpace(c.line), " &")
		line = strings.ReplaceAll(line, "localhost:5505", s.address)
		cmd := exec.CommandContext(ctx, "bash", "-c", `gatehouse() { "$TESTED_BINARY" "$@"; }; `+line)
		cmd.Env = append(os.Environ(), "GATEHOUSE_SERVER="+s.address)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		finish := func() {
			err := cmd.Wait()
			if got := out.String(); err != nil || !matches(endLine(c.want), endLine(got)) {
				t.Errorf("%s\ngives\n%s\n(%v), want\n%s", c.line, got, err, c.want)
			}
		}
		if behind {
			background = append(background, finish)
			continue
		}
		finish()
	}
	for _, finish := range background {
		finish()
	}
}

// endLine ends a text that is not empty with a line end, as a terminal would show it.
func endLine(text string) string {
	if text == "" {
		return ""
	}
	return strings.TrimRight(text, "\r\n") + "\n"
}
