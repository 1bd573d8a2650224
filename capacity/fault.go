package capacity

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
)

// The limits of templates. All are looked at for each new configuration, and what they say travels to
// the servers below.
const (
	// All templates are checked for each new configuration, and their texts travel to the servers below.
	MaxTemplates = 10_000

	maxGlob        = gatehouse.MaxName // bytes
	maxDescription = 4096              // bytes
	maxParameters  = 16                // of one algorithm
	maxParameter   = 512               // bytes, of its name and of its value
)

// A Fault is one broken rule in a list of templates.
type Fault struct {
	// Index is the template's place in the list. It is -1 where the list as a whole is meant.
	Index int

	// Field is what it is about, as files and messages call it: identifier_glob, capacity,
	// safe_capacity, description, algorithm.kind, algorithm.parameters[0].value; empty where the
	// template or the list as a whole is meant.
	Field string

	// Text begins with the last part of the field, and holds its value and what was wanted.
	Text string
}

// String returns the number of the template, counted from 1, and what is wrong with it.
func (f Fault) String() string {
	if f.Index < 0 {
		return f.Text
	}
	return "template " + strconv.Itoa(f.Index+1) + ": " + f.Text
}

// Faults returns all broken rules, in the order of the list and of a template's fields.
func (t Templates) Faults() []Fault {
	if len(t) > MaxTemplates {
		return []Fault{{-1, "", fmt.Sprintf("there are %d templates, want at most %d", len(t), MaxTemplates)}}
	}
	// Faults are collected instead of returned one at a time: an operator wants to see all of them at once.
	var found faultList
	first := make(map[string]int, len(t))
	for i := range t {
		found.index = i
		t[i].checkTemplate(&found)
		glob := t[i].Glob
		if before, ok := first[glob]; ok {
			found.add("identifier_glob", "identifier_glob %s is that of template %d too, want each once",
				quote(glob), before+1)
		} else {
			first[glob] = i
		}
		// A "*" in the middle would make all templates after it unreachable, except by exact name.
		if glob == everything && i < len(t)-1 {
			found.add("identifier_glob", `identifier_glob "*" is template %d of %d, want it last`,
				i+1, len(t))
		}
	}
	if _, ok := first[everything]; !ok {
		found.index = -1
		found.add("", `no template has the identifier_glob "*", want it as the last`)
	}
	return found.all
}

// Faults returns all rules that the algorithm breaks. Their index is -1.
func (a *Algorithm) Faults() []Fault {
	found := faultList{index: -1}
	a.checkAlgorithm(&found)
	return found.all
}

// A faultList collects what is wrong with one template after the other.
type faultList struct {
	index int
	all   []Fault
}

func (f *faultList) add(field, format string, args ...any) {
	f.all = append(f.all, Fault{f.index, field, fmt.Sprintf(format, args...)})
}

func (t *Template) checkTemplate(found *faultList) {
	checkGlob(t.Glob, found)
	// The comparison is negated so that NaN fails it, too.
	if c := t.Capacity; !(c >= 0) || math.IsInf(c, 0) {
		found.add("capacity", "capacity is %v, want a number from 0 on", c)
	}
	if t.Safe != nil {
		s := *t.Safe
		if s != -1 && !(s >= 0) || math.IsInf(s, 0) {
			found.add("safe_capacity", "safe_capacity is %v, want a number from 0 on, or -1 for no limit", s)
		}
	}
	checkText("description", t.Description, maxDescription, found)
	t.Algorithm.checkAlgorithm(found)
}

func checkGlob(glob string, found *faultList) {
	const field = "identifier_glob"
	if glob == "" {
		found.add(field, "identifier_glob is empty, want a resource's name, or a pattern such as db-*")
		return
	}
	checkText(field, glob, maxGlob, found)
	// The whole pattern is looked at, even if the name has long ceased to match.
	if _, err := path.Match(glob, " "); err != nil {
		found.add(field, "identifier_glob %s is a malformed pattern, want each [ closed, and something "+
			`behind each - and \`, quote(glob))
	}
}

func checkText(field, text string, most int, found *faultList) {
	switch {
	case len(text) > most:
		found.add(field, "%s has %d bytes, want at most %d", lastPart(field), len(text), most)
	case !utf8.ValidString(text):
		found.add(field, "%s %s is not UTF-8", lastPart(field), quote(text))
	}
}

func (a *Algorithm) checkAlgorithm(found *faultList) {
	if int(a.Kind) >= len(kindNames) {
		found.add("algorithm.kind", "kind is number %d, want 0 to %d, or %s",
			a.Kind, len(kindNames)-1, kindList())
	}
	lease := checkSeconds("algorithm.lease_length", a.LeaseLength, time.Second, found)
	refresh := checkSeconds("algorithm.refresh_interval", a.RefreshInterval, time.Second, found)
	if lease && refresh && a.LeaseLength < a.RefreshInterval {
		found.add("algorithm.lease_length",
			"lease_length is %d s, want at least the refresh_interval of %d s",
			a.LeaseLength/time.Second, a.RefreshInterval/time.Second)
	}
	if a.Learning != nil {
		checkSeconds("algorithm.learning_mode_duration", *a.Learning, -gatehouse.MaxDuration, found)
	}
	a.checkParameters(found)
}

// checkSeconds reports whether a duration is in range and in whole seconds, and adds a fault if it is not.
func checkSeconds(field string, d, least time.Duration, found *faultList) bool {
	name := lastPart(field)
	switch {
	case d%time.Second != 0:
		found.add(field, "%s is %v, want whole seconds", name, d)
	case d < least:
		found.add(field, "%s is %d s, want at least %d s", name, d/time.Second, least/time.Second)
	case d > gatehouse.MaxDuration:
		found.add(field, "%s is %d s, want at most %d s, a hundred years", name, d/time.Second,
			gatehouse.MaxDuration/time.Second)
	default:
		return true
	}
	return false
}

func (a *Algorithm) checkParameters(found *faultList) {
	if n := len(a.Parameters); n > maxParameters {
		found.add("algorithm.parameters", "parameters are %d, want at most %d", n, maxParameters)
		return
	}
	// Only {priority strict} means something to this server. Other parameters are passed on to servers below,
	// which may understand more.
	asked := false
	for i, p := range a.Parameters {
		field := "algorithm.parameters[" + strconv.Itoa(i) + "]"
		if p.Name == "" {
			found.add(field+".name", "name of a parameter is empty, want one")
		}
		checkText(field+".name", p.Name, maxParameter, found)
		checkText(field+".value", p.Value, maxParameter, found)
		if p.Name != priorityName {
			continue
		}
		if p.Value != priorityStrict {
			found.add(field+".value", "value of the parameter priority is %s, want %s",
				quote(p.Value), priorityStrict)
		}
		if asked {
			found.add(field+".name", "name of a parameter is priority twice, want it once")
		}
		asked = true
	}
}

// lastPart returns the last part of a field's path, as it stands in a file before the colon: value for
// algorithm.parameters[0].value.
func lastPart(field string) string {
	return field[strings.LastIndexByte(field, '.')+1:]
}

// maxQuoted is how much of a wrong value is shown, in bytes.
const maxQuoted = 64

func quote(text string) string {
	if len(text) <= maxQuoted {
		return strconv.Quote(text)
	}
	end := maxQuoted
	// Do not cut a rune in two.
	for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return strconv.Quote(text[:end]) + "…"
}
