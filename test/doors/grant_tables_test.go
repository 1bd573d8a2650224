package doors

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// TestGrantTables: the tables of docs/grants.md are what limiters of each kind answer. Their columns are the
// seconds since the first row, what is asked for, and for each kind what is left after it. A row that begins
// at 0 s is a new limiter.
func TestGrantTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/grants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(page), played)
	if !found {
		t.Fatalf("docs/grants.md has no table behind %q", played)
	}
	table, _, _ := strings.Cut(part, "\n\n")
	rows := strings.Split(table, "\n")
	kinds := cellsOf(rows[0])[2:]
	if len(rows) < 10 || len(kinds) != 6 {
		t.Fatalf("the table has %d rows for %d kinds, want ten for six", len(rows), len(kinds))
	}
	for i, name := range kinds {
		kind, _ := gatehouse.ParseKind(strings.Trim(name, "`"))
		var p *grantPlay
		for _, row := range rows[2:] {
			cells := cellsOf(row)
			if cells[0] == "0" || p == nil {
				p = &grantPlay{kind: kind}
			}
			if got := p.play(t, cells[0], strings.Trim(cells[1], "`")); got != cells[2+i] {
				t.Errorf("%s: row %q leaves %s", kind, row, got)
			}
		}
	}
}

// cellsOf are the cells of a row of a table.
func cellsOf(row string) []string { return strings.Split(strings.Trim(row, "| "), " | ") }

// A grantPlay is one limiter and the record of one grant.
type grantPlay struct {
	kind            gatehouse.Kind
	limiter, record control.State
	parts           control.GrantParts
}

// grantID is the id of the grant.
const grantID = "g"

// play asks for something, and returns what is left then.
func (p *grantPlay) play(t *testing.T, at, request string) (left string) {
	t.Helper()
	seconds, err := strconv.Atoi(at)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 12, 0, seconds, 0, time.UTC)
	words := strings.Fields(request)
	refused := false
	if words[0] == "another" {
		_, cost, _ := strings.Cut(words[1], "=")
		n, _ := strconv.ParseInt(cost, 10, 64)
		d := p.serve(now, gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: n,
		})
		refused = d.Outcome != gatehouse.Granted
	} else if words[0] != "nothing" {
		refused = !p.change(t, now, words)
	}
	d := p.serve(now, gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce},
	})
	left = fmt.Sprint(d.Remaining)
	if stats := p.serve(now, gatehouse.Command{Op: gatehouse.OpStats}).Stats; stats != nil {
		i := slices.IndexFunc(stats, func(s gatehouse.Stat) bool { return s.Name == "debt" })
		if i >= 0 {
			left = fmt.Sprintf("-%d", stats[i].Value)
		}
	}
	if refused {
		left += ", refused"
	}
	return left
}

// serve puts one command to the limiter.
func (p *grantPlay) serve(now time.Time, cmd gatehouse.Command) gatehouse.Decision {
	turns := []control.Turn{{Command: &cmd}}
	p.limiter = control.Serve(now, p.kind, p.limiter, turns)
	return turns[0].Decision
}

func (p *grantPlay) key() gatehouse.Key { return gatehouse.Key{Kind: p.kind, Name: "a"} }

// change puts an operation on the grant to both, and reports whether it took effect.
func (p *grantPlay) change(t *testing.T, now time.Time, words []string) bool {
	t.Helper()
	op, _ := gatehouse.ParseOp(words[0])
	cmd := gatehouse.GrantCommand{Op: op, ID: grantID, Expires: time.Minute}
	if op == gatehouse.OpRenew {
		cmd.Expires = gatehouse.AsAcquired
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "cost":
			cmd.Costs = []gatehouse.MemberCost{{Key: p.key(), Cost: n}}
		case "expires":
			cmd.Expires = time.Duration(n) * time.Second
		case "overrun":
			cmd.Overrun, _ = gatehouse.ParseOverrun(value)
		case "on-expiry":
			cmd.OnExpiry, _ = gatehouse.ParseOnExpiry(value)
		default:
			t.Fatalf("%q is unknown", word)
		}
	}
	if op == gatehouse.OpAcquire {
		cmd.Want = []gatehouse.Member{{
			Key: p.key(), Cost: cmd.Costs[0].Cost,
			Rule: gatehouse.Rule{Size: 10, Interval: 10 * time.Second, Burst: 9},
		}}
		cmd.Costs = nil
		p.parts.Acquire(&cmd)
		return p.apply(t, now)
	}
	p.parts.Peek(&cmd)
	p.apply(t, now)
	record := p.parts.Parts[0].Turn.Decision.Grant
	if err := p.parts.Follow(&cmd, record); err != nil {
		t.Fatal(err)
	}
	return p.apply(t, now)
}

// apply serves the parts as a store does.
func (p *grantPlay) apply(t *testing.T, now time.Time) bool {
	t.Helper()
	var all []control.JointPart
	for i := range p.parts.Parts {
		part := control.JointPart{Part: &p.parts.Parts[i], State: p.record}
		if part.Key == p.key() {
			part.State = p.limiter
		}
		all = append(all, part)
	}
	granted := control.ServeJoint(now, all)
	for _, part := range all {
		if part.Key == p.key() {
			p.limiter = part.State
		} else {
			p.record = part.State
		}
	}
	return granted
}
