package access

import (
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// ContextKey is where an HTTP request has its *User, for the handlers of routes.
const ContextKey = "gatehouse.user"

// maxRounds is how often the names of a gate are searched for one list. A user who may see few of very many
// names has to say more of what is looked for.
const maxRounds = 16

// leastFetched is how many names are asked for at once: a list of few names may have many others in between.
const leastFetched = 256

// A ListRequest asks for names of a kind that begin with a prefix and come after another, in order.
type ListRequest struct {
	gate.Prefix
	Most int
}

// List returns names that the user may see, as the user calls them. fetch asks the gate, and returns fewer
// than the Most of its own request only if there are no more.
func (u *User) List(
	asked ListRequest, fetch func(ListRequest) ([]gatehouse.NameDetails, error),
) ([]gatehouse.NameDetails, error) {
	if u == nil {
		return fetch(asked)
	}
	inside := asked
	inside.Most = max(asked.Most, leastFetched)
	// What all permitted names begin with keeps the search away from the many that others have.
	begins := u.commonHead(asked.Kind, asked.Prefix.Prefix)
	inside.Prefix.Prefix = u.Inside(begins)
	if asked.After != "" {
		inside.After = u.Inside(asked.After)
	}
	var shown []gatehouse.NameDetails
	for range maxRounds {
		found, err := fetch(inside)
		if err != nil {
			return nil, u.HideError(err)
		}
		for i := range found {
			one := found[i]
			var mine bool
			// Judged by the user's name for it. Rules may leave out names in the middle of what the gate
			// found.
			one.Name, mine = u.Outside(one.Name)
			if mine && strings.HasPrefix(one.Name, asked.Prefix.Prefix) &&
				u.May(asked.Kind, one.Name, gatehouse.LevelRead) {
				shown = append(shown, one)
			}
		}
		// Fewer than were asked for says that there are no more, as fetch promises.
		if len(shown) >= asked.Most || len(found) < inside.Most {
			return shown[:min(len(shown), asked.Most)], nil
		}
		inside.After = found[len(found)-1].Name
	}
	// An error, as a list that is cut short would look complete.
	return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
		"the list takes too long to find what user %s may see; give a longer prefix", u.Name)
}

// Head is what all names of a kind begin with that the user may see, as the gate knows them; ok is false if
// there can be none.
func (u *User) Head(kind gatehouse.Kind) (head string, ok bool) {
	for _, r := range u.byKind[kind] {
		ok = ok || r.level >= gatehouse.LevelRead
	}
	return u.Inside(u.commonHead(kind, "")), ok
}

// SeesAll reports whether the user may look at all names of the gate.
func (u *User) SeesAll() bool {
	if u == nil {
		return true
	}
	// Grants are left out: a user sees one by its names.
	for kind := gatehouse.Kind(1); kind < gatehouse.Grant; kind++ {
		if !u.MayAll(kind, "", gatehouse.LevelRead) {
			return false
		}
	}
	// With a prefix, all that the user may read is only what lies beneath.
	return u.prefix == ""
}

// commonHead is what all names of a kind begin with that the user may see and that begin with a text. It is
// that text if there is none.
func (u *User) commonHead(kind gatehouse.Kind, prefix string) string {
	head, found := "", false
	for _, r := range u.byKind[kind] {
		// A rule about other names says nothing about this list, and would only make the head shorter.
		if !r.on.MatchSome(kind, prefix) {
			continue
		}
		if !found {
			head, found = r.on.Head(), true
			continue
		}
		n := 0
		for n < min(len(head), len(r.on.Head())) && head[n] == r.on.Head()[n] {
			n++
		}
		head = head[:n]
	}
	// Both begin alike, as the rules match some name behind the prefix: the longer one narrows more.
	if len(head) > len(prefix) {
		return head
	}
	return prefix
}

// OwnCycles returns the cycles whose names all are the user's, as the user calls them.
func (u *User) OwnCycles(all []gate.Cycle) []gate.Cycle {
	// Only a prefix keeps names from a user here: server/cycles is a right to all of them.
	if u.Prefix() == "" {
		return all
	}
	var own []gate.Cycle
	for _, cycle := range all {
		// Names are changed in place below, and the caller's cycles stay as they are.
		cycle.Links = slices.Clone(cycle.Links)
		inside := true
		for i := range cycle.Links {
			key := &cycle.Links[i].Key
			name, mine := u.Outside(key.Name)
			key.Name, inside = name, inside && mine
		}
		// A cycle that leads through names of others would tell of these.
		if inside {
			own = append(own, cycle)
		}
	}
	return own
}

// Sees reports whether the user may look at all of these names, as the gate knows them. Grants have none of
// their own.
func (u *User) Sees(keys []*gatehouse.Key) bool {
	for _, key := range keys {
		// A grant is seen by the names that it is over, which are among the keys.
		if u == nil || key.Kind == gatehouse.Grant {
			continue
		}
		name, mine := u.Outside(key.Name)
		if !mine || !u.May(key.Kind, name, gatehouse.LevelRead) {
			return false
		}
	}
	return true
}

// ShowRefusal makes the explanation of a refusal what the user may see: names and grants are called as the
// user calls them.
func (u *User) ShowRefusal(d *gatehouse.Decision, keys []*gatehouse.Key, holders []gatehouse.HolderEntry) {
	d.Message = u.Hide(d.Message)
	for i := range holders {
		holders[i].Grant = u.ShownGrant(holders[i].Grant)
	}
	for _, key := range keys {
		// Ids of grants begin with their user, names with the prefix.
		if key.Kind == gatehouse.Grant {
			key.Name = u.ShownGrant(key.Name)
		} else {
			key.Name, _ = u.Outside(key.Name)
		}
	}
}
