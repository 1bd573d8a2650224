package e2e

import (
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Wrong usage ends every command with 2 and one sentence, which suggests what is near to a typing mistake.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	folder := settingsFolder(t)
	for _, c := range []struct {
		status    int
		env, args string
		want      string
	}{
		{2, "", "serv",
			`gatehouse: "serv" is no command of gatehouse; did you mean send or serve?; want one …`},
		{2, "", "unlock", `gatehouse: "unlock" is no command of gatehouse; want one of … serve …`},
		{2, "", "--versio", "gatehouse: unknown flag: --versio; did you mean --version?"},
		{2, "", "serve --htp :1", "gatehouse: unknown flag: --htp; did you mean --http…?"},
		{2, "", "serve --maxnames 5", "gatehouse: unknown flag: --maxnames; did you mean --max-names?"},
		{2, "", "serve --no-such-flag", "gatehouse: unknown flag: --no-such-flag"},
		{2, "", "serve -p", "gatehouse: unknown shorthand flag: 'p' in -p"},
		{2, "", "serve --http", "gatehouse: flag needs an argument: --http"},
		{2, "", "serve now", `gatehouse: gatehouse serve takes flags only, and was given "now"; see …--help`},
		{2, "", "serve --max-names abc", `gatehouse: --max-names is "abc", want a whole number`},
		{2, "", "serve --keep 5", `gatehouse: --keep is "5", want a time such as 500ms, 10s or 24h`},
		{2, "", "serve --check=maybe", `gatehouse: --check is "maybe", want true or false`},
		{2, "GATEHOUSE_MAX_NAMES=abc", "serve",
			`gatehouse: GATEHOUSE_MAX_NAMES is "abc", want a whole number`},
		{2, "", "serve --http nonsense", "gatehouse: --http …nonsense…"},
		{2, "", "serve --check --http nonsense", "gatehouse: --http …nonsense…"},
		{2, "", "serve --check --cors foo", `gatehouse: --cors has "foo", want …`},
		{2, "", "serve --refusal-status 500", "gatehouse: --refusal-status is 500, want 408 or 429"},
		{1, "", "serve --config {}/none.yaml", "gatehouse: …none.yaml…"},
		{1, "", "serve --capacity-config {}/bad.yaml", "gatehouse: …bad.yaml:1:13…"},
		{2, "", "version --jsn", "gatehouse: unknown flag: --jsn; did you mean --json?"},
		{2, "", "version 1", "gatehouse: …"},
		{2, "", "simulate", "gatehouse: no scenario, want a file…"},
		{2, "", "simulate --seed x one",
			`gatehouse: --seed is "x", want a whole number that is not negative`},
		{1, "", "simulate eleventy", "gatehouse: …"},
		{2, "", "capacity gte",
			`gatehouse: "gte" is no command of gatehouse capacity; did you mean get?; want one …`},
		{2, "", "capacity get a", "gatehouse: …"},
		{2, "", "capacity get a x", "gatehouse: …"},
		{2, "", "data chek x",
			`gatehouse: "chek" is no command of gatehouse data; did you mean check?; want one …`},
		{2, "", "data check", "gatehouse: …"},
		{1, "", "data check {}/none", "gatehouse: …"},
		{2, "", "jarl now", `gatehouse: gatehouse jarl takes flags only, and was given "now"; see …--help`},
		{2, "", "jarl --requets 5", "gatehouse: unknown flag: --requets; did you mean --requests?"},
		{2, "", "completion fsh", "gatehouse: …"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "{}", folder))
		status, out, said := gatehouse(t, strings.Fields(c.env), args...)
		if status != c.status || !matches(c.want+"\n", said) || strings.Count(said, "\n") != 1 || out != "" {
			t.Errorf("%s gatehouse %s ended with %d, wrote %q and said %q, want %d and %q",
				c.env, c.args, status, out, said, c.status, c.want)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	t.Parallel()
	_, version, _ := gatehouse(t, nil, "version")
	for args, want := range map[string]string{
		"--version": version, "--help": "…completion…--version…", "": "…Usage:…serve…",
		"completion bash": "…complete…", "capacity": "…watch…", "data": "…dump…",
	} {
		if status, out, said := gatehouse(t, nil, strings.Fields(args)...); status != 0 || !matches(want,
			out) {
			t.Errorf("gatehouse %s ended with %d, wrote %q, %q, want %q", args, status, out, said, want)
		}
	}
}

// All ports that are taken are told at once, that of HTTP first.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	var taken []string
	for range 3 {
		listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		taken = append(taken, listener.Addr().String())
	}
	status, _, said := gatehouse(t, nil, "serve", "--http", taken[0], "--resp", taken[1], "--grpc", taken[2])
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	if status != 1 || len(lines) != 3 || !matches("gatehouse: listening for HTTP: …"+taken[0]+"…--http",
		lines[0]) ||
		!strings.Contains(said, taken[1]) || !strings.Contains(said, taken[2]) {
		t.Errorf("three ports that are taken: ended with %d and said\n%s\nwant all three, HTTP first", status,
			said)
	}
}

// On a terminal the server says in three lines where to look, what to try, and what it forgets.
func TestGreeting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ store, end string }{
		{"memory", "State is in memory only, and is lost when the server stops; --store disk:DIR keeps it."},
		{"disk:" + t.TempDir(), "State is kept in disk:/…."},
	} {
		screen, terminal := openTerminal(t)
		cmd := exec.CommandContext(t.Context(), binary(), "serve", "--http", "localhost:0",
			"--store", c.store)
		cmd.Stderr = terminal
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		journal := newJournal()
		go func() { journal.copy(screen); journal.close() }()
		ended, err := journal.await(func(line string) bool { return strings.HasPrefix(line, "State is ") })
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if err != nil || !matches(c.end, strings.TrimSpace(ended)) {
			t.Fatalf("on a terminal the server said\n%s\nwant %s", journal, c.end)
		}
		said := strings.ReplaceAll(journal.String(), "\r", "")
		_, rest, _ := strings.Cut(said, "Look around:  http://localhost:")
		port, rest, _ := strings.Cut(rest, "/ and /docs/\nTry it:       curl -i 'http://localhost:")
		again, rest, _ := strings.Cut(rest, "/v1/gcra/myapp/acquire?size=5&interval=60000'\n")
		if port == "" || port != again || !strings.HasPrefix(rest, "State is ") {
			t.Errorf("on a terminal the server said\n%s\nwant three lines", said)
		}
	}
	if said := shared().get(t, "/healthz"); !said.is("200 ok…") {
		t.Fatal(said)
	}
	s := start(t)
	if err := s.stop(); err != nil || strings.Contains(s.journal.String(), "Look around") {
		t.Errorf("without a terminal the server said\n%s\n%v, want no greeting", s.journal, err)
	}
}

// The log of requests has words for kinds and operations, in every form.
func TestDebugLogHasWords(t *testing.T) {
	t.Parallel()
	s := start(t, "--log-level", "debug")
	s.want(t, "/v1/event/e/send", "204")
	dialRedis(t, s.redisAddress(t)).want("GH.COUNT counter/c", "1")
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`"kind":"event","name":"e","op":"send","outcome":"granted","status":204`,
		`"kind":"counter","name":"c","op":"count"`,
	} {
		if !strings.Contains(s.journal.String(), want) {
			t.Errorf("the log has no %s, but\n%s", want, s.journal)
		}
	}
}
