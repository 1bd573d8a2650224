//go:build linux || darwin

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A runReport is what is told of a run, as a table or as JSON. Times are seconds.
type runReport struct {
	Store   string  `json:"store"`
	About   string  `json:"about"`
	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed"`
	Clients int     `json:"clients"`

	Calls    map[callOutcome]int `json:"calls"`
	Answered spread              `json:"answered_per_second"`
	Faults   []faultReport       `json:"faults"`
	Promises []promiseReport     `json:"promises"`
	Kept     bool                `json:"kept"`
	Forgets  bool                `json:"promises_nothing,omitempty"`
}

// A spread is some figures of one sort.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// A faultReport tells of all faults of one sort.
type faultReport struct {
	What   string `json:"what"`
	Number int    `json:"number"`
	// Answer is how long it took until any server answered a request that was made after the fault.
	Answer spread `json:"until_an_answer"`
	// Own is the same for the process itself, if it is a server: from when it was killed or stopped.
	Own *spread `json:"until_it_answers,omitempty"`
}

// A promiseReport tells how often a promise was put to the test, and broken.
type promiseReport struct {
	Promise  string         `json:"promise"`
	Checked  int            `json:"checked"`
	Broken   int            `json:"broken"`
	Breaches []breachReport `json:"breaches,omitempty"`
}

type breachReport struct {
	Name    string  `json:"name"`
	At      float64 `json:"at"`
	Text    string  `json:"text"`
	History string  `json:"history"`
}

// newReport puts together what a run has shown.
func newReport(j *historyJudge) *runReport {
	r := j.run
	p := &runReport{
		Store: r.variant.name, About: r.variant.about, Forgets: r.variant.forgets,
		Seconds: r.config.length.Seconds(), Seed: r.config.seed, Clients: r.config.clients,
		Calls: make(map[callOutcome]int), Kept: j.countBreaches() == 0,
	}
	// Only decisions count as answers: an error says that the server does not serve.
	perSecond := make([]float64, max(1, int(r.config.length.Seconds())))
	for _, c := range r.calls {
		p.Calls[c.outcome]++
		// Answers in the last look come after the length of the run.
		if second := int(c.end.Seconds()); second < len(perSecond) && c.isDecided() {
			perSecond[second]++
		}
	}
	p.Answered = newSpread(perSecond)
	p.Faults = faultReports(r)
	for _, promise := range guarantees {
		t := j.counts[promise]
		line := promiseReport{Promise: string(promise), Checked: t.checked, Broken: t.broken}
		for _, b := range t.first {
			line.Breaches = append(line.Breaches, breachReport{b.key, b.at.Seconds(), b.text, b.history})
		}
		p.Promises = append(p.Promises, line)
	}
	return p
}

func newSpread(list []float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	slices.Sort(list)
	return spread{Median: list[len(list)/2], Least: list[0], Most: list[len(list)-1]}
}

// faultReports tells of the faults by sort: who was hit, and how.
func faultReports(r *chaosRun) []faultReport {
	var list []faultReport
	// One line for each sort of fault that occurred.
	for _, sort := range []struct {
		what          string
		store, frozen bool
	}{
		{"a server killed", false, false}, {"a server frozen", false, true},
		{"the store killed", true, false}, {"the store frozen", true, true},
	} {
		var answers, own []float64
		for _, f := range r.faults {
			if f.store != sort.store || f.frozen != sort.frozen {
				continue
			}
			answers = append(answers, (r.firstAnswer("", f.at) - f.at).Seconds())
			// A store answers no client, so it has no time of its own.
			if !f.store {
				own = append(own, (r.firstAnswer(f.victim, f.at) - f.at).Seconds())
			}
		}
		if len(answers) == 0 {
			continue
		}
		line := faultReport{What: sort.what, Number: len(answers), Answer: newSpread(answers)}
		if len(own) > 0 {
			s := newSpread(own)
			line.Own = &s
		}
		list = append(list, line)
	}
	return list
}

// firstAnswer is when a server, or any when it is empty, first gave a decision that was asked for after from.
func (r *chaosRun) firstAnswer(server string, from time.Duration) time.Duration {
	// A fault without an answer after it counts until now.
	first := r.sinceBegin()
	for _, c := range r.calls {
		// A call that had begun may have been decided before the fault.
		if c.start > from && c.end < first && c.isDecided() && (server == "" || c.server == server) {
			first = c.end
		}
	}
	return first
}

// writeText writes the report for people.
func (p *runReport) writeText(out io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	say("%s: %s\n", p.Store, p.About)
	say("  %.0f s, %d clients, seed %d; answered each second: median %.0f, least %.0f\n",
		p.Seconds, p.Clients, p.Seed, p.Answered.Median, p.Answered.Least)
	// In a fixed order, which a map does not have.
	var calls []string
	for _, o := range []callOutcome{granted, refused, conflict, unavailable, cut, unsent, faulty} {
		calls = append(calls, fmt.Sprintf("%d %s", p.Calls[o], o))
	}
	say("  calls: %s\n\n", strings.Join(calls, ", "))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	_, _ = fmt.Fprintln(table, "  number\tan answer again: median\tworst\tby itself: median\tworst\t  ")
	for _, f := range p.Faults {
		// Empty cells keep the last column in line.
		own := "\t\t"
		if f.Own != nil {
			own = fmt.Sprintf("%.3f s\t%.3f s\t", f.Own.Median, f.Own.Most)
		}
		_, _ = fmt.Fprintf(table, "%d\t%.3f s\t%.3f s\t%s  %s\n",
			f.Number, f.Answer.Median, f.Answer.Most, own, f.What)
	}
	_ = table.Flush()
	say("\n")
	table = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "checked\tbroken\t  ")
	for _, line := range p.Promises {
		_, _ = fmt.Fprintf(table, "%d\t%d\t  %s\n", line.Checked, line.Broken, line.Promise)
	}
	_ = table.Flush()
	say("\n")
	p.printBreaches(say)
}

// printBreaches shows the first breaches of each promise with the history of the name. Of a store that
// promises nothing there is no need to see them.
func (p *runReport) printBreaches(say func(format string, args ...any)) {
	for _, line := range p.Promises {
		for _, b := range line.Breaches {
			if p.Forgets {
				break
			}
			say("BROKEN: %s: %s at %.3f s: %s\n%s\n\n", line.Promise, b.Name, b.At, b.Text, b.History)
		}
	}
}
