package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An event is what a scenario saw decided.
type event struct {
	name    string // empty for the line's own command
	outcome string
	fields  map[string]string
}

func newEvent(a *actor, origin time.Time) event {
	d := &a.turn.Decision
	e := event{name: a.name, outcome: d.Outcome.String(), fields: map[string]string{
		"retry":     length(d.RetryAfter),
		"reset":     length(d.ResetAfter),
		"limit":     fmt.Sprint(d.Limit),
		"remaining": fmt.Sprint(d.Remaining),
		"delay":     length(d.Delay),
		"expires":   length(d.ExpiresAfter),
		"interval":  length(d.Interval),
		"refused":   refusedBy(d),
		"value":     fmt.Sprint(d.Value),
		"booked":    fmt.Sprint(d.Booked),
		"message":   strings.ReplaceAll(d.Message, " ", "_"),
		"fence":     fmt.Sprintf("%+d", int64(d.Fence)-origin.UnixMicro()), //nolint:gosec // a scenario's
	}}
	if r := d.Reported; r != nil {
		e.fields["paused"], e.fields["ramp"] = length(r.PausedFor), length(r.RampFor)
		e.fields["with"] = fmt.Sprint(r.Status)
		e.fields["adopted"], e.fields["adopted_for"] = fmt.Sprint(r.Adopted), length(r.AdoptedFor)
	}
	for _, stat := range d.Stats {
		e.fields[stat.Name] = statText(stat, origin)
	}
	return e
}

func statText(stat gatehouse.Stat, origin time.Time) string {
	switch v := stat.Value.(type) {
	case time.Duration:
		return length(v)
	case time.Time:
		if v.IsZero() {
			return "none"
		}
		return v.Sub(origin).String()
	default:
		return fmt.Sprint(v)
	}
}

// refusedBy lists the limits that refused.
func refusedBy(d *gatehouse.Decision) string {
	var limits []string
	for _, w := range d.Windows {
		if w.RetryAfter != 0 {
			limits = append(limits, w.Limit.String())
		}
	}
	return strings.Join(limits, ",")
}

// length writes a time as scenarios do.
func length(d time.Duration) string {
	if d == gatehouse.Forever {
		return "forever"
	}
	return d.String()
}

// compare says how what was decided differs from what is written on a line.
func compare(line string, got []event, want string) string {
	wants := strings.Split(want, ";")
	if strings.TrimSpace(want) == "" {
		wants = nil
	}
	if len(wants) != len(got) {
		return fmt.Sprintf("%s\n\tgot %s", line, got)
	}
	for i, text := range wants {
		if !got[i].matches(strings.Fields(text), i == 0) {
			return fmt.Sprintf("%s\n\tgot %s", line, got)
		}
	}
	return ""
}

// matches reports whether the event is as the words say; own says that its name may be left out.
func (e event) matches(words []string, own bool) bool {
	if len(words) > 0 && words[0] == e.name && e.name != "" {
		words = words[1:]
	} else if e.name != "" && !own {
		return false
	}
	if len(words) == 0 {
		return false
	}
	if words[0] != e.outcome {
		return false
	}
	for _, word := range words[1:] {
		field, value, _ := strings.Cut(word, "=")
		if actual, ok := e.fields[field]; !ok || actual != value {
			return false
		}
	}
	return true
}

// String writes the event as a scenario would.
func (e event) String() string {
	var fields []string
	for field, value := range e.fields {
		if value != "" && value != "0" && value != "0s" {
			fields = append(fields, field+"="+value)
		}
	}
	slices.Sort(fields)
	return strings.TrimSpace(e.name + " " + e.outcome + " " + strings.Join(fields, " "))
}

// FuzzScenario runs whatever can be read as a scenario: no controller panics, whatever it is told.
func FuzzScenario(f *testing.F) {
	for _, seed := range []string{
		"semaphore\n0s a: acquire size=1 -> granted\n1s b: acquire size=1 expires=0s -> waits\n2s undo a",
		"tokenbucket\n0s acquire size=3 cost=2 interval=1ns\n5s a: acquire size=0\n9s leave a\n9s delete",
		"barrier\n0s a: wait size=2\n0s b: wait maxwait=1s\n3s stats\n---\n0s wait size=0",
		"watchdog\n0s wait\n1s kick expires=0s\n2s wait\n3s expiry",
		"counter\n0s count amount=9223372036854775807\n1s count\n2s reset amount=-5\n3s value",
		"gcra\n0s acquire size=5 burst=2\n1s reserve key=a\n1s reserve\n2s cancel key=a\n3s refund\n4s reset",
		"slidingwindow\n0s acquire size=5 mode=fine\n1s reserve limits=1/1s,5/1m,9/day\n1s peek\n2s delay",
		"pace\n0s reserve size=2 mode=classic key=a\n0s reserve size=2 mode=paced\n1s cancel key=a\n9s stats",
		"slidinglog\n0s acquire size=3 cost=2\n0s acquire size=3 cost=2\n1s refund",
		"fixedwindow\n0s acquire size=2 calendar=day zone=Europe/Berlin\n9s a: acquire\n9s undo a",
		"event\n0s wait\n1s send message=x\n1s send\n2s expiry", "lock\n0s acquire\n1s renew expires=2s",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		if len(text) < 4096 {
			runScenario(text)
		}
	})
}
