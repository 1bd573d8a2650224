package http

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// page is the text of the documentation between two marks.
func page(t *testing.T, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/protocols/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), from)
	part, _, ended := strings.Cut(rest, to)
	if !found || !ended {
		t.Fatalf("docs/protocols/http.md has no %q, or no %q behind it", from, to)
	}
	return part
}

// rows are the first cells of a table, and what pick finds in the rest of each row.
func rows(table string, pick *regexp.Regexp) map[string]string {
	all := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` (.*)$").FindAllStringSubmatch(table, -1) {
		all[row[1]] = strings.Join(pick.FindAllString(row[2], -1), " ")
	}
	return all
}

var statusNumber = regexp.MustCompile(`\b[2-5]\d\d\b`)

// The page has every code of a problem with every status that it comes with, and none besides.
func TestDocumentedCodes(t *testing.T) {
	statusesOf := make(map[string][]string)
	add := func(code string, status int) {
		if text := fmt.Sprint(status); !slices.Contains(statusesOf[code], text) {
			statusesOf[code] = append(statusesOf[code], text)
		}
	}
	for outcome, status := range outcomeStatuses {
		if status != 0 {
			add(gatehouse.Outcome(outcome).String(), status)
		}
	}
	add("refused", 429) // by choice
	for code, status := range errorStatuses {
		add(gatehouse.Code(code).String(), status)
	}
	for status, code := range statusCodes {
		add(code, status)
	}
	want := make(map[string]string)
	for code, all := range statusesOf {
		slices.Sort(all)
		want[code] = strings.Join(all, " ")
	}
	if got := rows(page(t, "| `code` | status |", "\n\n"), statusNumber); !maps.Equal(got, want) {
		t.Errorf("the codes of docs/protocols/http.md are\n%v, want\n%v", got, want)
	}
}

// The page has every outcome, with what its status is without details.
func TestDocumentedOutcomes(t *testing.T) {
	want := map[string]string{"granted": "200 204", "refused": "408 429"}
	for outcome := gatehouse.Conflict; outcome <= gatehouse.Forbidden; outcome++ {
		want[outcome.String()] = fmt.Sprint(outcomeStatuses[outcome])
	}
	if got := rows(page(t, "| `outcome` | means |", "\n\n"), statusNumber); !maps.Equal(got, want) {
		t.Errorf("the outcomes of docs/protocols/http.md are\n%v, want\n%v", got, want)
	}
}

// The page has every member that an object can have, in the order in which they come.
func TestDocumentedMembers(t *testing.T) {
	const table = "| member | type | of | |\n|---|---|---|---|\n"
	var documented []string
	for line := range strings.Lines(page(t, table, "\n\n")) {
		documented = append(documented, strings.Split(line, "`")[1])
	}
	seen := make(map[string]bool)
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			if kind.Has(op) {
				r := responder{key: gatehouse.Key{Kind: kind, Name: "n"}, op: op, holder: "k"}
				checkMembers(t, r, documented, seen)
			}
		}
	}
	for _, member := range documented {
		if !seen[member] {
			t.Errorf("docs/protocols/http.md has the member %q, which no object has", member)
		}
	}
}

// checkMembers holds the order of an object's members against the documented one, and notes them as seen.
func checkMembers(t *testing.T, r responder, documented []string, seen map[string]bool) {
	t.Helper()
	for outcome := gatehouse.Refused; outcome <= gatehouse.Forbidden; outcome++ {
		d := gatehouse.Decision{
			Outcome: outcome, Fence: 1, Windows: make([]gatehouse.Window, 2), Message: "m",
			Reported: &gatehouse.Reported{Status: 429, By: "b", AdoptedFor: 1},
		}
		if outcome == gatehouse.Refused {
			d.Number = 1
		}
		last := 0
		for _, member := range membersOf(string(r.decisionJSON(&d))) {
			seen[member] = true
			at := slices.Index(documented, member)
			if at < last {
				t.Errorf("%s %s: member %q is number %d in docs/protocols/http.md, want it behind number %d",
					r.key, r.op, member, at, last)
			}
			last = at
		}
	}
}

// membersOf are the names of an object's own members but its outcome, in order.
func membersOf(object string) (names []string) {
	depth := 0
	for i, c := range object {
		switch {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1 && object[i-1] == '"':
			start := strings.LastIndexByte(object[:i-1], '"')
			names = append(names, object[start+1:i-1])
		}
	}
	return names[1:]
}
