//go:build linux

package e2e

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

// onTerminal runs a command to its end, and returns what a terminal got of it: on both streams, with line
// ends as programs write them.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	person, program := servertest.OpenTerminal(t)
	cmd := exec.CommandContext(t.Context(), binary(), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close()
	var text strings.Builder
	for screen := bufio.NewScanner(person); screen.Scan(); { // reading fails when no program has it open
		text.WriteString(strings.TrimSuffix(screen.Text(), "\r") + "\n")
	}
	_ = cmd.Wait()
	return text.String()
}

// What others have chosen is shown on a terminal, and not obeyed. Programs get the bytes.
func TestTerminalsAreSentNoCommands(t *testing.T) {
	t.Parallel()
	const (
		nasty = "\x1b]0;mine\a\x1b[2J\u009b31m\u202e.\tgreen\nend"
		shown = `\u001b]0;mine\u0007\u001b[2J\u009b31m\u202e.` + "\tgreen\nend\n"
		asked = `\u001b]0;mine\u0007\u001b[2J\u009b31m\u202e.\tgreen\nend` // in JSON
	)
	name, server := fresh(t), shared().address
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, nasty)
	}))
	defer liar.Close()
	for event, message := range map[string]string{
		name: nasty, "once/" + name + "/2026-10-01T03:00:00Z": "0\n" + nasty + "\n",
	} {
		status, _, said := gatehouse(t, nil, "send", "event/"+event, "--message", message, "--server", server)
		if status != 0 {
			t.Fatalf("send ended with %d and said %q", status, said)
		}
	}
	for _, c := range []struct {
		server string
		args   []string
		want   string
	}{
		{server, []string{"wait", "event/" + name}, shown},
		{server, []string{"wait", "event/" + name, "--json"}, asked},
		{server, []string{"acquire", "lock/" + name, "--key", "a\x1b[2J"}, `--key a\u001b[2J`},
		{server, []string{"acquire", "lock/a\x9b2J"}, `a\x9b2J`},
		{server, []string{"once", "--job", name, "--at", "2026-10-01T03:00Z", "--", "echo"}, shown},
		{strings.TrimPrefix(liar.URL, "http://"), []string{"health"}, shown},
	} {
		got := onTerminal(t, append([]string{c.args[0], "--server", c.server}, c.args[1:]...)...)
		if !strings.Contains(got, c.want) || strings.ContainsAny(got, "\x1b\a\u009b\u202e") {
			t.Errorf("%q shows %q on a terminal, want %q and no control characters", c.args, got, c.want)
		}
	}
	if _, out, _ := gatehouse(t, nil, "wait", "event/"+name, "--server", server); out != nasty+"\n" {
		t.Errorf("a program gets %q, want the bytes %q", out, nasty)
	}
}
