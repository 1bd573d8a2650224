package doors

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// played is what stands before a table in docs/controllers that is played here. Its columns are the seconds
// since the full minute at which it begins, a request to one name, the answer, and what is left and in debt
// after it.
const played = "<!-- played -->\n\n"

// TestTables: the tables that pages of controllers have of charges are what the controllers answer.
func TestTables(t *testing.T) {
	tables := 0
	for kind := gatehouse.TokenBucket; kind < gatehouse.Grant; kind++ {
		if !kind.Limiter() {
			continue
		}
		file := filepath.Join("..", "..", "docs", "controllers", kind.String()+".md")
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(page), played)
		if len(parts) < 2 {
			t.Errorf("%s has no table behind %q", file, played)
		}
		for _, part := range parts[1:] {
			tables++
			table, _, _ := strings.Cut(part, "\n\n")
			playTable(t, kind, strings.Split(table, "\n")[2:])
		}
	}
	t.Logf("%d tables", tables)
}

// playTable plays the rows of one table.
func playTable(t *testing.T, kind gatehouse.Kind, rows []string) {
	t.Helper()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var state control.State
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 5 {
			t.Fatalf("%s: row %q has %d cells, want at, request, answer, left, debt", kind, row, len(cells))
		}
		at, err := time.ParseDuration(strings.ReplaceAll(cells[0], " ", ""))
		if err != nil {
			t.Fatalf("%s: row %q: %v", kind, row, err)
		}
		cmd := commandOf(t, kind, strings.Trim(cells[1], "`"))
		now := begin.Add(at)
		queue := []control.Turn{{Command: &cmd}, {Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
		state = control.Serve(now, kind, state, queue)
		d := queue[0].Decision
		got := fmt.Sprintf("| %s | %s | %s | %d | %s |", cells[0], cells[1], cell(&d), d.Remaining,
			debtOf(&queue[1].Decision))
		if got != row {
			t.Errorf("%s: the page has\n\t%s\nwant\n\t%s", kind, row, got)
		}
	}
}

// commandOf is the command of a request such as charge?cost=5.
func commandOf(t *testing.T, kind gatehouse.Kind, request string) (cmd gatehouse.Command) {
	t.Helper()
	name, query, _ := strings.Cut(request, "?")
	var known bool
	if cmd.Op, known = gatehouse.ParseOp(name); !known {
		t.Fatalf("%s is no operation", name)
	}
	var f params.Values
	for pair := range strings.SplitSeq(query, "&") {
		parameter, value, _ := strings.Cut(pair, "=")
		if err := f.Set([]byte(parameter), []byte(value)); pair != "" && err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Read(kind, &cmd); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// cell is an answer as tables have it.
func cell(d *gatehouse.Decision) string {
	switch d.Outcome {
	case gatehouse.Granted:
		return "204"
	case gatehouse.Refused:
		return "408, try again in " + seconds(d.RetryAfter)
	}
	return d.Outcome.String()
}

// seconds is a time to the nanosecond, such as 1.5 s.
func seconds(d time.Duration) string {
	text := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + " s"
}

func debtOf(stats *gatehouse.Decision) string {
	for _, stat := range stats.Stats {
		if stat.Name == "debt" {
			return fmt.Sprint(stat.Value)
		}
	}
	return "0"
}
