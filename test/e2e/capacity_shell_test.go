package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// say gives the shell lines.
func (p *process) say(t *testing.T, lines ...string) {
	t.Helper()
	if _, err := p.in.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
}

// shows asks a shell that writes JSON for all it has, until that is so: resource, client and capacity with at
// most four digits behind the point.
func (p *process) shows(t *testing.T, want string) {
	t.Helper()
	seen := ""
	until(t, fmt.Sprintf("the shell shows %s", want), func() bool {
		before, _, _ := p.out.all()
		p.say(t, "show")
		var all []printedLease
		for len(all) == 0 {
			lines, ended, grown := p.out.all()
			if ended {
				t.Fatalf("the shell ended; it said %s", p.said)
			}
			if len(lines) == len(before) {
				<-grown
				continue
			}
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &all); err != nil {
				t.Fatalf("the shell shows %s: %v", lines[len(lines)-1], err)
			}
		}
		seen = ""
		for _, l := range all {
			seen += fmt.Sprintf("%s %s %.6g, ", l.Resource, l.Client, l.Capacity)
		}
		return seen == want
	})
}

// The story of doorman's tutorial: four clients that want little, one that takes the rest, and one that comes
// later and wants more.
func TestCapacityShellTellsTheTutorial(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	p := startTool(t, "capacity", "shell", "--server", at, "--json")
	for i := range 4 {
		p.say(t, fmt.Sprintf("get small%d proportional 10", i+1))
	}
	p.say(t, "get big proportional 500")
	p.shows(t, "proportional big 60, proportional small1 10, proportional small2 10, "+
		"proportional small3 10, proportional small4 10, ")
	p.say(t, "get bigger proportional 1000")
	p.shows(t, "proportional big 25.4545, proportional bigger 34.5455, proportional small1 10, "+
		"proportional small2 10, proportional small3 10, proportional small4 10, ")
	p.say(t, "release bigger proportional")
	p.shows(t, "proportional big 60, proportional small1 10, proportional small2 10, "+
		"proportional small3 10, proportional small4 10, ")
	p.say(t, "bye")
	if status := p.end(t); status != 0 || p.said.String() != "" {
		t.Errorf("the shell ended with %d and said %s, want 0 and nothing", status, p.said)
	}
	if a := s.get(t, "/capacity/proportional?format=json"); strings.Contains(a.body, `"client_id"`) {
		t.Errorf("after the shell ended there are still leases: %s", a)
	}
}

// From a pipe there is no prompt, and what goes well is silent.
func TestCapacityShellFromAPipe(t *testing.T) {
	t.Parallel()
	_, at := startShares(t)
	p := startTool(t, "capacity", "shell", "--server", at)
	p.say(t, `get "two words" 'a "name"' 3.5`, "", "  # a remark", "get x other 2", "show", "master",
		`release "two words" 'a "name"'`, "show", "q", "get never read 1")
	if status := p.end(t); status != 0 {
		t.Errorf("the shell ended with %d and said %s, want 0", status, p.said)
	}
	want := "CLIENT…RESOURCE…CAPACITY…LEASE\ntwo words…a \"name\"…3.5…until …:…:…\nx…other…2…until …\n" +
		"CLIENT…MASTER\ntwo words…" + at + "\nx…" + at + "\n" +
		"CLIENT…RESOURCE…CAPACITY…LEASE\nx…other…2…until …"
	if got := p.out.String(); !matches(want, got) || strings.Contains(got, ">") {
		t.Errorf("the shell wrote\n%s\nwant\n%s", got, want)
	}
}

func TestCapacityShellMistakes(t *testing.T) {
	t.Parallel()
	_, at := startShares(t)
	for _, c := range []struct{ line, want string }{
		{"frob", `ERROR: command "frob" is unknown, want get, release, show, master, help or quit`},
		{"get x r", "ERROR: get has 2 words behind it, want CLIENT RESOURCE CAPACITY"},
		{"get x r 0", "ERROR: wants must be > 0.0; to give it back, use: release x r"},
		{"get x r NaN", `ERROR: "NaN" is no amount, want a number from 0 on`},
		{"get x r -1", `ERROR: "-1" is no amount, want a number from 0 on`},
		{`get "" r 1`, `ERROR: client "" cannot be had: want a name, and at most 1000 of them`},
		{`get x "" 1`, `ERROR: resource: the name has 0 bytes, want 1 to 512`},
		{`get x "r 1`, `ERROR: line is "get x \"r 1", want each quote closed`},
		{"release x r", `ERROR: client "x" has no resource "r"`},
		{"show all", "ERROR: show has 1 words behind it, want none"},
	} {
		p := startTool(t, "capacity", "shell", "--server", at)
		p.say(t, c.line, "get y good 1", "release y good")
		_ = p.in.Close() // the end of the input ends it too
		status, said := p.end(t), p.said.String()
		if want := c.want + "\ngatehouse: 1 commands of the shell failed"; status != 1 || said != want {
			t.Errorf("%s: the shell ended with %d and said\n%s\nwant 1 and\n%s", c.line, status, said, want)
		}
		if p.out.String() != "" {
			t.Errorf("%s: the shell wrote %s, want nothing", c.line, p.out)
		}
	}
}

// Without a server the shell says so, and ends.
func TestCapacityShellWithoutAServer(t *testing.T) {
	t.Parallel()
	p := startTool(t, "capacity", "shell", "--server", "localhost:1", "--timeout", "5s")
	p.say(t, "get x r 1", "show", "q")
	status := p.end(t)
	if status != 1 || !matches("ERROR: no lease within 5s: …refused…", p.said.String()) {
		t.Errorf("the shell ended with %d and said %s, want 1 and why", status, p.said)
	}
	if !matches("CLIENT…\nx…r…0…no lease", p.out.String()) {
		t.Errorf("it shows\n%s\nwant x with 0 of r, and no lease", p.out)
	}
}

// openTerminal makes a terminal: what is written to the one end is typed at the other.
func openTerminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keys.Close(); _ = screen.Close() })
	return keys, screen
}

// escapes are what moves the cursor, and the like.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|\r`)

// At a terminal there is a prompt, and lines come again by the arrow keys and can be edited.
func TestCapacityShellAtATerminal(t *testing.T) {
	t.Parallel()
	_, at := startShares(t)
	keys, screen := openTerminal(t)
	cmd := exec.CommandContext(t.Context(), binary(), "capacity", "shell", "--server", at)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = screen.Close()
	seen := newJournal()
	go func() { seen.copy(keys); seen.close() }()
	typing := func(text, shown string) {
		t.Helper()
		if _, err := keys.WriteString(text); err != nil {
			t.Fatal(err)
		}
		wanted := func(line string) bool { return matches(shown, escapes.ReplaceAllString(line, "")) }
		if _, err := seen.await(wanted); err != nil {
			t.Fatal(err)
		}
	}
	typing("get ada r 5\r", "> get ada r 5")
	typing("show\r", "ada…r…5…until …")
	typing("\x1b[A\x1b[A\x7f7\r", "…get ada r 5…7") // up twice, and the 5 becomes a 7
	typing("get ada\r", "…ERROR: get has 1 words behind it, want CLIENT RESOURCE CAPACITY")
	until(t, "ada has 7", func() bool {
		typing("show\r", "ada…r…until …")
		return matches("…ada…r…7…until…", escapes.ReplaceAllString(seen.String(), ""))
	})
	if _, err := keys.WriteString("\x04"); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the shell ended with %v, want 0; it shows\n%s", err, seen)
	}
}
