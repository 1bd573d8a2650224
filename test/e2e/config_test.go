package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// configFile writes a configuration file, {} standing for a free port, and returns its path.
func configFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gatehouse.yaml")
	for strings.Contains(text, "{}") {
		text = strings.Replace(text, "{}", freePort(t), 1)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// One name is one limiter, through whatever listener and door.
func TestConfiguredListeners(t *testing.T) {
	t.Parallel()
	path := configFile(t, `
http: localhost:0
jarl:
  - {listen: "127.0.0.1:{}", name: github, requests: 3, period: 1h}
  - {listen: "[::1]:{}", name: github, requests: 3, period: 1h}
  - {listen: "127.0.0.1:0", name: a b/c, requests: 1, period: 500ms, mode: poll}
`)
	s, err := launch(t.Context(), settings{flags: []string{"--config", path}})
	if err != nil {
		t.Fatal(err)
	}
	first, second := *s, *s
	first.address = s.jarlAddress(t, `github","requests":3,"period":"1h0m0s","mode":"reserve"`)
	line, err := s.journal.await(func(line string) bool {
		return strings.Contains(line, `"[::1]:`) && strings.Contains(line, "JARL")
	})
	if err != nil {
		t.Fatal(err)
	}
	second.address = loggedAddress(line)
	if got := first.seconds(t) + second.seconds(t); got != 0 {
		t.Errorf("of three an hour the first two wait %.3f s, want 0", got)
	}
	acquire := "/v1/pace/github/acquire?size=3&interval=3600000&maxwait=0"
	s.want(t, acquire, "204")
	s.want(t, acquire, "408")
	for _, l := range []*server{&first, &second} {
		if got := l.seconds(t); got < 3500 || got > 3600 {
			t.Errorf("the fourth and fifth wait %.3f s, want an hour", got)
		}
	}
	s.want(t, "/v1/pace/a%20b%2Fc/acquire?interval=500", "204")
	third := *s
	third.address = s.jarlAddress(t, "a b/c")
	if got := third.seconds(t); got > 0.5 {
		t.Errorf("the listener of the other name answers %.3f s, want at most 0.5", got)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// Nobody overtakes: who connects while somebody waits by HTTP is answered after that one.
func TestListenerAndWaiter(t *testing.T) {
	t.Parallel()
	path := configFile(t, "jarl: [{listen: '127.0.0.1:0', name: api, requests: 1, period: 10s}]\n")
	s := start(t, "--config", path)
	l := *s
	l.address = s.jarlAddress(t, "api")
	if got := l.seconds(t); got != 0 {
		t.Errorf("the first waits %.3f s, want 0", got)
	}
	w := s.wait(t, "/v1/pace/api/acquire?interval=10000")
	if got := l.seconds(t); got != 0 {
		t.Errorf("one behind a waiter was told %.3f, want 0 when it is its turn", got)
	}
	if a := w.answer(); !a.is("204") {
		t.Errorf("the waiter got %s, want 204", a)
	}
}

// The flag wins over the environment, that over the file, and the file over the default.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	path := configFile(t, "http: 127.0.0.1:{}\nmax-names: 1\nlog-level: debug\ncors: [https://a.example]\n")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	filed := strings.Fields(string(text))[1]
	for _, c := range []struct {
		env   string
		flags []string
		names int // how many there is room for
		http  string
		debug bool
	}{
		{"", []string{"--config", path}, 1, filed, true},
		{"GATEHOUSE_CONFIG=" + path, nil, 1, filed, true},
		{"GATEHOUSE_MAX_NAMES=2 GATEHOUSE_HTTP=127.0.0.1:0 GATEHOUSE_CONFIG=" + path, nil, 2, "…", true},
		{"BOUNCER_LOGLEVEL=info", []string{"--config", path}, 1, filed, false},
		{"GATEHOUSE_MAX_NAMES=2 GATEHOUSE_CONFIG=/nowhere", []string{
			"--max-names", "3", "--config", path, "--http", "127.0.0.1:0", "--log-level", "info",
		}, 3, "…", false},
	} {
		s, err := launch(t.Context(), settings{flags: c.flags, env: strings.Fields(c.env)})
		if err != nil {
			t.Fatal(err)
		}
		if !matches(c.http, s.address) {
			t.Errorf("%s serve %v is at %s, want %s", c.env, c.flags, s.address, c.http)
		}
		for i := range c.names {
			s.want(t, fmt.Sprintf("/v1/semaphore/s%d/acquire?expires=0", i), "200")
		}
		s.want(t, "/v1/semaphore/more/acquire?expires=0", "503")
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(s.journal.String(), `"DEBUG"`); got != c.debug {
			t.Errorf("%s serve %v logs at level debug: %t, want %t", c.env, c.flags, got, c.debug)
		}
	}
}

// A file is refused as a whole, with all that is wrong in it, whatever flags say besides.
func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, want string }{
		{"max-name: 1\n", `gatehouse: {}:1:1: "max-name" is no setting, want one of http, … or servers`},
		{"config: other.yaml\n", `gatehouse: {}:1:1: "config" is no setting, …`},
		{"max-names: many\n", `gatehouse: {}:1:12: max-names is "many", want a whole number`},
		{"max-names: 1.0\n", `gatehouse: {}:1:12: max-names is "1.0", want a whole number`},
		{"max-names: [1, 2]\n", `gatehouse: {}:1:12: max-names is "1, 2", want one value`},
		{"\n\nmax-line:   0\n", `gatehouse: {}:3:13: max-line is not above 0`},
		{"keep: 5\n", `gatehouse: {}:1:7: keep is "5", want a time such as 500ms, 10s or 24h`},
		{"keep: 1000000h\n", `gatehouse: {}:1:7: keep is 1000000h0m0s, want at most 100 years`},
		{"store: shelf\nlog-level: loud\nlog-format: xml\n", `gatehouse: {} has 3 faults:
{}:1:8: store is "shelf", want memory, disk:DIR, …
{}:2:12: log-level is "loud", want debug, info, warn or error
{}:3:13: log-format is "xml", want text, json or auto`},
		{"http: localhost\njarl:\n  - listen: :99999\n    naem: x\n", `gatehouse: {} has 6 faults:
{}:1:7: http is "localhost", want a host and a port such as localhost:5001 or 0.0.0.0:5001
{}:3:5: a listener has no name
{}:3:5: a listener has no requests
{}:3:5: a listener has no period
{}:3:13: listen is ":99999", want a host and a port such as localhost:5001 or 0.0.0.0:5001
{}:4:5: "naem" is no setting of a listener, want one of ` +
			"listen, name, requests, period, mode, guard, max-delay or allow"},
		{"{", "gatehouse: {}:…: not YAML: …"},
	} {
		path := configFile(t, c.file)
		want := strings.ReplaceAll(c.want, "{}", path) + "\n"
		for _, more := range []string{"", "--check", "--http=localhost:0 --max-names=5 --max-line=5"} {
			args := append([]string{"serve", "--config", path}, strings.Fields(more)...)
			status, out, said := gatehouse(t, nil, args...)
			if status != 1 || !matches(want, said) || out != "" {
				t.Errorf("%v with\n%s\nended with %d, wrote %q and said\n%s\nwant 1 and\n%s",
					args, c.file, status, out, said, want)
			}
		}
	}
}

func TestConfigUnreadable(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/nowhere/gatehouse.yaml": "…reading the configuration: open /nowhere/gatehouse.yaml: no such file…",
		"/":                       "…reading the configuration: …directory…",
		"/dev/zero":               "…reading the configuration: /dev/zero is larger than 1048576 bytes…",
	} {
		status, _, said := gatehouse(t, nil, "serve", "--config", path)
		if status != 1 || !matches(want, said) {
			t.Errorf("serve --config %s ended with %d and said %q, want 1 and %q", path, status, said, want)
		}
	}
}

// All addresses must be to be had before anybody is served.
func TestConfiguredPortInUse(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(shared().address)
	path := configFile(t, "http: localhost:0\njarl:\n"+
		"  - {listen: 'localhost:"+port+"', name: a, requests: 1, period: 1s}\n")
	status, _, said := gatehouse(t, nil, "serve", "--config", path)
	want := "gatehouse: listening for JARL: …in use; choose another address at " + path + ":3:5\n"
	if status != 1 || !matches(want, said) {
		t.Errorf("a listener at a port in use ended with %d and said %q, want 1 and %q", status, said, want)
	}
}

func TestCheckOnly(t *testing.T) {
	t.Parallel()
	path := configFile(t, "jarl: [{listen: ':5001', name: a, requests: 1, period: 1s}]\n")
	for _, c := range []struct {
		args   string
		status int
		out    string
	}{
		{"serve --check", 0, "the settings are valid\n"},
		{"serve --check --config " + path, 0, "the settings are valid\n"},
		{"serve --check --config " + path + " --http=", 0, "the settings are valid\n"},
		{"serve --check --config " + path + " --max-names 0", 2, ""},
		{"serve --check --http= --resp= --grpc=", 2, ""},
	} {
		status, out, said := gatehouse(t, nil, strings.Fields(c.args)...)
		if status != c.status || out != c.out || (status == 0) != (said == "") {
			t.Errorf("%s ended with %d, wrote %q and said %q, want %d and %q",
				c.args, status, out, said, c.status, c.out)
		}
	}
}

// The example of the documentation is valid, and its table has all flags.
func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	status, _, said := gatehouse(t, nil, "serve", "--check", "--config", configFile(t, example))
	if status != 0 || !strings.Contains(example, "jarl:") {
		t.Errorf("the example is answered with %d and %q, want 0; it is\n%s", status, said, example)
	}
	_, help, _ := gatehouse(t, nil, "serve", "--help")
	_, help, _ = strings.Cut(help, "Flags:")
	flags := make(map[string]string) // their defaults
	for line := range strings.Lines(help) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, value, ok := strings.Cut(rest, "(default "); ok {
			flags[name] = strings.Trim(strings.TrimSpace(value), `")`)
		} else if strings.HasPrefix(name, "--") {
			flags[name] = ""
		}
	}
	for name, value := range flagRows(string(page)) {
		want, ok := flags[name]
		if given, err := time.ParseDuration(value); err == nil {
			value = given.String()
		}
		// What flags have no default for may be worked out from others.
		if !ok || want != "" && value != want {
			t.Errorf("docs/configuration.md has %s with the default %q, serve --help %q", name, value, want)
		}
		delete(flags, name)
	}
	for name := range flags {
		t.Errorf("docs/configuration.md lacks the flag %s", name)
	}
}

// flagRows are the flags of the table of a page, and their defaults.
func flagRows(page string) map[string]string {
	rows := make(map[string]string)
	for line := range strings.Lines(page) {
		cells := strings.Split(line, " | ")
		if name, ok := strings.CutPrefix(cells[0], "| `--"); ok && len(cells) > 1 {
			rows["--"+strings.Trim(name, "`")] = strings.Trim(cells[1], "`")
		}
	}
	return rows
}

// With a listener the HTTP door may be closed.
func TestListenersAlone(t *testing.T) {
	t.Parallel()
	path := configFile(t, "http: ''\njarl: [{listen: '127.0.0.1:0', name: a, requests: 1, period: 1s}]\n")
	s := startProcess(t, binary(), "serve", "--config", path)
	if got := s.seconds(t); got != 0 {
		t.Errorf("the first answer is %.3f, want 0", got)
	}
	if strings.Contains(s.journal.String(), "serving HTTP") {
		t.Errorf("it serves HTTP, want JARL alone; it said\n%s", s.journal)
	}
}
