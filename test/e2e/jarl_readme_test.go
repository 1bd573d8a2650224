package e2e

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pythonBlock is an example in Python that is marked to be tried.
var pythonBlock = regexp.MustCompile("(?s)<!-- tested: python -->\n```python\n(.*?)```\n")

// jarlCommand is how the README starts a listener for JARL's clients.
var jarlCommand = regexp.MustCompile("`gatehouse (jarl --[^`]+) --port 5001`")

// The command in front of that client starts a listener.
func TestReadmeJARL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	command := jarlCommand.FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("README.md has no command that starts a listener for JARL at port 5001")
	}
	startProcess(t, binary(), append(strings.Fields(command[1]), "--port", freePort(t))...)
}

// JARL's client in the README goes when it may, and not before.
func TestReadmePython(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := pythonBlock.FindAllStringSubmatch(string(text), -1)
	if marks := strings.Count(string(text), "<!-- tested: python -->"); len(blocks) != 1 || marks != 1 {
		t.Fatalf("README.md has %d marks and %d Python blocks right behind them, want one",
			marks, len(blocks))
	}
	s := startJARL(t, "--requests", "2")
	_, port, _ := net.SplitHostPort(s.address)
	client := strings.ReplaceAll(blocks[0][1], `"localhost"`, `"127.0.0.1"`)
	client = strings.ReplaceAll(client, "5001", port)
	began := time.Now()
	for i := range 5 {
		out, err := exec.CommandContext(t.Context(), "python3", "-c", client).CombinedOutput()
		if err != nil || string(out) != "go\n" {
			t.Fatalf("the client prints\n%s\n(%v), want go", out, err)
		}
		if took, least := time.Since(began), time.Duration(i/2)*time.Second; took < least {
			t.Errorf("client %d of two a second went after %s, want at least %s", i+1, took, least)
		}
	}
}
