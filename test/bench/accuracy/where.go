package main

import "fmt"

// concentration adds where the errors are.
func (w *page) concentration() {
	w.add("\n## Where the errors are\n\n")
	w.statement()
	w.bands()
	w.counts()
}

// The candidates and the counter that the statement is about, by their place.
const (
	estimate        = 4
	estimateCounter = 0

	nearBand = 2 // 0.8 to 1.2
)

const statementText = `**Errors are concentrated at keys whose load is within about 20 %% of the limit, and in
bursts.** Take slidingwindow, which estimates:

- Below 0.8 of the limit next to nothing goes wrong. Such keys make %s %% of the requests of the mix, and
  get %s %% of its wrong decisions.
- From 0.8 to 1.2 it cannot always tell who is over the limit. Such keys make %s %% of the requests of the
  mix, and %s %% of those at which its count, when nothing is refused, lies on the wrong side of the limit.
- Above 1.2 it errs often and by little: much has to be refused, and the error is which of the requests it
  is. The mean excess is %s %% of L from 1.2 to 2, and %s %% above.
- Bursts are the worst. The mean excess is %s %% of L in the fast bursts and %s %% in A2. In A3, %s %% of
  the requests are refused of a client that never does more than it may.
`

func (w *page) statement() {
	mix, fast := w.row(mixName), w.row("on/off fast")
	late, lawful := w.row(lateName), w.row(lawfulName)
	// Several bands lie below the limit; the sentence speaks of them together.
	below, belowWrong := 0, 0
	for _, b := range mix.bands[:nearBand] {
		below += b.exact.offered
		belowWrong += b.verdicts[estimate].wrong()
	}
	// Here the count is quoted and not the decisions: whether a key is over the limit shows only where
	// nothing is refused.
	near := mix.bands[nearBand]
	w.add(statementText,
		percent(below, mix.exact.offered), percent(belowWrong, mix.verdicts[estimate].wrong()),
		percent(near.exact.offered, mix.exact.offered),
		percent(near.counts[estimateCounter].wrong, mix.counts[estimateCounter].wrong),
		mix.bands[nearBand+1].verdicts[estimate].meanExcess(),
		mix.bands[nearBand+2].verdicts[estimate].meanExcess(),
		fast.verdicts[estimate].meanExcess(), late.verdicts[estimate].meanExcess(),
		// In A3 every refusal is false, so the share of false denies is the share of all that is refused.
		percent(lawful.verdicts[estimate].falseDenies, lawful.exact.offered))
}

// row is the row of this name.
func (w *page) row(name string) result {
	for _, r := range w.results {
		if r.traffic.name == name {
			return r
		}
	}
	// A row that the text quotes was renamed: an empty figure in a sentence would be worse than no page.
	panic("accuracy: no traffic " + name)
}

// wrong is the number of wrong decisions.
func (v *verdict) wrong() int { return v.falseAllows + v.falseDenies }

const bandsText = `
The mix of keys, by the load that each key has had. In each cell: wrong decisions in percent of the
requests, and behind it the mean excess at a false allow in percent of L.

`

func (w *page) bands() {
	w.add(bandsText)
	mix := w.row(mixName)
	head := names("load of the key")
	// The share of the requests comes first: it says how much an error in that band weighs.
	rows := [][]string{append([]string{head[0], "requests"}, head[1:]...)}
	for i, b := range mix.bands {
		row := []string{bandName(i), percent(b.exact.offered, mix.exact.offered) + " %"}
		for _, v := range b.verdicts {
			row = append(row, percent(v.wrong(), v.offered)+", "+v.meanExcess())
		}
		rows = append(rows, row)
	}
	w.table(rows...)
}

func bandName(i int) string {
	switch {
	// The first band begins at 0 and the last has no end, so each is named by the one bound it has.
	case i == 0:
		return fmt.Sprintf("below %.1f", bandsFrom[1])
	case i+1 == len(bandsFrom):
		return fmt.Sprintf("%.1f and above", bandsFrom[i])
	}
	return fmt.Sprintf("%.1f to %.1f", bandsFrom[i], bandsFrom[i+1])
}

const countsText = `
How well they count when nothing is refused, for somebody who only wants to know which keys are over their
limit: how often, in percent of the requests, the count of the last W and the true one lie on different
sides of L, and behind it the mean difference of the two in percent of the true one. Published error rates,
such as Cloudflare's 0.003 %%, answer this question for all keys together, and say first of all that few of
those were near their limit.

`

func (w *page) counts() {
	w.add(countsText)
	head := []string{"traffic"}
	for _, c := range counters() {
		head = append(head, c.name)
	}
	rows := [][]string{head}
	line := func(name string, f requestFigures) {
		row := []string{name}
		for _, c := range f.counts {
			difference := int(c.difference * 1000) // in thousandths, so that percent can tell
			row = append(row, percent(c.wrong, c.asked)+", "+percent(difference, 1000*c.asked))
		}
		rows = append(rows, row)
	}
	for _, r := range w.results {
		line(r.traffic.name, r.requestFigures)
		// Only the mix has bands; for all other rows the loop does nothing.
		for i, b := range r.bands {
			line("– "+bandName(i), b)
		}
	}
	w.table(rows...)
}
