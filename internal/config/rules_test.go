package config_test

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"pgregory.net/rapid"
)

func TestRules(t *testing.T) {
	f := load(t, `servers: 3
rules:
  - match: tokenbucket/login/*
    on-unreachable: local-share
  - {match: gcra/api-?, on-unreachable: allow, lazy: 100ms}
  - {match: '*window/[a-c]*', on-unreachable: refuse}
  - {match: '*bucket/bulk', lazy: 1s, chunk: 50}
  - {match: limiter/*, on-unreachable: allow}
  - match: '*'
`)
	if err := f.Err(); err != nil || f.Servers != 3 || len(f.Rules) != 6 || !f.Rules.Lazy() {
		t.Fatalf("the file = %+v, %v, want 6 rules, lazy ones among them, for 3 servers", f, err)
	}
	api := config.StoreRule{Match: "gcra/api-?", OnUnreachable: fallback.Allow, Lazy: 100 * time.Millisecond}
	for name, want := range map[string]config.StoreRule{
		"tokenbucket/login/a/b": {Match: "tokenbucket/login/*", OnUnreachable: fallback.LocalShare},
		"tokenbucket/login/":    {Match: "tokenbucket/login/*", OnUnreachable: fallback.LocalShare},
		"tokenbucket/login":     {Match: "limiter/*", OnUnreachable: fallback.Allow},
		"gcra/api-ü":            api,
		"gcra/api-/":            api,
		"gcra/api-12":           {Match: "limiter/*", OnUnreachable: fallback.Allow},
		"slidingwindow/b/x":     {Match: "*window/[a-c]*"},
		"fixedwindow/d":         {Match: "limiter/*", OnUnreachable: fallback.Allow},
		"tokenbucket/bulk":      {Match: "*bucket/bulk", Lazy: time.Second, Chunk: 50},
		"pace/gcra/api-1":       {Match: "limiter/*", OnUnreachable: fallback.Allow},
		"semaphore/login/a":     {Match: "*"},
		"event/x":               {Match: "*"},
	} {
		kind, rest, _ := strings.Cut(name, "/")
		k, _ := gatehouse.ParseKind(kind)
		got := f.Rules.Find(gatehouse.Key{Kind: k, Name: rest})
		if got.Match != want.Match || got.OnUnreachable != want.OnUnreachable || got.Lazy != want.Lazy ||
			got.Chunk != want.Chunk {
			t.Errorf("the rule for %s = %+v, want %+v", name, got, want)
		}
	}
	var none config.Rules
	if r := none.Find(gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}); r.Match != "" {
		t.Errorf("without rules that for a lock = %+v, want none", r)
	}
}

// ruleMistakes are one rule each, and its faults behind the line, which is 2.
var ruleMistakes = []struct{ rule, faults string }{
	{"5", "3: a single value here, want settings such as match: …"},
	{"{}", "3: a rule has no match"},
	{"{match: a, when: b}", `14: "when" is no setting of a rule, want one of match, …;` +
		`11: match is "a", want a pattern such as gcra/api-*, limiter/* or *`},
	{"{match: 'gcra/[a'}", `11: match is "gcra/[a", want a pattern such as …`},
	{"{match: 'gcra/[z-a]'}", `11: match is "gcra/[z-a]", want a pattern such as gcra/api-*, with ranges …`},
	{"{match: gcar/*}", `11: match is "gcar/*", want a kind of controller before the slash, such as …`},
	{"{match: 'gcra/*', on-unreachable: open}",
		"37: on-unreachable is \"open\", want refuse, allow or local-share"},
	{"{match: 'gcra/*', lazy: 0s}", `27: lazy is "0s", want a time from 1ms to 1m0s`},
	{"{match: 'gcra/*', lazy: 2m}", `27: lazy is "2m", want a time from 1ms to 1m0s`},
	{"{match: 'gcra/*', lazy: 1s, chunk: 0}", `38: chunk is "0", want a whole number from 1 to …`},
	{"{match: 'tokenbucket/*', chunk: 5}", "35: chunk is given without lazy, …"},
	{"{match: 'gcra/*', lazy: 1s, chunk: 5}",
		"38: chunk is given, also for every gcra, want it for tokenbucket …"},
	{"{match: '*', on-unreachable: allow}",
		"32: on-unreachable is allow, also for every semaphore, want refuse …"},
	{"{match: 'lock/*', on-unreachable: local-share}",
		"37: on-unreachable is local-share, also for every lock, want refuse there: only limiters can …"},
	{"{match: 'co*/*', lazy: 1s}",
		"26: lazy is given, also for every counter, want it for limiters alone: …"},
	{"{match: 'gcra/*', on-unreachable: local-share}",
		"37: on-unreachable is local-share, but servers does not say how many share the store"},
}

func TestRuleMistakes(t *testing.T) {
	for _, m := range ruleMistakes {
		f := load(t, "rules:\n- "+m.rule+"\n")
		for want := range strings.SplitSeq(m.faults, ";") {
			if got := fmt.Sprint(f.Err()); !like("…:2:"+want+"…", strings.ReplaceAll(got, "\n", " ")) {
				t.Errorf("the rule %s is answered with\n%s\nwant\n%s", m.rule, got, want)
			}
		}
	}
	for text, want := range map[string]string{
		"rules: {match: a}\n": "…:1:8: rules is a mapping, want a list of rules",
		"servers: none\n":     `…:1:10: servers is "none", want a whole number from 1 to 1000`,
		"servers: 0\n":        `…:1:10: servers is "0", want …`,
		"servers: [3]\n":      "…:1:10: servers is a list, want one value",
		"rules:\n" + strings.Repeat("- match: '*'\n", 101): "…:2:1: rules has 101 rules, want at most 100",
	} {
		if got := fmt.Sprint(load(t, text).Err()); !like(want, got) {
			t.Errorf("%q is answered with %q, want %q", text, got, want)
		}
	}
}

// A glob is that of path.Match, but for the slash, which no star and no range stops at.
func TestGlobs(t *testing.T) {
	pattern := rapid.StringMatching(
		`([abü.\\*?^$|(){}+-]|\[\^?[a-c](-[x-z])?[.\\^|]{0,2}\]|\\[*\[\]a-]){0,6}`)
	rapid.Check(t, func(r *rapid.T) {
		glob := pattern.Draw(r, "glob")
		letters := rapid.RuneFrom([]rune("abcxyzü.\\*?^$|-]"))
		name := rapid.StringOfN(letters, 1, 6, -1).Draw(r, "name")
		want, bad := path.Match(glob, name)
		f := load(t, "rules:\n- match: "+strconv.Quote("gcra/"+glob)+"\n")
		if bad == nil && f.Err() != nil && strings.Contains(f.Err().Error(), "with ranges such as [a-z]") {
			return // a range that runs backwards, which path.Match takes and no name can match
		}
		if (f.Err() != nil) != (bad != nil) {
			r.Fatalf("%q is answered with %v, by path.Match with %v", glob, f.Err(), bad)
		}
		if bad != nil {
			return
		}
		got := f.Rules.Find(gatehouse.Key{Kind: gatehouse.GCRA, Name: name}).Match != ""
		if got != want {
			r.Fatalf("%q matches %q: %t, want %t", glob, name, got, want)
		}
	})
}
