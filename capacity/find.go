package capacity

import (
	"path"
	"slices"
	"strings"
)

// Find returns the template of a resource: the first whose glob is exactly its name, otherwise the first
// whose glob matches it. The result points into t; it is nil only where no template matches, which cannot
// be with templates that have no Faults.
//
// Globs are those of path.Match, so a star stands for anything but a slash. "*" alone matches every name.
// With db-[ab]*, db-ax, x/* and * in this order, db-ax is found for db-ax, db-[ab]* for db-ay, x/* for x/y,
// and * for a/b. A malformed glob matches nothing.
func (t Templates) Find(id string) *Template {
	for i := range t {
		if t[i].Glob == id {
			return &t[i]
		}
	}
	for i := range t {
		if matches(t[i].Glob, id) {
			return &t[i]
		}
	}
	return nil
}

// everything is the glob that a list of templates must end with.
const everything = "*"

func matches(glob, id string) bool {
	if glob == everything {
		return true
	}
	matched, err := path.Match(glob, id)
	return err == nil && matched
}

// A lookup finds what Find does, without looking through all templates: a new configuration is looked at for
// every resource there is, while all clients wait.
type lookup struct {
	templates Templates
	names     map[string]int   // by glob, the first that has it
	patterns  map[string][]int // by what comes before their first special character, in order
	lengths   []int            // of that, each once, the shortest first
}

// special are the characters that make a glob match other names than itself.
const special = `*?[\`

func newLookup(t Templates) lookup {
	l := lookup{templates: t, names: make(map[string]int, len(t)), patterns: make(map[string][]int)}
	for i := range t {
		glob := t[i].Glob
		if _, ok := l.names[glob]; !ok {
			l.names[glob] = i
		}
		if end := strings.IndexAny(glob, special); end >= 0 {
			l.patterns[glob[:end]] = append(l.patterns[glob[:end]], i)
		}
	}
	for begin := range l.patterns {
		l.lengths = append(l.lengths, len(begin))
	}
	slices.Sort(l.lengths)
	l.lengths = slices.Compact(l.lengths)
	return l
}

// find is the template of a resource; nil where none matches.
func (l *lookup) find(id string) *Template {
	if i, ok := l.names[id]; ok {
		return &l.templates[i]
	}
	best := len(l.templates)
	for _, length := range l.lengths {
		if length > len(id) {
			break
		}
		for _, i := range l.patterns[id[:length]] {
			if i >= best {
				break
			}
			if matches(l.templates[i].Glob, id) {
				best = i
			}
		}
	}
	if best == len(l.templates) {
		return nil
	}
	return &l.templates[best]
}
