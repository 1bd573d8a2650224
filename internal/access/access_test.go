package access

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
)

// parse returns the policy of a text that has no faults.
func parse(tb testing.TB, text string) *Policy {
	tb.Helper()
	p, err := ParsePolicy("users.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// A policyLine is one of what a user may do.
type policyLine struct{ On, Do string }

// oracleMay is May in ten lines: all rules that match, and of these the one with the longest text before its
// first star, the later of equals.
func oracleMay(lines []policyLine, kind gatehouse.Kind, name string, level gatehouse.Level) bool {
	best, may := -1, false
	for _, line := range lines {
		ruleKind, ruleName, _ := strings.Cut(line.On, "/")
		kindMatches, _ := path.Match(ruleKind, glob.KindName(kind))
		nameMatches, _ := path.Match(ruleName, name)
		matches := line.On == "*" || (kindMatches || ruleKind == "limiter" && kind.Limiter()) && nameMatches
		head, _, _ := strings.Cut(line.On, "*")
		if does, _ := gatehouse.ParseLevel(line.Do); matches && len(head) >= best {
			best, may = len(head), does >= level
		}
	}
	return may
}

// TestMayAgainstOracle tries random policies on random names.
func TestMayAgainstOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	name := func() string {
		text := ""
		for range random.IntN(4) {
			text += pick("a", "b", "c")
		}
		return text
	}
	for range 2000 {
		var text strings.Builder
		var lines []policyLine
		text.WriteString("users:\n  - name: u\n    may:\n")
		for range 1 + random.IntN(8) {
			on := pick("limiter", "gcra", "lock", "*", "capacity", "server", "se*", "[gl]*") + "/" + name() +
				pick("", "*", "*", "?", "*a", "[ab]*")
			if random.IntN(8) == 0 {
				on = "*"
			}
			line := policyLine{on, pick("read", "use", "manage")}
			lines = append(lines, line)
			fmt.Fprintf(&text, "      - {on: %q, do: %s}\n", line.On, line.Do)
		}
		u := parse(t, text.String()).User("u")
		for range 40 {
			kind := gatehouse.Kind(1 + random.IntN(kinds-1))
			if kind == gatehouse.Grant {
				continue
			}
			called, level := name(), gatehouse.Level(1+random.IntN(3))
			if got, want := u.May(kind, called, level), oracleMay(lines, kind, called, level); got != want {
				t.Fatalf("May(%s/%s, %s) = %t, want %t under\n%s", glob.KindName(kind), called, level, got,
					want,
					text.String())
			}
			// What may be done with all names may be done with each.
			if u.MayAll(kind, called, level) && !u.May(kind, called+name(), level) {
				t.Fatalf("MayAll(%s/%s, %s) = true, but not May of a longer name under\n%s",
					glob.KindName(kind),
					called, level, text.String())
			}
		}
	}
}

func TestMayAllocatesNothing(t *testing.T) {
	u := parse(t, manyRules).User("ci")
	allocations := testing.AllocsPerRun(100, func() {
		u.May(gatehouse.Semaphore, "ci/build-1",
			gatehouse.LevelUse)
	})
	if allocations != 0 {
		t.Errorf("May allocates %v times, want 0", allocations)
	}
}

const manyRules = `users:
  - name: ci
    may:
      - {on: "*", do: read}
      - {on: "limiter/*", do: use, size: 1000}
      - {on: "semaphore/*", do: read}
      - {on: "semaphore/ci/*", do: use}
      - {on: "semaphore/ops/*", do: read}
      - {on: "semaphore/x?/[a-z]*", do: use}
      - {on: "lock/ci-*", do: manage}
      - {on: "semaphore/deploy", do: read}
`

func BenchmarkMay(b *testing.B) {
	u := parse(b, manyRules).User("ci")
	for b.Loop() {
		u.May(gatehouse.Semaphore, "ci/build-1", gatehouse.LevelUse)
	}
}

// TestFaults has each way in which a file can be wrong, with its place.
func TestFaults(t *testing.T) {
	hash := hashToken([]byte("t")).String()
	for _, test := range []struct{ text, want string }{
		{"", "1:1: the file is empty"},
		{"users: []", "users has none"},
		{"users: 3", "users is a single value, want a list"},
		{"people: []", `"people" is no setting`},
		{"users: [{may: []}]", "1:9: a user has no name"},
		{"users: [{name: a b}]", `1:16: name is "a b", want 1 to 64 letters`},
		{"users: [{name: a~b}]", `name is "a~b"`},
		{"users: [{name: a}, {name: a}]", "which another user has"},
		{"users: [{name: a, tokens: [hunter2]}]", "1:28: a token is not sha256:"},
		{"users: [{name: a, tokens: [" + hash + "]}, {name: b, tokens: [" + hash + "]}]",
			"that of user a already"},
		{"users: [{name: anonymous, tokens: [" + hash + "]}]", "no client shows any"},
		{"users: [{name: a, certificates: ['']}]", "a certificate is empty"},
		{"users: [{name: a, prefix: team}]", `prefix is "team"`},
		{"users: [{name: a, may: [{on: lock/*}]}]", "has no do"},
		{"users: [{name: a, may: [{do: use}]}]", "has no on"},
		{"users: [{name: a, may: [{on: nothing/*, do: use}]}]", `on is "nothing/*"`},
		{"users: [{name: a, may: [{on: '*', do: all}]}]", `do is "all", want read, use or manage`},
		{"users: [{name: a, may: [{on: '*', do: use, size: 0}]}]", `size is "0"`},
		{"users: [{name: a, may: [{on: '*', do: use, limits: x}]}]", `limits is "x"`},
		{"users: [{name: a, may: [{on: lock/*, do: use, as: c}]}]", "as is given for what is no capacity"},
		{"users: [{name: a, may: [{on: '*', do: use, also: [fly]}]}]", "want resize or feedback"},
		{"users: [{name: a, at-most: {rate: 5}}]", `rate is "5"`},
		{"users: [{name: a, at-most: {names: -1}}]", `names is "-1"`},
		{"users: [{name: a, at-most: {pets: 1}}]", `"pets" is no setting of at-most`},
	} {
		_, err := ParsePolicy("users.yaml", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("faults of %s = %v, want %q", test.text, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("faults of %s show a token: %v", test.text, err)
		}
	}
}

// TestLogins follows who a login stands for while policies change.
func TestLogins(t *testing.T) {
	hash := hashToken([]byte("good")).String()
	users := NewUsers(parse(t, "users: [{name: ci, tokens: ['"+hash+"']}]"), time.Now)
	login, user, err := users.LogIn([]byte("good"), "", From{})
	if err != nil || user.Name != "ci" {
		t.Fatalf("LogIn = %v, %v, want ci", user, err)
	}
	for _, wrong := range []struct{ token, claimed string }{
		{"bad", ""}, {"", ""}, {"good", "ops"}, {strings.Repeat("x", 1000), ""}, {hash, ""},
	} {
		if _, _, err := users.LogIn([]byte(wrong.token), wrong.claimed, From{}); err == nil {
			t.Errorf("LogIn(%.10q, %q) succeeds, want an error", wrong.token, wrong.claimed)
		}
	}
	// No token stands for what a file has by mistake: the hash of nothing, or no hash at all.
	for _, odd := range []string{hashToken(nil).String(), tokenHash{}.String()} {
		odd := NewUsers(parse(t, "users: [{name: odd, tokens: ['"+odd+"']}]"), time.Now)
		for _, token := range []string{"", strings.Repeat("x", maxToken+1)} {
			if _, got, err := odd.LogIn([]byte(token), "", From{}); err == nil {
				t.Errorf("LogIn(%.10q) = %s, want an error", token, got.Name)
			}
		}
	}
	if got := users.Current(login); got != user {
		t.Errorf("Current = %v, want the same user", got)
	}
	users.SetPolicy(parse(t, "users: [{name: ci, tokens: ['"+hash+"'], may: [{on: '*', do: use}]}]"))
	if got := users.Current(login); got == nil || !got.May(gatehouse.Lock, "a", gatehouse.LevelUse) {
		t.Errorf("Current under the new policy = %v, want a user that may use locks", got)
	}
	// The token is gone, though a user of this name is there.
	users.SetPolicy(parse(t, "users: [{name: ci}]"))
	if got := users.Current(login); got != nil {
		t.Errorf("Current without the token = %v, want nil", got)
	}
}

// FuzzPolicy reads any text: it must neither panic nor show a token.
func FuzzPolicy(f *testing.F) {
	f.Add(manyRules)
	f.Add("users: [{name: a, prefix: t/, at-most: {names: 3, rate: 5/1s}, may: [{on: '[a', do: use}]}]")
	f.Add("users:\n - name: &a b\n   tokens: [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy("u", []byte(text))
		if (p == nil) == (err == nil) {
			t.Fatalf("ParsePolicy = %v, %v, want one of them", p, err)
		}
		if p != nil {
			for _, u := range p.users {
				u.May(gatehouse.Lock, "a", gatehouse.LevelUse)
				u.MayAll(glob.Capacity, "", gatehouse.LevelManage)
			}
		}
	})
}

// Tokens that others could read on their way are refused: those without TLS that come from elsewhere than
// this machine or a trusted proxy.
func TestTokensInPlain(t *testing.T) {
	token, hash := NewToken()
	users := NewUsers(parse(t, "users: [{name: ci, tokens: ['"+hash+"']}]"), time.Now)
	users.RefusePlain([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/16"),
	})
	for _, c := range []struct {
		address string
		secure  bool
		ok      bool
	}{
		{"127.0.0.1", false, true}, {"::1", false, true}, {"::ffff:127.0.0.1", false, true},
		{"10.1.2.3", false, true}, {"::ffff:10.1.2.3", false, true}, {"fd01::1", false, true},
		{"10.2.0.1", false, false}, {"::ffff:10.2.0.1", false, false}, {"fd02::1", false, false},
		{"10.2.0.1", true, true},
	} {
		from := From{Address: netip.MustParseAddr(c.address), Secure: c.secure}
		_, user, err := users.LogIn([]byte(token), "", from)
		if c.ok != (err == nil && user.Name == "ci") {
			t.Errorf("a token from %+v = %v, %v, want it taken: %t", from, user, err, c.ok)
		}
	}
}
