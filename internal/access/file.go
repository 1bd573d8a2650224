package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The limits of a file of users.
const (
	maxUsers  = 10_000
	maxRules  = 1_000 // of one user
	maxTokens = 10    // of one user: two while one is replaced, with room for several programs
	maxCerts  = 100
	maxName   = 64 // bytes
	maxPrefix = 128
)

// ParsePolicy reads the text of a file of users. path is where it is from, for its faults.
func ParsePolicy(path string, text []byte) (*Policy, error) {
	f := &policyFile{Policy: Policy{
		Path: path, sum: hashToken(text), byName: make(map[string]*User), tokens: make(map[tokenHash]*User),
		certs: make(map[string]*User),
	}}
	node := f.faults.ParseDocument(text)
	switch {
	case node == nil && f.faults.Len() == 0, node != nil && yamlnode.IsNull(node):
		// A file that is still being written must not pass for one that refuses everybody.
		f.addFault(&yaml.Node{}, "the file is empty, want users: and at least one of them")
	case node != nil:
		f.readTop(node)
	}
	if err := f.faults.Err(path); err != nil {
		return nil, err
	}
	return &f.Policy, nil
}

// A policyFile is a file while it is read.
type policyFile struct {
	Policy
	faults yamlnode.FileFaults
}

func (f *policyFile) addFault(at *yaml.Node, format string, args ...any) {
	f.faults.Add(yamlnode.At(at), fmt.Sprintf(format, args...))
}

func (f *policyFile) readTop(node *yaml.Node) {
	found := false
	for _, value := range f.faults.Pairs(node, []string{"users"}, "") {
		found = true
		f.readList(value, "users", maxUsers, f.readUser)
	}
	// A user with a fault is left out, so there may be none although the file has some.
	if node.Kind == yaml.MappingNode && (!found || len(f.users) == 0) && f.faults.Len() == 0 {
		f.addFault(node, "users has none, want at least one")
	}
}

// readList calls read for each entry of a list.
func (f *policyFile) readList(node *yaml.Node, name string, most int, read func(*yaml.Node)) {
	switch {
	case node.Kind != yaml.SequenceNode:
		f.addFault(node, "%s is %s, want a list", name, yamlnode.Kind(node))
	case len(node.Content) > most:
		f.addFault(node, "%s has %d entries, want at most %d", name, len(node.Content), most)
	default:
		for _, entry := range node.Content {
			read(entry)
		}
	}
}

var userKeys = []string{"name", "tokens", "certificates", "may", "at-most", "prefix"}

// readUser reads one user.
func (f *policyFile) readUser(node *yaml.Node) {
	before := f.faults.Len()
	u := &User{policy: &f.Policy}
	given := maps.Collect(f.faults.Pairs(node, userKeys, " of a user"))
	f.readName(u, node, given)
	// The prefix decides what a star alone stands for.
	if at := given["prefix"]; at != nil {
		f.readPrefix(u, at)
	}
	f.readLogins(u, given)
	if may := given["may"]; may != nil {
		f.readList(may, "may", maxRules, func(rule *yaml.Node) { f.readRule(u, rule) })
	}
	if at := given["at-most"]; at != nil {
		f.readQuotas(u, at)
	}
	// The other users are read all the same, so that all faults are told at once.
	if f.faults.Len() > before {
		return
	}
	u.sortRules()
	f.users = append(f.users, u)
}

// readName reads the name, which is needed.
func (f *policyFile) readName(u *User, node *yaml.Node, given map[string]*yaml.Node) {
	at := given["name"]
	if at == nil {
		if node.Kind == yaml.MappingNode {
			f.addFault(node, "a user has no name")
		}
		return
	}
	name, ok := f.faults.Scalar("name", at)
	if !ok {
		return
	}
	// Even one that is wrong is kept: faults of its tokens and certificates name the user.
	u.Name, u.origin.User = name, name
	switch {
	case !IsName(strings.TrimPrefix(name, jarlPrefix)):
		f.addFault(at,
			"name is %s, want 1 to %d letters, digits, dots, hyphens and underscores, or jarl/ and "+
				"the name of a listener's limiter", yamlnode.Quote(name), maxName)
	case f.byName[name] != nil:
		f.addFault(at, "name is %s, which another user has", yamlnode.Quote(name))
	default:
		f.byName[name] = u
	}
}

// IsName reports whether a text can be the name of a user. It is short and plain, as it begins keys of
// holders and is shown in logs and metrics.
func IsName(name string) bool {
	odd := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '.' && r != '-' && r != '_'
	}
	// Above all it has no ownerMark, by which keys of users are told apart.
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, odd)
}

// readPrefix reads what the names of the user lie beneath.
func (f *policyFile) readPrefix(u *User, at *yaml.Node) {
	text, ok := f.faults.Scalar("prefix", at)
	if !ok {
		return
	}
	// It ends in a slash, so that team-a/ has no names of team-ab/.
	plain := !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '"' ||
			r == '\\'
	})
	if len(text) < 2 || len(text) > maxPrefix || !strings.HasSuffix(text, "/") || !plain {
		f.addFault(at, "prefix is %s, want up to %d plain characters that end in a slash, such as team-a/",
			yamlnode.Quote(text), maxPrefix)
		return
	}
	u.prefix = text
}

// readLogins reads by what the user is known.
func (f *policyFile) readLogins(u *User, given map[string]*yaml.Node) {
	if at := given["tokens"]; at != nil {
		f.readList(at, "tokens", maxTokens, func(node *yaml.Node) {
			text, ok := f.faults.Scalar("a token", node)
			if !ok {
				return
			}
			// The text is not shown: it may be the token itself.
			hash, ok := parseHash(text)
			switch {
			case !ok:
				f.addFault(node,
					"a token is not sha256: and 64 hexadecimal digits; gatehouse token NAME makes one")
			case f.tokens[hash] != nil:
				f.addFault(node, "a token is that of user %s already", f.tokens[hash].Name)
			default:
				f.tokens[hash] = u
				u.tokens = append(u.tokens, hash)
			}
		})
	}
	if at := given["certificates"]; at != nil {
		f.readList(at, "certificates", maxCerts, func(node *yaml.Node) {
			name, ok := f.faults.Scalar("a certificate", node)
			switch {
			case !ok:
			case name == "":
				f.addFault(node,
					"a certificate is empty, want CN=NAME or a name of its subject's alternatives")
			case f.certs[name] != nil:
				f.addFault(node, "certificate %s is that of user %s already", yamlnode.Quote(name),
					f.certs[name].Name)
			default:
				f.certs[name] = u
				u.certs = append(u.certs, name)
			}
		})
	}
	if (u.Name == Anonymous || strings.HasPrefix(u.Name, jarlPrefix)) && len(u.tokens)+len(u.certs) > 0 {
		f.addFault(given["name"], "user %s has tokens or certificates, want none: no client shows any for it",
			u.Name)
	}
}

var ruleKeys = []string{"on", "do", "size", "limits", "as", "also"}

// readRule reads one line of what a user may do.
func (f *policyFile) readRule(u *User, node *yaml.Node) {
	before := f.faults.Len()
	r := rule{line: node.Line}
	given := make(map[string]*yaml.Node)
	for key, value := range f.faults.Pairs(node, ruleKeys, " of what a user may") {
		given[key] = value
		if key == "also" {
			f.readExtras(&r, value)
			continue
		}
		text, ok := f.faults.Scalar(key, value)
		if !ok {
			continue
		}
		if err := r.set(u, key, text); err != nil {
			f.addFault(value, "%s is %s, %v", key, yamlnode.Quote(text), err)
		}
	}
	for _, key := range ruleKeys[:2] {
		if node.Kind == yaml.MappingNode && given[key] == nil {
			f.addFault(node, "a line of what a user may has no %s", key)
		}
	}
	// Only now, as the keys of a line may come in any order.
	if at := given["as"]; at != nil && !r.on.HasKind(glob.Capacity) {
		f.addFault(at, "as is given for what is no capacity, want it with on: capacity/… alone")
	}
	if f.faults.Len() == before {
		u.rules = append(u.rules, r)
	}
}

// set sets one field of a rule.
func (r *rule) set(u *User, key, text string) (err error) {
	switch key {
	case "on":
		more := []gatehouse.Kind{glob.Capacity, glob.Server}
		// What lies beneath a prefix is all that such a user has, unless it is said otherwise.
		if u.prefix != "" && strings.HasPrefix(text, "*") {
			more = nil
		}
		r.on, err = glob.Compile(text, more...)
	case "do":
		level, ok := gatehouse.ParseLevel(text)
		// A wrong word leaves NoLevel, and the fault keeps the whole file from use.
		r.level = level
		if !ok {
			err = errors.New("want read, use or manage")
		}
	case "size":
		r.size, err = strconv.ParseInt(text, 10, 64)
		if err != nil || r.size < 1 || r.size > gatehouse.MaxSize {
			err = fmt.Errorf("want a whole number from 1 to %d", int64(gatehouse.MaxSize))
		}
	case "limits":
		r.limits, err = gatehouse.ParseLimits(text)
		if err != nil {
			err = errors.New("want limits such as 100/1s,5000/1h")
		}
	case "as":
		r.as = text
		if strings.Contains(strings.TrimSuffix(text, "*"), "*") || text == "" {
			err = errors.New("want the id of a client, or its beginning and a star, such as ci-*")
		}
	}
	return err
}

// readExtras reads what a rule grants by name.
func (f *policyFile) readExtras(r *rule, node *yaml.Node) {
	// Each can be given once at most, so that a longer list has one twice.
	f.readList(node, "also", numExtras, func(entry *yaml.Node) {
		name, ok := f.faults.Scalar("also", entry)
		i := slices.Index(extraNames[:], name)
		switch {
		case !ok:
		case i < 0:
			f.addFault(entry, "also has %s, want resize or feedback", yamlnode.Quote(name))
		default:
			r.also[i] = true
		}
	})
}

var quotaKeys = []string{"names", "waiters", "holders", "connections", "rate"}

// maxQuota bounds what is kept to count the names and the holds of a user.
const maxQuota = 10_000_000

// readQuotas reads how much a user may have.
func (f *policyFile) readQuotas(u *User, node *yaml.Node) {
	q := &u.most
	for key, value := range f.faults.Pairs(node, quotaKeys, " of at-most") {
		text, ok := f.faults.Scalar(key, value)
		if !ok {
			continue
		}
		// A rate is counted in one number, which has room for neither a list nor a calendar.
		if key == "rate" {
			list, err := gatehouse.ParseLimits(text)
			if err != nil || list.Len() != 1 || list.At(0).Size < 1 ||
				list.At(0).Calendar != gatehouse.NoCalendar || list.At(0).Interval <= 0 {
				f.addFault(value, "rate is %s, want one limit such as 2000/1s", yamlnode.Quote(text))
				continue
			}
			q.Rate = list.At(0)
			continue
		}
		// 0 is no number here: it stands for a quota that is left out, which is any number.
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > maxQuota {
			f.addFault(value, "%s is %s, want a whole number from 1 to %d", key, yamlnode.Quote(text),
				maxQuota)
			continue
		}
		switch key {
		case "names":
			q.Names = n
		case "waiters":
			q.Waiters = n
		case "holders":
			q.Holders = n
		case "connections":
			q.Connections = n
		}
	}
}
