package config

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
	"go.yaml.in/yaml/v4"
)

// listenerNames are the settings of a listener. The first listenerNeeds of them are required.
var listenerNames = []string{"listen", "name", "requests", "period", "mode", "guard", "max-delay", "allow"}

const listenerNeeds = 4

// allowKey is the setting of a listener that may be a list.
const allowKey = "allow"

// readListeners reads the list of listeners.
func (f *File) readListeners(node *yaml.Node) {
	f.readList(node, listSetting{key: jarlKey, of: "listeners", most: MaxListeners}, f.readListener)
}

// readListener reads one listener.
func (f *File) readListener(node *yaml.Node) {
	before := len(f.faults)
	l := Listener{At: positionOf(node)}
	given := make(map[string]Position)
	for name, value := range f.pairsOf(node, listenerNames, " of a listener") {
		given[name] = positionOf(value)
		// allow is the one setting that may be a list; a single block may stand alone.
		if name == allowKey && value.Kind == yaml.SequenceNode {
			for _, one := range value.Content {
				f.readAllow(&l, one)
			}
		} else if text, ok := f.readScalar(name, value); ok {
			f.setListener(&l, name, text, positionOf(value))
		}
	}
	// What is no mapping has its fault, and would miss every setting.
	if node.Kind == yaml.MappingNode {
		// In the order of the documentation, not of a map.
		for _, name := range listenerNames[:listenerNeeds] {
			if _, ok := given[name]; !ok {
				f.Fault(l.At, "a listener has no %s", name)
			}
		}
	}
	// With a fault in a field, the limit as a whole would only repeat it.
	if len(f.faults) > before {
		return
	}
	if err := l.Limit.Check(); err != nil { // all but the name was looked at
		f.Fault(given["name"], "%v", err)
		return
	}
	f.JARL = append(f.JARL, l)
}

// readAllow reads one block of addresses of a listener.
func (f *File) readAllow(l *Listener, node *yaml.Node) {
	if text, ok := f.readScalar(allowKey, node); ok {
		f.setListener(l, allowKey, text, positionOf(node))
	}
}

// setListener sets one field of a listener.
func (f *File) setListener(l *Listener, name, text string, at Position) {
	// There are two kinds of errors: err holds what is wanted, the others a whole clause.
	var err error
	switch name {
	case "listen":
		l.Address = text
		f.addAddress(name, text, at)
	case "name":
		l.Limit.Name = text
	case "requests":
		l.Limit.Requests, err = parseCount(text)
	case "period":
		l.Limit.Period, err = parseDuration(text, time.Nanosecond)
	case "guard":
		l.Limit.Guard, err = parseDuration(text, 0)
	case "max-delay":
		if bad := l.Admits.SetMaxDelay(text); bad != nil {
			f.Fault(at, "%s is %s, %v", name, quote(text), bad)
		}
	case allowKey:
		if bad := l.Admits.AddAllowed(text); bad != nil {
			f.Fault(at, "%s has %s, %v", name, quote(text), bad)
		}
	case "mode":
		if bad := l.Limit.SetMode(text); bad != nil {
			f.Fault(at, "%v", bad)
		}
	}
	if err != nil {
		f.Fault(at, "%s is %s, want %v", name, quote(text), err)
	}
}

// parseCount parses a number of things. The error is what is wanted.
func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > gatehouse.MaxSize {
		return 0, fmt.Errorf("a whole number from 1 to %d", int64(gatehouse.MaxSize))
	}
	return n, nil
}

// parseDuration parses a time. The error is what is wanted.
func parseDuration(text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > gatehouse.MaxDuration {
		if least > 0 {
			return 0, fmt.Errorf("a time above 0 such as 500ms, 60s or 1h, at most 100 years")
		}
		return 0, fmt.Errorf("a time such as 5ms or 1s, at most 100 years")
	}
	return d, nil
}

// addAddress adds an address, unless it is not valid.
func (f *File) addAddress(name, text string, at Position) {
	a, err := ParseAddress(text)
	if err != nil {
		f.Fault(at, "%s %v", name, err)
		return
	}
	f.addresses = append(f.addresses, placedAddress{a, at})
}

// checkTogether finds settings that exclude each other.
func (f *File) checkTogether() {
	// The later one is at fault, once, and the earlier one is named.
	for i, a := range f.addresses {
		for _, b := range f.addresses[:i] {
			if a.Meets(b.Address) {
				f.Fault(a.at, "the address %s is taken by that in line %d", quote(a.text), b.at.Line)
				break
			}
		}
	}
	for i, l := range f.JARL {
		for _, other := range f.JARL[:i] {
			// Two listeners may share a limiter by its name. Then they must agree on its limit.
			mine, its := l.Limit, other.Limit
			mine.Poll, its.Poll = false, false // how clients ask does not matter to the limit
			if mine.Name == its.Name && mine != its {
				f.Fault(l.At, "the limiter %s has another limit than in the listener in line %d",
					quote(mine.Name), other.At.Line)
				break
			}
		}
	}
}

// maxQuoted is how much of a wrong value is shown, in bytes.
const maxQuoted = 64

// quote quotes a value of the file, but not the whole of a long one.
func quote(text string) string {
	text = withoutPasswords(text)
	if len(text) <= maxQuoted {
		return strconv.Quote(text)
	}
	text = text[:maxQuoted]
	// Do not cut a rune in two, but do not search through a text that is not UTF-8 at all.
	for !utf8.ValidString(text) && len(text) > maxQuoted-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return strconv.Quote(text) + "…"
}
