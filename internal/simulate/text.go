package simulate

import (
	_ "embed"
	"fmt"
	"html"
	"strings"
	"text/tabwriter"
	"text/template"
)

//go:embed report.txt
var reportText string

// Text returns the report for people. Tables are cut; JSON has all.
func (r *RunReport) Text() string {
	var aligned strings.Builder
	// Its columns end at each line without tabs, so every table is aligned by itself.
	table := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	_, _ = table.Write([]byte(r.fillTemplate(reportText, r))) // memory never fails
	_ = table.Flush()
	return aligned.String()
}

// fillTemplate writes values into one of the templates of this package.
func (r *RunReport) fillTemplate(text string, values any) string {
	var filled strings.Builder
	t := template.New("report").Funcs(template.FuncMap{
		"time": shortTime, "figure": r.formatFigure, "thousands": groupThousands, "count": countNoun,
		"escape": html.EscapeString,
		"px":     func(at, by float64) string { return fmt.Sprintf("%.1f", at+by) },
		"whole":  func(at, by float64) string { return fmt.Sprintf("%.0f", at+by) },
	})
	if err := template.Must(t.Parse(text)).Execute(&filled, values); err != nil {
		panic(err) // the template and its values are ours
	}
	return filled.String()
}

// formatFigure returns a statistic of the whole run as it is written everywhere.
func (r *RunReport) formatFigure(name string) string {
	return statistics[name].unit.formatValue(r.Figures[name])
}

// Line returns the report in one line, for many runs.
func (r *RunReport) Line() string {
	verdict := "ok"
	for _, e := range r.Expectations {
		if !e.Holds {
			verdict = "MISSED " + e.Text + ": " + e.Measured
			break
		}
	}
	return fmt.Sprintf("%-12s seed %-6d handed out %7s  useful %7s  lowest %7s  peak %7s  over %s for %s  %s",
		r.Scenario, r.Seed, r.formatFigure("handed_out"), r.formatFigure("useful"), r.formatFigure("lowest"),
		r.formatFigure("peak"), r.formatFigure("over"), r.formatFigure("over_time"), verdict)
}
