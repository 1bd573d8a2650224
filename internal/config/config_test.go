package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
)

func known() config.Known {
	return config.Known{
		Settings:  []string{"http", "resp", "cors", "max-names"},
		Addresses: []string{"http", "resp"},
	}
}

// load reads a file with this text.
func load(t *testing.T, text string) *config.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gatehouse.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, known())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFile(t *testing.T) {
	f := load(t, `# all there is
http: localhost:5505
resp: ""
cors: [https://a.example, 'https://b.example']
max-names: 5000
jarl:
  - listen: 0.0.0.0:5001
    name: github
    requests: 5000
    period: 1h
    mode: paced
    guard: 5ms
    max-delay: 1m
    allow: [10.1.2.3/8, "::1"]
  - {listen: ":5002", name: github, requests: 5000, period: 60m, mode: paced, guard: 5ms}
  - {listen: "[::1]:0", name: ü/x, requests: 1, period: 500ms, mode: poll, allow: 127.0.0.1}
`)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	settings := []config.Setting{
		{"http", []string{"localhost:5505"}, yamlnode.Position{Line: 2, Column: 7}},
		{"resp", []string{""}, yamlnode.Position{Line: 3, Column: 7}},
		{"cors", []string{"https://a.example", "https://b.example"}, yamlnode.Position{Line: 4, Column: 7}},
		{"max-names", []string{"5000"}, yamlnode.Position{Line: 5, Column: 12}},
	}
	if !reflect.DeepEqual(f.Settings, settings) {
		t.Errorf("the settings = %+v, want %+v", f.Settings, settings)
	}
	github := jarl.PaceLimit{
		Name: "github", Requests: 5000, Period: time.Hour,
		Mode: gatehouse.ModePaced, Guard: 5 * time.Millisecond,
	}
	polled := jarl.PaceLimit{Name: "ü/x", Requests: 1, Period: 500 * time.Millisecond, Poll: true}
	admits := jarl.Admission{MaxDelay: time.Minute, Allow: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	}}
	local := jarl.Admission{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	listeners := []config.Listener{
		{"0.0.0.0:5001", github, admits, yamlnode.Position{Line: 7, Column: 5}},
		{":5002", github, jarl.Admission{}, yamlnode.Position{Line: 15, Column: 5}},
		{"[::1]:0", polled, local, yamlnode.Position{Line: 16, Column: 5}},
	}
	if !reflect.DeepEqual(f.JARL, listeners) {
		t.Errorf("the listeners = %+v, want %+v", f.JARL, listeners)
	}
}

func TestNothingIsAFile(t *testing.T) {
	for _, text := range []string{"", "\n", "# only words\n", "---\n", "{}", "jarl: []", "\ufeff"} {
		if f := load(t, text); f.Err() != nil || len(f.Settings)+len(f.JARL) > 0 {
			t.Errorf("%q = %v, %+v, want nothing and no fault", text, f.Err(), f)
		}
	}
}

// mistakes are files and their faults, as line:column: text, in order.
var mistakes = []struct{ fact, file, faults string }{
	{"a misspelt setting", "http: :1\nmax-name: 5\n",
		`2:1: "max-name" is no setting, want one of http, resp, cors, max-names, jarl, rules or servers`},
	{"a setting twice", "http: :1\ncors: a\nhttp: :2\n", "3:1: http is set twice, first in line 1"},
	{"no value", "http:\n", `1:6: http has no value; "" is an empty one`},
	{"a mapping for a value", "http: {a: b}\n", "1:7: http is a mapping, want one value"},
	{"a mapping in a list", "cors: [a, {a: b}]\n", "1:11: cors is a mapping, want one value"},
	{"a list", "- http\n", "1:1: a list here, want settings such as http: …"},
	{"a word", "hello\n", "1:1: a single value here, want settings such as http: …"},
	{"a tag", "http: !!str 5\n", "1:7: http has the tag !!str, want a value without a tag"},
	{"an alias", "http: &a :1\nresp: *a\n", "2:7: resp is an alias, which is not known here, …"},
	{"a merge", "<<: {http: a}\n", `1:1: "<<" is no setting, want one of …`},
	{"a key that is none", "[a]: b\n", "1:1: a list is no setting, want one of …"},
	{"no YAML", "http: [\n", "…: …"},
	{"a tab", "jarl:\n\t- listen: :1\n", "2:1: …"},
	{"two documents", "http: :1\n---\nhttp: :2\n", "2:1: a second document begins here, want one"},
	{"an address without a port", "http: localhost\n",
		`1:7: http is "localhost", want a host and a port such as localhost:5001 or 0.0.0.0:5001`},
	{"a port too high", "http: :65536\n", `1:7: http is ":65536", want a host and a port …`},
	{"a port by name", "resp: :redis\n", `1:7: resp is ":redis", want a host and a port …`},

	{"listeners that are no list", "jarl: {listen: a}\n", "1:7: jarl is a mapping, want a list of listeners"},
	{"a listener that is none", "jarl: [5001]\n", "1:8: a single value here, want settings …"},
	{"an empty listener", "jarl:\n  - {}\n", `2:5: a listener has no listen
		2:5: a listener has no name
		2:5: a listener has no requests
		2:5: a listener has no period`},
	{"a misspelt setting of a listener", "jarl:\n  - listen: :1\n    name: a\n    reqs: 1\n    period: 1s\n",
		`2:5: a listener has no requests
		4:5: "reqs" is no setting of a listener, want one of listen, …or allow`},
	{"all wrong", `
jarl:
  - listen: 5001
    name: "a\tb"
    requests: 0
    period: 60
    mode: fast
    guard: -1ms
`, `3:13: listen is "5001", want a host and a port such as localhost:5001 or 0.0.0.0:5001
		5:15: requests is "0", want a whole number from 1 to 999999999999999
		6:13: period is "60", want a time above 0 such as 500ms, 60s or 1h, at most 100 years
		7:11: mode is "fast", want reserve, paced, classic or poll
		8:12: guard is "-1ms", want a time such as 5ms or 1s, at most 100 years`},
	{"a name that cannot be", "jarl: [{listen: ':1', name: \"a\\tb\", requests: 1, period: 1s}]\n",
		`1:29: pace: name "a\tb" has a control character`},
	{"numbers of other kinds", `jarl:
  - {listen: ":1", name: a, requests: 1e3, period: 1s}
  - {listen: ":2", name: b, requests: 0x10, period: 0s}
  - {listen: ":3", name: c, requests: 1000000000000000, period: 1000000h}
`, `2:39: requests is "1e3", want …
		3:39: requests is "0x10", want …
		3:53: period is "0s", want a time above 0 …
		4:39: requests is "1000000000000000", want …
		4:65: period is "1000000h", want …`},

	{"an address twice", `http: localhost:5001
jarl:
  - {listen: "LOCALHOST:5001", name: a, requests: 1, period: 1s}
  - {listen: "127.0.0.1:5002", name: b, requests: 1, period: 1s}
  - {listen: ":5002", name: c, requests: 1, period: 1s}
  - {listen: "[::ffff:127.0.0.1]:5002", name: d, requests: 1, period: 1s}
  - {listen: "127.0.0.2:5002", name: e, requests: 1, period: 1s}
`, `3:14: the address "LOCALHOST:5001" is taken by that in line 1
		5:14: the address ":5002" is taken by that in line 4
		6:14: the address "[::ffff:127.0.0.1]:5002" is taken by that in line 4
		7:14: the address "127.0.0.2:5002" is taken by that in line 5`},
	{"one limiter with two limits", `jarl:
  - {listen: ":1", name: a, requests: 1, period: 1s}
  - {listen: ":2", name: a, requests: 1, period: 1000ms, mode: poll}
  - {listen: ":3", name: a, requests: 2, period: 1s}
`, `4:5: the limiter "a" has another limit than in the listener in line 2`},
	{"faults everywhere", "jarl:\n  - {}\nhttp: 1\nx: 1\n", `2:5: a listener has no listen
		2:5: a listener has no name
		2:5: a listener has no requests
		2:5: a listener has no period
		3:7: http is "1", want …
		4:1: "x" is no setting, want …`},
}

func TestFaults(t *testing.T) {
	for _, m := range mistakes {
		f := load(t, m.file)
		wanted := strings.Split(m.faults, "\n")
		want := "…has " + strconv.Itoa(len(wanted)) + " faults:\n"
		if len(wanted) == 1 {
			want = ""
		}
		for _, fault := range wanted {
			want += "…gatehouse.yaml:" + strings.TrimSpace(fault) + "\n"
		}
		if got := fmt.Sprint(f.Err()) + "\n"; !like(want, got) {
			t.Errorf("%s:\n%s\nis answered with\n%s\nwant\n%s", m.fact, m.file, got, want)
		}
	}
}

// like reports whether a text is as wanted, where "…" stands for anything in a line.
func like(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

func TestLimits(t *testing.T) {
	entries := func(n int) string {
		var text strings.Builder
		text.WriteString("jarl:\n")
		for i := range n {
			fmt.Fprintf(&text, "- {listen: ':%d', name: n%d, requests: 1, period: 1s}\n", i+1, i)
		}
		return text.String()
	}
	if f := load(t, entries(config.MaxListeners)); f.Err() != nil || len(f.JARL) != config.MaxListeners {
		t.Errorf("%d listeners = %v, want them", config.MaxListeners, f.Err())
	}
	f := load(t, entries(config.MaxListeners+1))
	if want := "…:2:1: jarl has 101 listeners, want at most 100"; !like(want, fmt.Sprint(f.Err())) {
		t.Errorf("one listener too many = %v, want %q", f.Err(), want)
	}
	if f := load(t, strings.Repeat("a: b\n", 70)); strings.Count(f.Err().Error(), "\n") != 51 ||
		!strings.HasSuffix(f.Err().Error(), "\nand 20 more") {
		t.Errorf("70 faults = %v, want 50 of them and how many more", f.Err())
	}
	if f := load(t, "x"+strings.Repeat("#", config.MaxSize-8)+": 1\n"); len(f.Err().Error()) > 500 {
		t.Errorf("a long key makes an error of %d bytes, want a short one", len(f.Err().Error()))
	}
}

func TestUnreadable(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large.yaml")
	if err := os.WriteFile(large, make([]byte, config.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		large:                            "is larger than 1048576 bytes",
		filepath.Join(folder, "no.yaml"): "no such file",
		folder:                           "is a directory",
	} {
		if _, err := config.Load(path, known()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load of %s = %v, want %q", path, err, want)
		}
	}
}

// What the command notes has its place among the faults.
func TestFault(t *testing.T) {
	f := load(t, "http: 1\n\nx: 1\n")
	f.Fault(yamlnode.Position{Line: 2, Column: 1}, "nothing is %s", "here")
	want := "…has 3 faults:\n…:1:7: http…\n…:2:1: nothing is here\n…:3:1: …"
	if got := f.Err().Error(); !like(want, got) {
		t.Errorf("the faults are\n%s\nwant\n%s", got, want)
	}
}
