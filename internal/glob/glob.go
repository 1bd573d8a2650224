// Package glob has patterns over "kind/name", such as gcra/api-*, limiter/* and *.
package glob

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// The kinds of names that a pattern may have besides those of controllers. No controller has them.
const (
	Capacity = gatehouse.Kind(gatehouse.Kinds) + iota
	Server
	numKinds
)

// limiterKind is a kind in a pattern that stands for all limiters.
const limiterKind = "limiter"

// A Pattern is a compiled glob. The zero Pattern matches nothing.
type Pattern struct {
	// Text is the pattern as it was written.
	Text string

	kinds [numKinds]bool
	exact bool           // of the name: it is head
	head  string         // what the name begins with
	rest  *regexp.Regexp // of the whole name; nil if a single star follows the head, or nothing
}

// Compile returns the pattern of a text, which applies to kinds of controllers and to the more that are
// given. The error says what is wanted.
func Compile(text string, more ...gatehouse.Kind) (p Pattern, err error) {
	kind, name, ok := strings.Cut(text, "/")
	// A star alone means every kind and every name; path.Match would not let it cross the slash.
	if text == "*" {
		kind, name, ok = "*", "*", true
	}
	if _, err := path.Match(text, ""); err != nil || !ok {
		return Pattern{}, errors.New("want a pattern such as gcra/api-*, limiter/* or *")
	}
	p.Text = text
	found := p.setKinds(kind, more)
	if !found {
		return Pattern{}, errors.New("want a kind of controller before the slash, such as gcra, semaphore, " +
			"limiter or *")
	}
	// A range such as [z-a] is accepted by path.Match and refused here.
	expression, err := regexp.Compile(globExpression(name))
	if err != nil {
		return Pattern{}, errors.New("want a pattern such as gcra/api-*, with ranges such as [a-z]")
	}
	// Most patterns are a name, or the first part of one and a star. These need no regular expression.
	special := strings.IndexAny(name, `*?[\`)
	switch {
	case special < 0:
		p.head, p.exact = name, true
	case special == len(name)-1 && name[special] == '*':
		p.head = name[:special]
	default:
		p.head, p.rest = name[:special], expression
	}
	return p, nil
}

// setKinds notes which kinds a pattern applies to, and reports whether there are any.
func (p *Pattern) setKinds(kind string, more []gatehouse.Kind) (found bool) {
	for k := gatehouse.Kind(1); k < gatehouse.Grant; k++ { // which the store alone decides
		// The pattern is well-formed, as the whole of it was matched before.
		p.kinds[k], _ = path.Match(kind, k.String())
		p.kinds[k] = p.kinds[k] || kind == limiterKind && k.Limiter()
		found = found || p.kinds[k]
	}
	for _, k := range more {
		p.kinds[k], _ = path.Match(kind, KindName(k))
		found = found || p.kinds[k]
	}
	return found
}

// KindName is the name of a kind in a pattern.
func KindName(k gatehouse.Kind) string {
	switch k {
	case Capacity:
		return "capacity"
	case Server:
		return "server"
	}
	return k.String()
}

// HasKind reports whether the pattern applies to names of a kind.
func (p *Pattern) HasKind(kind gatehouse.Kind) bool { return int(kind) < len(p.kinds) && p.kinds[kind] }

// Match reports whether the pattern matches a name of a kind. It allocates nothing.
func (p *Pattern) Match(kind gatehouse.Kind, name string) bool {
	if !p.HasKind(kind) || !strings.HasPrefix(name, p.head) {
		return false
	}
	switch {
	case p.exact:
		return len(name) == len(p.head)
	case p.rest == nil:
		return true
	}
	return p.rest.MatchString(name)
}

// MatchAll reports whether the pattern matches all names of a kind that begin with a text.
func (p *Pattern) MatchAll(kind gatehouse.Kind, prefix string) bool {
	return p.HasKind(kind) && !p.exact && p.rest == nil && strings.HasPrefix(prefix, p.head)
}

// MatchSome reports whether the pattern may match some name of a kind that begins with a text.
func (p *Pattern) MatchSome(kind gatehouse.Kind, prefix string) bool {
	return p.HasKind(kind) && (strings.HasPrefix(prefix, p.head) && !p.exact ||
		strings.HasPrefix(p.head, prefix))
}

// Head is what all names begin with that the pattern matches.
func (p *Pattern) Head() string { return p.head }

// Specificity is the length of the pattern's text before its first star. Of several that match, the longest
// is meant.
func (p *Pattern) Specificity() int {
	text, _, _ := strings.Cut(p.Text, "*")
	return len(text)
}

// globExpression returns the regular expression of a glob that path.Match accepts, except that its star and
// its question mark match a slash as well: names have slashes, but no folders.
func globExpression(glob string) string {
	var to strings.Builder
	to.WriteString(`(?s)\A`)
	// path.Match has checked the syntax, so each class is closed and each escape has a character after it.
	// Every literal is written as a code point, which needs no escaping inside a class or outside.
	class, escaped := false, false
	var last rune
	for _, r := range glob {
		switch {
		case escaped || class && !strings.ContainsRune(`\]-^`, r) || class && r == '^' && last != '[':
			fmt.Fprintf(&to, `\x{%x}`, r)
			escaped = false
			r = 0
		case r == '\\':
			escaped = true
		case r == '[':
			class = true
			to.WriteRune(r)
		case class: // - or ] or the ^ behind the bracket
			class = r != ']'
			to.WriteRune(r)
		case r == '*':
			to.WriteString(".*")
		case r == '?':
			to.WriteByte('.')
		default:
			to.WriteString(regexp.QuoteMeta(string(r)))
		}
		last = r
	}
	to.WriteString(`\z`)
	return to.String()
}
