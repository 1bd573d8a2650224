package simulate

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// maxLines is how many rows of a table are shown in the text; JSON has all.
const maxLines = 20

// reportLines explain the statistics, in the order in which they are shown.
var reportLines = []struct{ name, text string }{
	{"handed_out", "of what could be handed out, the lesser of capacity and wants"},
	{"useful", "of that, held by clients that want it"},
	{"satisfied", "of all that is wanted"},
	{"of_capacity", "of the capacity"},
	{"lowest", "handed out at the worst instant"},
	{"peak", "of the capacity at the highest instant"},
	{"safe_peak", "with what is used without a lease that goes back to the root"},
	{"over", "times above the capacity"},
	{"over_time", "above the capacity in all"},
	{"brief", "times above it only while a response that takes some back is on its way"},
	{"brief_time", "of that in all"},
	{"settled", "to recover from the worst event"},
	{"zero_grants", "responses of 0"},
}

// Text returns the report for people.
func (r *RunReport) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Scenario, r.Title)
	fmt.Fprintf(&b, "seed %d, %v of virtual time, %d servers, %d clients\n\n",
		r.Seed, shortTime(r.Duration), r.Servers, r.Clients)
	fmt.Fprintf(&b, "from %v to the end\n", shortTime(r.From))
	table := newTable(&b)
	for _, l := range reportLines {
		table.addRow("%s\t%s\t%s", l.name, statistics[l.name].unit.formatValue(r.Figures[l.name]), l.text)
	}
	table.flush()
	n := &r.Counts
	fmt.Fprintf(&b, "\n%d requests, %d answers, %d redirects, %d failures; ",
		n.Requests, n.Answers, n.Redirects, n.Failures)
	fmt.Fprintf(&b, "%d of %d samples above the capacity\n", n.SamplesOver, n.Samples)
	r.textEvents(&b)
	r.textOvers(&b)
	r.textExpectations(&b)
	return b.String()
}

func (r *RunReport) textEvents(b *strings.Builder) {
	fmt.Fprintf(b, "\nevents\n")
	table := newTable(b)
	for i, e := range r.Events {
		if i == maxLines {
			table.addRow("and %d more", len(r.Events)-i)
			break
		}
		lasts := ""
		if e.For > 0 {
			lasts = "for " + shortTime(e.For)
		}
		// Open wins: a time of 0 may mean that the next event came at the same instant.
		settled := "recovered after " + shortTime(e.Settled)
		switch {
		case e.Open:
			settled = "not recovered after " + shortTime(e.Settled)
		case e.Settled == 0:
			settled = "no harm"
		}
		table.addRow("%s\t%s\t%s\t%s\t%s", shortTime(e.At), e.Do, e.Where, lasts, settled)
	}
	table.flush()
}

func (r *RunReport) textOvers(b *strings.Builder) {
	table := newTable(b)
	if len(r.Overs) > 0 {
		fmt.Fprintf(b, "\nabove the capacity\n")
	}
	for i, o := range r.Overs {
		if i == maxLines {
			table.addRow("and %d more", len(r.Overs)-i)
			break
		}
		table.addRow("%s\tfor %s\tby up to %.3f", shortTime(o.At), shortTime(o.For), o.Most)
	}
	table.flush()
	if len(r.Shortages) > 0 {
		fmt.Fprintf(b, "\nclients held more than their server was given\n")
	}
	for _, s := range r.Shortages {
		table.addRow("%s\t%d times\tfor %s in all\tby up to %.3f\tat %s",
			s.Level, s.Times, shortTime(s.For), s.Most, s.Where)
	}
	table.flush()
}

func (r *RunReport) textExpectations(b *strings.Builder) {
	if len(r.Expectations) == 0 {
		return
	}
	fmt.Fprintf(b, "\nexpected\n")
	table := newTable(b)
	for _, e := range r.Expectations {
		verdict := "ok"
		if !e.Holds {
			verdict = "MISSED"
		}
		table.addRow("%s\t%s\t%s", verdict, e.Text, e.Measured)
	}
	table.flush()
}

// A textTable aligns its columns. It writes to memory, which never fails.
type textTable struct{ *tabwriter.Writer }

func newTable(b *strings.Builder) textTable {
	return textTable{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)}
}

func (t textTable) addRow(format string, args ...any) {
	_, _ = fmt.Fprintf(t, "  "+format+"\n", args...)
}

func (t textTable) flush() { _ = t.Flush() }

// Line returns the report in one line, for many runs.
func (r *RunReport) Line() string {
	verdict := "ok"
	for _, e := range r.Expectations {
		if !e.Holds {
			verdict = "MISSED " + e.Text + ": " + e.Measured
			break
		}
	}
	// Statistics are written as in the long report.
	write := func(name string) string { return statistics[name].unit.formatValue(r.Figures[name]) }
	return fmt.Sprintf("%-12s seed %-6d handed out %7s  useful %7s  lowest %7s  peak %7s  over %s for %s  %s",
		r.Scenario, r.Seed, write("handed_out"), write("useful"), write("lowest"), write("peak"),
		write("over"), write("over_time"), verdict)
}
