package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// TestListAgainstOracle compares lists, page by page, with a look at each name there is: no name is left out
// or shown twice, and none that the user may not see.
func TestListAgainstOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret is made of it
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	name := func() string {
		return pick("", "t/") + pick("a", "ab", "b", "ä", "日") + pick("", "/x", "c", "日") + pick("", "1", "b")
	}
	for round := range 400 {
		var text strings.Builder
		prefix := pick("", "t/")
		fmt.Fprintf(&text, "users:\n  - name: u\n    prefix: %q\n    may:\n", prefix)
		if prefix == "" {
			text.Reset()
			text.WriteString("users:\n  - name: u\n    may:\n")
		}
		for range 1 + random.IntN(4) {
			fmt.Fprintf(&text, "      - {on: %q, do: %s}\n",
				pick("lock", "*", "l*")+"/"+name()+pick("", "*", "?*", "*b"), pick("read", "use"))
		}
		u := parse(t, text.String()).User("u")
		var names []string
		for range 40 {
			names = append(names, name())
		}
		slices.Sort(names)
		names = slices.Compact(names)
		fetch := func(r ListRequest) (found []gatehouse.NameDetails, err error) {
			for _, n := range names {
				if strings.HasPrefix(n, r.Prefix.Prefix) && n > r.After && len(found) < r.Most {
					found = append(found, gatehouse.NameDetails{Name: n})
				}
			}
			return found, nil
		}
		asked := pick("", "", "a", "b", "ä", "ab")
		var want []string
		for _, n := range names {
			shown, mine := strings.CutPrefix(n, prefix)
			if mine && strings.HasPrefix(shown, asked) && shown != "" &&
				u.May(gatehouse.Lock, shown, gatehouse.LevelRead) {
				want = append(want, shown)
			}
		}
		var got []string
		request := ListRequest{gate.Prefix{Kind: gatehouse.Lock, Prefix: asked}, 1 + random.IntN(6)}
		for page := 0; ; page++ {
			found, err := u.List(request, fetch)
			if err != nil || page > len(names) {
				t.Fatalf("round %d: page %d: %v", round, page, err)
			}
			for _, one := range found {
				got = append(got, one.Name)
			}
			if len(found) < request.Most {
				break
			}
			request.After = found[len(found)-1].Name
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: under\n%sof %q with %q the list is %q, want %q",
				round, text.String(), names, asked, got, want)
		}
	}
}

// A tenant sees only the cycles among its own names, and the list of all cycles stays as it is.
func TestOwnCycles(t *testing.T) {
	link := func(name string) gate.CycleLink {
		return gate.CycleLink{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: name}}
	}
	all := []gate.Cycle{
		{Links: []gate.CycleLink{link("t/a"), link("t/b")}},
		{Links: []gate.CycleLink{link("t/a"), link("other")}},
	}
	tenant := parse(t, "users: [{name: u, prefix: t/, may: [{on: '*', do: read}]}]").User("u")
	own := tenant.OwnCycles(all)
	if len(own) != 1 || own[0].Links[0].Key.Name != "a" || own[0].Links[1].Key.Name != "b" {
		t.Errorf("a tenant sees %+v, want the first cycle alone", own)
	}
	if all[0].Links[0].Key.Name != "t/a" {
		t.Errorf("the list has become %+v", all)
	}
	var anybody *User
	if got := anybody.OwnCycles(all); len(got) != 2 {
		t.Errorf("without users there are %+v", got)
	}
}
