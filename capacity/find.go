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
		if globMatches(t[i].Glob, id) {
			return &t[i]
		}
	}
	return nil
}

// everything is the glob that a list of templates must end with.
const everything = "*"

func globMatches(glob, id string) bool {
	if glob == everything {
		return true
	}
	matched, err := path.Match(glob, id)
	return err == nil && matched
}

// A templateIndex finds what Templates.Find does without a scan of all templates: a new configuration is
// matched with every existing resource while all clients wait.
type templateIndex struct {
	templates     Templates
	byName        map[string]int   // by glob, the first that has it
	byPrefix      map[string][]int // by what comes before their first special character, in order
	prefixLengths []int            // of that, each once, the shortest first
}

// globSpecials are the characters that make a glob match other names than itself.
const globSpecials = `*?[\`

func newTemplateIndex(t Templates) templateIndex {
	l := templateIndex{templates: t, byName: make(map[string]int, len(t)), byPrefix: make(map[string][]int)}
	for i := range t {
		glob := t[i].Glob
		if _, ok := l.byName[glob]; !ok {
			l.byName[glob] = i
		}
		if end := strings.IndexAny(glob, globSpecials); end >= 0 {
			l.byPrefix[glob[:end]] = append(l.byPrefix[glob[:end]], i)
		}
	}
	for begin := range l.byPrefix {
		l.prefixLengths = append(l.prefixLengths, len(begin))
	}
	slices.Sort(l.prefixLengths)
	l.prefixLengths = slices.Compact(l.prefixLengths)
	return l
}

// findTemplate returns the template of a resource, or nil if none matches.
func (l *templateIndex) findTemplate(id string) *Template {
	if i, ok := l.byName[id]; ok {
		return &l.templates[i]
	}
	// A glob can only match names that begin with its literal prefix. So it suffices to look up each prefix
	// of the name that is as long as some glob's; the first template in the list wins.
	best := len(l.templates)
	for _, length := range l.prefixLengths {
		if length > len(id) {
			break
		}
		for _, i := range l.byPrefix[id[:length]] {
			if i >= best {
				break
			}
			if globMatches(l.templates[i].Glob, id) {
				best = i
			}
		}
	}
	if best == len(l.templates) {
		return nil
	}
	return &l.templates[best]
}
