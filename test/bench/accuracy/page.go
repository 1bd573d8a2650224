package main

import (
	"fmt"
	"strings"
)

// A page is the Markdown of all that was measured.
type page struct {
	text    strings.Builder
	plan    plan
	results []result
}

// write returns the page.
func write(p plan, results []result) string {
	w := &page{plan: p, results: results}
	w.add(preface)
	w.add("\nHere L is %d, W is %g s and the seed is %d. Each traffic lasts %d windows, the mix %d.\n",
		size, window.Seconds(), p.seed, p.windows, mixWindows(p.windows))
	w.columns()
	w.traffic()
	w.errors()
	w.excess()
	w.throughput()
	w.concentration()
	w.add(repeat)
	return w.text.String()
}

func (w *page) add(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// table adds a table; the first of rows is its head.
func (w *page) table(rows ...[]string) {
	for i, row := range rows {
		w.add("| %s |\n", strings.Join(row, " | "))
		// Markdown takes the first row for the head only when a line of dashes follows it.
		if i == 0 {
			w.add("|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

const preface = `# Accuracy

Written by ` + "`make accuracy`" + `, which tries every limiter on made-up traffic and holds it to an
exact log.

A limit of L in a window of W is taken to mean: at no instant t have more than L been let through in the
interval from t-W, without it, to t. An exact log of what was let through keeps that, and refuses nobody
without need. Every other way to limit saves memory or time, and pays in one of two errors:

- A **false allow** lets a request through although L had been let through in the last W.
- A **false deny** refuses a request although fewer than L had been let through in the last W.

Each limiter is held to what *it* let through. So one wrong decision is one error, though everything after
it may come out otherwise than with an exact log.
`

const columnsText = `
## The limiters

All are asked for one at a time and never wait: ` + "`acquire` with `cost=1&maxwait=0`" + `. They run in
virtual time, by the same code as in a server.

`

// promises has the arguments of each candidate, and what holds for it whatever comes.
var promises = map[string][2]string{
	"tokenbucket": {
		"`size=100`", "up to 2 L in a W around a refill; windows begin with the first use; no false deny",
	},
	"fixedwindow": {"`size=100`", "up to 2 L in a W around a boundary; no false deny"},
	"gcra": {
		"`size=100&burst=99`",
		"fewer than 2 L in a W: its own contract is L at once and L a W beside; no false deny",
	},
	"gcra, halves": {"`size=50&burst=49`", "at most L in a W, for half the rate; no false allow"},
	"slidingwindow": {
		"`size=100`", "at most L in a window counted by the clock, at most 2 L in any W; errs both ways",
	},
	"slidingwindow fine": {
		"`size=100&mode=fine`", "at most L and what came in one W/60, so up to 2 L in any W when it came at once; errs both ways",
	},
	"slidingwindow strict": {
		"`size=100&mode=strict`", "at most L in a W; refuses for at most W/60 too long; no false allow",
	},
	"slidinglog": {"`size=100`", "is an exact log"},
	"pace":       {"`size=100`, in any mode", "is an exact log when nobody waits or reserves"},
}

// attacks says for each candidate which traffic is aimed at it, and how many of it must at least get through in
// some W, and at most may. Nothing can be aimed at an exact log.
var attacks = map[string]struct {
	row         string
	least, most int
}{
	"tokenbucket":          {refillName, 2*size - 1, 2 * size},
	"fixedwindow":          {astrideName, 2 * size, 2 * size},
	"gcra":                 {lateName, 2*size - 5, 2*size - 1},
	"gcra, halves":         {lateName, size - 5, size},
	"slidingwindow":        {lateName, 2*size - 5, 2 * size},
	"slidingwindow fine":   {partName, 2*size - 5, 2 * size},
	"slidingwindow strict": {earlyName, size, size},
	"slidinglog":           {"", 0, size},
	"pace":                 {"", 0, size},
}

func (w *page) columns() {
	w.add(columnsText)
	rows := [][]string{{"column", "told", "what holds for it", "worst window", "aimed at it"}}
	for i, c := range candidates() {
		// The worst of all rows, not the mean: the column stands beside a promise that holds whatever
		// comes.
		worst := 0
		for _, r := range w.results {
			worst = max(worst, r.verdicts[i].worst)
		}
		rows = append(rows, []string{
			c.name, promises[c.name][0], promises[c.name][1], fmt.Sprintf("%.2f", float64(worst)/size),
			attacks[c.name].row,
		})
	}
	w.table(rows...)
}

func (w *page) traffic() {
	w.add("\n## The traffic\n\nA load of 1 is L requests in a W, as many as the limit lets through.\n\n")
	rows := [][]string{{"row", "requests", "how they come"}}
	for _, r := range w.results {
		rows = append(rows, []string{r.traffic.name, fmt.Sprint(r.exact.offered), r.traffic.words})
	}
	w.table(rows...)
}

const errorsText = `
## Wrong decisions

Three figures in each cell: **false allows / false denies / worst window**. The first two are in percent of
all requests. The worst window is the most that was let through in any W, in L: 2.00 is twice the limit.

For example, 15.0 / 2.50 / 1.18 says that of 1000 requests 150 were let through that an exact log would have
refused, 25 were refused that it would have let through, and that at the worst moment there had been 118
in the last W where 100 are allowed.

The rows from A1 on are attacks, each aimed at one weakness. A1 and A2 are aimed at the boundaries of windows
that are counted by the clock, A5 at those of a tokenbucket, which begin with its first use. A6 is aimed at the
parts of a fine window: of the oldest part it counts a share, as if what is in it had come evenly. L that came
at the end of a part are all within the last W while the share falls to nothing, and so up to L more pass. A7
does no more than it may, and is refused by fine and strict for up to W/60.

`

func (w *page) errors() {
	w.add(errorsText)
	rows := [][]string{append(names("traffic"), "exact log")}
	for _, r := range w.results {
		row := []string{r.traffic.name}
		// The exact log is the last column: its zeros show that the judge itself is sound.
		for _, v := range append(r.verdicts, r.exact) {
			row = append(row, fmt.Sprintf("%s / %s / %.2f", percent(v.falseAllows, v.offered),
				percent(v.falseDenies, v.offered), float64(v.worst)/size))
		}
		rows = append(rows, row)
	}
	w.table(rows...)
}

// names is the head of a table: what rows are, and the candidates.
func names(rows string) []string {
	head := []string{rows}
	for _, c := range candidates() {
		head = append(head, c.name)
	}
	return head
}

const excessText = `
## How many too many

A false allow may be one request too many, or the hundredth. This is the mean, in percent of L, of how many
too many there were in the last W at a false allow, that request included. A dash is no false allow.

`

func (w *page) excess() {
	w.add(excessText)
	rows := [][]string{names("traffic")}
	for _, r := range w.results {
		row := []string{r.traffic.name}
		for _, v := range r.verdicts {
			row = append(row, v.meanExcess())
		}
		rows = append(rows, row)
	}
	w.table(rows...)
}

// meanExcess is the mean excess in percent of the size.
func (v *verdict) meanExcess() string {
	// A mean of nothing is not 0: a 0 would read like an error that is very small.
	if v.falseAllows == 0 {
		return "–"
	}
	return percent(v.excess, v.falseAllows*size)
}

const throughputText = `
## How much passes

How much of the traffic an exact log lets through, and how much each limiter does, as a part of that. A
false deny that only postpones costs nothing here: something else passes instead.

`

func (w *page) throughput() {
	w.add(throughputText)
	head := names("traffic")
	rows := [][]string{append([]string{head[0], "exact log"}, head[1:]...)}
	for _, r := range w.results {
		// Shares are of what the exact log lets through, because under overload most requests have to be
		// refused.
		row := []string{r.traffic.name, percent(r.exact.passed, r.exact.offered) + " %"}
		for _, v := range r.verdicts {
			row = append(row, fmt.Sprintf("%.3f", float64(v.passed)/float64(r.exact.passed)))
		}
		rows = append(rows, row)
	}
	w.table(rows...)
}

// percent is a part of a whole, with three digits at most.
func percent(part, whole int) string {
	// A band of the mix may be empty in a short run; 0 of 0 is then 0, not NaN.
	share := 100 * float64(part) / float64(max(1, whole))
	switch {
	case part == 0:
		return "0"
	// A 0.00 would look like a limiter that never errs: 0 is kept for that.
	case share < 0.005:
		return "<0.01"
	// The bounds lie where rounding would add a digit: 9.995 is written as 10.0, not as 10.00.
	case share < 9.995:
		return fmt.Sprintf("%.2f", share)
	case share < 99.95:
		return fmt.Sprintf("%.1f", share)
	}
	return fmt.Sprintf("%.0f", share)
}

const repeat = `
## How to repeat

` + "`make accuracy`" + ` writes this page anew, within a minute or two. The same seed gives the same
page: if the page changes, a limiter has. For other traffic of the same kinds, in folder ` + "`bench`" + `:

    go run ./accuracy -seed 2 -windows 500

A row's figures differ a little from seed to seed, those of rare errors the most: at Poisson 0.8 by about a
tenth of themselves.
`
