package http

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/topk"
	"github.com/valyala/fasthttp"
)

// topPath is the page of the names and users that are counted most.
const topPath = "/v1/top"

// The limits of the parameter k.
const defaultTop, maxTop = 20, 500

// A topJSON is one name or user, with how often it was counted lately: at most count, and at least count less
// excess.
type topJSON struct {
	Kind   string `json:"kind,omitempty"`
	Name   string `json:"name,omitempty"`
	User   string `json:"user,omitempty"`
	Count  int64  `json:"count"`
	Excess int64  `json:"excess"`
}

func newTopJSON(users []topk.Entry[string]) []topJSON {
	list := make([]topJSON, 0, len(users))
	for _, u := range users {
		list = append(list, topJSON{User: u.Key, Count: rounded(u.Count), Excess: rounded(u.Excess)})
	}
	return list
}

func rounded(count float64) int64 { return int64(math.Round(count)) }

// A topQuery is what is asked for.
type topQuery struct {
	by   decisions.Measure
	kind gatehouse.Kind // 0 for all
	k    int
	hash bool
}

// readTopQuery reads the parameters of a request for the busiest names.
func readTopQuery(ctx *fasthttp.RequestCtx) (q topQuery, p *rejection) {
	by, kind, hash, k := "granted", "", "false", strconv.Itoa(defaultTop)
	texts := map[string]*string{"by": &by, "kind": &kind, "hash": &hash, "k": &k}
	p = readOptions(ctx, texts, "by kind k hash")
	if p != nil {
		return q, p
	}
	quote := func(text string) string { return params.Quote([]byte(text)) }
	// Each parameter was given its default above, so that an empty one is as wrong as any other.
	var ok bool
	q.by, ok = decisions.ParseMeasure(by)
	if !ok {
		return q, badRequest("by is %s, want granted, refused or waited", quote(by))
	}
	q.kind, ok = gatehouse.ParseKind(kind)
	if !ok && kind != "" || q.kind == gatehouse.Grant {
		return q, badRequest("kind is %s, want one such as gcra or lock, or none for all", quote(kind))
	}
	q.hash = hash == "true"
	if !q.hash && hash != "false" {
		return q, badRequest("hash is %s, want true or false", quote(hash))
	}
	n, err := strconv.Atoi(k)
	if err != nil || n < 1 || n > maxTop {
		return q, badRequest("k is %s, want a whole number from 1 to %d", quote(k), maxTop)
	}
	q.k = n
	return q, nil
}

// answerTop answers with the names and the users that were counted most lately.
func (s *Server) answerTop(ctx *fasthttp.RequestCtx) {
	from := readSender(&ctx.Request.Header)
	q, p := readTopQuery(ctx)
	if p == nil && s.config.Decisions == nil {
		p = noSuchPath("nothing is counted by name: this server observes no decisions")
	}
	if p != nil {
		p.writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	view := viewOf(s.userOf(ctx))
	names, users := s.topNames(q, view), []topJSON{}
	// Users are counted over all names, which tells about names that cannot be seen.
	if view == nil {
		users = newTopJSON(s.config.Decisions.TopUsers(q.by, q.k))
	}
	// Hashed last, so that the order tells no more than the counts do.
	if q.hash {
		for i := range names {
			names[i].Name = hashedName(names[i].Name)
		}
		for i := range users {
			users[i].User = hashedName(users[i].User)
		}
	}
	writeJSON(&ctx.Response, struct {
		By       string    `json:"by"`
		HalfLife int64     `json:"half_life"`
		Names    []topJSON `json:"names"`
		Users    []topJSON `json:"users"`
	}{q.by.String(), topk.HalfLife.Milliseconds(), names, users})
}

// topNames returns the names that were counted most of those that can be seen.
func (s *Server) topNames(q topQuery, view activity.View) []topJSON {
	names, most := []topJSON{}, q.k
	if view != nil {
		most = math.MaxInt // that are counted
	}
	for _, n := range s.config.Decisions.TopNames(q.by, q.kind, most) {
		key, seen := activity.Show(view, n.Key)
		if seen && len(names) < q.k {
			names = append(names, topJSON{
				Kind: key.Kind.String(), Name: key.Name, Count: rounded(n.Count), Excess: rounded(n.Excess),
			})
		}
	}
	return names
}

// hashedName stands for a name that is not to be shown: the same for the same name on every server. To
// guess a name is to know its hash.
func hashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:8])
}
