package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"go.yaml.in/yaml/v4"
)

// The settings about a store that servers share. They have no flags.
const (
	rulesKey   = "rules"
	serversKey = "servers"
)

// Rules are searched one after the other, so their number is limited.
const (
	maxRules   = 100
	maxServers = 1000
)

// Rules are searched in order: the first that matches a name applies to it.
type Rules []StoreRule

// A StoreRule says how names are kept in a store that servers share.
type StoreRule struct {
	// Match is a glob over "kind/name"; the kind limiter stands for all limiters.
	Match string

	// OnUnreachable is what limiters answer while the store cannot be reached.
	OnUnreachable fallback.Answer

	// Lazy is how often what limiters count is exchanged with the store; 0 means that the store is asked
	// each time.
	Lazy time.Duration

	// Chunk is how many limiters take from the store at once, to hand them out one by one; 0 means none.
	Chunk int64

	// At is where the rule is.
	At yamlnode.Position

	pattern glob.Pattern
}

// Find returns the rule for a name, the zero Rule when there is none.
func (r Rules) Find(key gatehouse.Key) StoreRule {
	if i := r.Index(key); i >= 0 {
		return r[i]
	}
	return StoreRule{}
}

// Index returns the index of the rule for a name, -1 when there is none.
func (r Rules) Index(key gatehouse.Key) int {
	for i := range r {
		// The order of the file decides, and not how specific a pattern is.
		if r[i].pattern.Match(key.Kind, key.Name) {
			return i
		}
	}
	return -1
}

// Lazy reports whether any rule makes limiters ask the store less often than they are asked.
func (r Rules) Lazy() bool {
	return slices.ContainsFunc(r, func(rule StoreRule) bool { return rule.Lazy > 0 || rule.Chunk > 0 })
}

// ruleNames are the settings of a rule; the first is needed.
var ruleNames = []string{"match", "on-unreachable", "lazy", "chunk"}

// readRule reads one rule.
func (f *File) readRule(node *yaml.Node) {
	before := f.faults.Len()
	r := StoreRule{At: yamlnode.At(node)}
	given := make(map[string]yamlnode.Position)
	for name, value := range f.pairsOf(node, ruleNames, " of a rule") {
		given[name] = yamlnode.At(value)
		if text, ok := f.readScalar(name, value); ok {
			f.setRule(&r, name, text, yamlnode.At(value))
		}
	}
	if _, ok := given[ruleNames[0]]; node.Kind == yaml.MappingNode && !ok {
		f.Fault(r.At, "a rule has no %s", ruleNames[0])
	}
	if f.faults.Len() > before {
		return
	}
	// Needs the compiled glob, so only for a rule without faults.
	f.checkKinds(&r, given)
	// The number of servers may come later in the file: checkShares looks at it at the end.
	if r.OnUnreachable == fallback.LocalShare && f.faults.Len() == before {
		f.shares = append(f.shares, given["on-unreachable"])
	}
	f.Rules = append(f.Rules, r)
}

// setRule sets one field of a rule.
func (f *File) setRule(r *StoreRule, name, text string, at yamlnode.Position) {
	var err error
	switch name {
	case "match":
		r.Match = text
		err = r.compileMatch()
	case "on-unreachable":
		answer, ok := fallback.ParseAnswer(text)
		// What an unknown word is parsed to does not matter: a rule with a fault is never used.
		r.OnUnreachable = answer
		if !ok {
			err = fmt.Errorf("want %s, %s or %s", fallback.Refuse, fallback.Allow, fallback.LocalShare)
		}
	case "lazy":
		r.Lazy, err = parseDuration(text, time.Millisecond)
		if err != nil || r.Lazy > maxLazy {
			err = fmt.Errorf("want a time from 1ms to %s", maxLazy)
		}
	case "chunk":
		r.Chunk, err = parseCount(text)
	}
	if err != nil {
		f.Fault(at, "%s is %s, %v", name, quote(text), err)
	}
}

// maxLazy is the longest time for which servers may be without each other's counts.
const maxLazy = time.Minute

// firstKind returns the first kind that the rule applies to and for which none reports false; 0 if there is
// no such kind.
func (r *StoreRule) firstKind(none func(gatehouse.Kind) bool) gatehouse.Kind {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		// One kind is enough to name in a fault.
		if r.pattern.HasKind(kind) && !none(kind) {
			return kind
		}
	}
	return 0
}

// checkKinds refuses settings that only limiters can have for a rule that also applies to other kinds, and
// chunks for limiters that have none.
func (f *File) checkKinds(r *StoreRule, given map[string]yamlnode.Position) {
	if r.Chunk > 0 && r.Lazy == 0 {
		f.Fault(given["chunk"], "chunk is given without lazy, which says how often chunks are looked after")
	}
	other := r.firstKind(gatehouse.Kind.Limiter)
	// Limiters only. Not all of them can be handed out in chunks.
	if other == 0 {
		if kind := r.firstKind(lazy.InChunks); kind != 0 && r.Chunk > 0 {
			f.Fault(given["chunk"],
				"chunk is given, also for every %s, want it for tokenbucket and fixedwindow alone", kind)
		}
		return
	}
	const why = "only limiters can do without the store; match limiter/* is all of them"
	if r.OnUnreachable != fallback.Refuse {
		f.Fault(given["on-unreachable"], "on-unreachable is %s, also for every %s, want %s there: %s",
			r.OnUnreachable, other, fallback.Refuse, why)
	}
	for _, name := range []string{"lazy", "chunk"} {
		if place, ok := given[name]; ok {
			f.Fault(place, "%s is given, also for every %s, want it for limiters alone: %s", name, other, why)
		}
	}
}

// compileMatch compiles the glob. The error says what is wanted.
func (r *StoreRule) compileMatch() (err error) {
	r.pattern, err = glob.Compile(r.Match)
	return err
}

// readServers reads how many servers share the store.
func (f *File) readServers(node *yaml.Node) {
	text, ok := f.readScalar(serversKey, node)
	if !ok {
		return
	}
	// A share of the limit is divided by this, so 0 is refused.
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxServers {
		f.Fault(yamlnode.At(node), "%s is %s, want a whole number from 1 to %d",
			serversKey, quote(text), maxServers)
		return
	}
	f.Servers = n
}

// checkShares refuses a share of the limit if the number of servers is not given.
func (f *File) checkShares() {
	if f.Servers > 0 {
		return
	}
	// Each rule is told: any of them may be the one that should have another answer.
	for _, place := range f.shares {
		f.Fault(place, "on-unreachable is %s, but %s does not say how many share the store",
			fallback.LocalShare, serversKey)
	}
}
