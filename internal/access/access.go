// Package access says who may do what: the users of a file, how they show who they are, what each of them may
// do with which names, and how much of everything each may have. Fronts ask it before they put a command to
// the gate, which knows nothing of users.
//
// A nil *User means that rights are off: everything is allowed, and nothing is looked at.
package access

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
)

// Anonymous is the name of the user who gives neither a token nor a certificate. A file without such a user
// refuses those.
const Anonymous = "anonymous"

// jarlPrefix begins the names of the users for whom JARL listeners ask.
const jarlPrefix = "jarl/"

// A User is who a request is from. It does not change: a new file makes new users.
type User struct {
	// Name is that in the file.
	Name string

	policy  *Policy
	tokens  []tokenHash
	certs   []string
	prefix  string
	rules   []rule // the most specific first
	byKind  [kinds][]*rule
	most    quotas
	usage   *usage
	users   *Users
	origin  gatehouse.Origin
	address string // of an anonymous user, by which its quotas are counted
}

const kinds = int(glob.Server) + 1

// A rule is one line of what a user may do.
type rule struct {
	on    glob.Pattern
	level gatehouse.Level
	line  int

	size   int64               // the largest size or limit of what is begun; 0 means any
	limits gatehouse.LimitList // that what is begun must keep; empty means any
	as     string              // the client ids for which it speaks; "" means any
	also   [numExtras]bool
}

// The operations that a rule can grant by name, beside its level.
const (
	extraResize = iota
	extraFeedback
	numExtras
)

var extraNames = [numExtras]string{"resize", "feedback"}

// sortRules brings the rules into the order in which they are searched.
func (u *User) sortRules() {
	// The first rule that matches decides, so this order is the one that docs/users.md promises.
	slices.SortStableFunc(u.rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(b.on.Specificity(), a.on.Specificity()), cmp.Compare(b.line, a.line))
	})
	// The lists point into rules, which is not sorted or grown any more from here on.
	for i := range u.rules {
		for k := range u.byKind {
			if u.rules[i].on.HasKind(gatehouse.Kind(k)) {
				u.byKind[k] = append(u.byKind[k], &u.rules[i])
			}
		}
	}
}

// levelOf is the level that an operation needs under the rule, which may grant the operation by name. r may
// be nil.
func (r *rule) levelOf(kind gatehouse.Kind, op gatehouse.Op) gatehouse.Level {
	// Resizing is no operation of its own, so that check asks for it by itself.
	if r != nil && op == gatehouse.OpFeedback && r.also[extraFeedback] {
		return gatehouse.LevelUse
	}
	return kind.Level(op)
}

// find returns the rule that applies to a name, nil if there is none: the one with the longest text before
// its first star, of equals the later.
func (u *User) find(kind gatehouse.Kind, name string) *rule {
	// sortRules has brought each list into the order of precedence.
	for _, r := range u.byKind[kind] {
		if r.on.Match(kind, name) {
			return r
		}
	}
	return nil
}

// May reports whether the user may do what needs a level with a name, as the user calls it. Kind may be
// [glob.Capacity] or [glob.Server] too. A nil user may do everything.
func (u *User) May(kind gatehouse.Kind, name string, level gatehouse.Level) bool {
	if u == nil {
		return true
	}
	r := u.find(kind, name)
	// What no client may ask for, such as an undo, has no level, which every rule would reach.
	return r != nil && r.level >= level && level != gatehouse.NoLevel
}

// MayAll reports whether the user may do what needs a level with all names that begin with a text.
func (u *User) MayAll(kind gatehouse.Kind, prefix string, level gatehouse.Level) bool {
	if u == nil {
		return true
	}
	// A rule for some of the names counts against all of them if it says less, even where a more specific
	// one would say more.
	whole := false
	for _, r := range u.byKind[kind] {
		if r.on.MatchSome(kind, prefix) && r.level < level {
			return false
		}
		whole = whole || r.on.MatchAll(kind, prefix)
	}
	// Rules for parts do not add up: names between them would have no rule, which means no.
	return whole
}

// MayAs reports whether the user may speak for a client of a capacity's resource, at a level.
func (u *User) MayAs(resource, client string, level gatehouse.Level) bool {
	if u == nil {
		return true
	}
	r := u.find(glob.Capacity, resource)
	return r != nil && r.level >= level && (r.as == "" || matchStar(r.as, client))
}

// matchStar reports whether a text matches a pattern in which a star at the end stands for anything.
func matchStar(pattern, text string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, head)
	}
	return pattern == text
}

// Require returns an error of CodeForbidden, or of CodeUnauthenticated for an anonymous user, unless the user
// may do what needs a level with a name. verb says what was to be done.
func (u *User) Require(kind gatehouse.Kind, name string, level gatehouse.Level, verb string) error {
	if u.May(kind, name, level) {
		return nil
	}
	// The name is the user's here: CountRefused puts the prefix before it, and the text must not show it.
	return u.CountRefused(gatehouse.Key{Kind: kind, Name: name},
		u.refusal(verb+" "+glob.KindName(kind)+"/"+name, level))
}

// refusal is the error of a user who may not do something.
func (u *User) refusal(what string, level gatehouse.Level) error {
	// Another server's clients get to know who they are to this one, and what to ask for.
	if u.Name == Anonymous {
		return gatehouse.Errorf(gatehouse.CodeUnauthenticated,
			"%s needs the right to %s, which a request without a token does not have; send a token", what,
			level)
	}
	return gatehouse.Errorf(gatehouse.CodeForbidden,
		"%s needs the right to %s, which user %s does not have; ask who runs this server for it", what, level,
		u.Name)
}

// RequireAll is Require for all names that begin with a text.
func (u *User) RequireAll(kind gatehouse.Kind, prefix string, level gatehouse.Level, verb string) error {
	if u.MayAll(kind, prefix, level) {
		return nil
	}
	// A list has no one name, so it counts by its kind.
	return u.CountRefused(gatehouse.Key{Kind: kind},
		u.refusal(verb+" all "+glob.KindName(kind)+"/"+prefix+"…", level))
}

// RequireAs is Require for a client of a capacity's resource.
func (u *User) RequireAs(resource, client string, level gatehouse.Level, verb string) error {
	if u.MayAs(resource, client, level) {
		return nil
	}
	return u.CountRefused(gatehouse.Key{Kind: glob.Capacity, Name: resource},
		u.refusal(verb+" capacity/"+resource+" as client "+yamlnode.Quote(client), level))
}

// Permissions are what the user may do: globs with the level that each gives, the most specific first.
func (u *User) Permissions() iter.Seq2[string, gatehouse.Level] {
	return func(yield func(string, gatehouse.Level) bool) {
		for i := range u.rules {
			if !yield(u.rules[i].on.Text, u.rules[i].level) {
				return
			}
		}
	}
}

// Explain says by which line a user may do what needs a level with a name, or may not.
func (u *User) Explain(kind gatehouse.Kind, name string, level gatehouse.Level) (ok bool, why string) {
	r := u.find(kind, name)
	// There is no default that allows: what no line is about is refused.
	if r == nil {
		return false, "no line of " + u.Name + " is about " + glob.KindName(kind) + "/" + name
	}
	return r.level >= level, r.describe(u.policy.Path)
}

// ExplainOp is Explain for an operation on a name.
func (u *User) ExplainOp(key gatehouse.Key, op gatehouse.Op) (ok bool, why string) {
	// The level depends on the rule too: it may grant feedback by name.
	return u.Explain(key.Kind, key.Name, u.find(key.Kind, key.Name).levelOf(key.Kind, op))
}
