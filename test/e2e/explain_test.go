package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// explained is what GET /v1/decisions/<id> answers.
type explained struct {
	ID, Kind, Name, Op, Detail, Binding, Asked, Owner string
	Limit, Remaining, Waited, MaxWait                 int64
	Passes                                            *time.Time
	Waiting                                           int
	Holders                                           []struct{ Owner string }
	Users                                             []struct{ User string }
	Want                                              []struct{ Kind, Name, Outcome string }
	Windows                                           []struct{ Limit string }
}

// refusal makes a request that is refused, and returns the id of the refusal.
func (s *server) refusal(t *testing.T, asked string) string {
	t.Helper()
	resp := s.begun(t.Context(), t, asked)
	_ = resp.Body.Close()
	id := resp.Header.Get("Gatehouse-Decision")
	if id == "" || resp.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("%s = %s with decision %q, want a refusal with an id", asked, resp.Status, id)
	}
	return id
}

// explain returns the explanation of a refusal.
func (s *server) explain(t *testing.T, id string) (e explained) {
	t.Helper()
	status, body := s.call(t, "GET", "decisions/"+id)
	if err := json.Unmarshal([]byte(body), &e); err != nil || status != http.StatusOK || e.ID != id {
		t.Fatalf("decision %s = %d %s, %v, want its explanation", id, status, body, err)
	}
	return e
}

// A refusal is explained by its id: which limit of which name it was, how much was free, who holds, and when
// it passes; over HTTP, RESP and by the command.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := start(t, "--decisions", "50")
	s.wants(t, "GET semaphore/db/acquire?size=2&key=secret&cost=2&expires=60000&owner=train-a", 200, "secret")

	id := s.refusal(t, "GET semaphore/db/acquire?size=2&key=other&maxwait=40&owner=bob")
	e := s.explain(t, id)
	if e.Kind != "semaphore" || e.Name != "db" || e.Op != "acquire" || e.Binding != "semaphore/db" ||
		e.Asked != "2" || e.Limit != 2 || e.Remaining != 0 || e.Waited < 30 || e.MaxWait != 40 ||
		e.Passes == nil ||
		e.Owner != "bob" || len(e.Holders) != 1 || e.Holders[0].Owner != "train-a" {
		t.Errorf("the refusal of a slot is explained by %+v", e)
	}
	_, body := s.call(t, "GET", "decisions/"+id)
	if strings.Contains(body, "secret") || strings.Contains(body, `"other"`) {
		t.Errorf("the explanation has a key, by which others could release a hold: %s", body)
	}
	// Who has the slots later did not take them from this request.
	s.wants(t, "GET semaphore/db/release?key=secret", 204, "")
	s.wants(t, "GET semaphore/db/acquire?size=2&key=later&owner=late", 200, "later")
	if e := s.explain(t, id); len(e.Holders) != 0 {
		t.Errorf("the holders are %v, who came later", e.Holders)
	}
	command := exec.CommandContext(t.Context(), binary(), "explain", id, "--server", s.address)
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), e.Detail+"\n") ||
		!strings.Contains(string(out), "free     0 of 2\n") {
		t.Errorf("gatehouse explain = %s, %v, want %s", out, err, e.Detail)
	}

	// Of several limits those that refused are named, and who was granted most.
	s.wants(t, "GET gcra/api/acquire?limits=1/1m,9/1h&owner=carl", 204, "")
	e = s.explain(t, s.refusal(t, "GET gcra/api/acquire?limits=1/1m,9/1h&maxwait=0"))
	if !strings.Contains(e.Detail, "; 1/1m allowed no more") || strings.Contains(e.Detail, "9/1h allowed") ||
		len(e.Windows) != 2 || len(e.Users) != 1 || e.Users[0].User != "carl" {
		t.Errorf("the refusal of one of two limits is explained by %+v", e)
	}

	// With parents the level that refused is named.
	const withParent = "GET gcra/user/acquire?size=5&interval=60000&parents=gcra/team:1/1m"
	s.wants(t, withParent, 204, "")
	e = s.explain(t, s.refusal(t, withParent+"&maxwait=40"))
	if e.Name != "user" || e.Waited < 30 || e.MaxWait != 40 ||
		e.Binding != "gcra/team" || len(e.Want) != 2 || e.Want[0].Outcome != "granted" {
		t.Errorf("the refusal by a parent is explained by %+v", e)
	}

	redis := dialRedis(t, s.redisAddress(t))
	redis.want("GH.EXPLAIN LAST", "null")
	redis.want("CL.THROTTLE u 0 1 60", "[0 …")
	redis.want("CL.THROTTLE u 0 1 60", "[1 …")
	redis.want("GH.EXPLAIN LAST", "[id d… name gcra/u op acquire binding gcra/u asked 1/1m cost 1 limit 1 "+
		"remaining 0 …")
	redis.want("GH.EXPLAIN "+id, "[id "+id+" …")
	s.wantExplainedOverRESP(t, redis)
	redis.want("GH.EXPLAIN dzzzz", "null")
	redis.want("GH.EXPLAIN 1", `-INVALID decision is "1", want LAST or an id such as d1x8k2`)
}

// wantExplainedOverRESP wants over RESP what HTTP tells of a refusal, of each sort.
func (s *server) wantExplainedOverRESP(t *testing.T, redis *redisConn) {
	t.Helper()
	s.wants(t, "GET lock/held/acquire?key=secret&owner=ann&host=h1&expires=60000", 200, "secret")
	id := s.refusal(t, "GET lock/held/acquire?key=x&owner=bob&host=h2&purpose=tests&maxwait=30")
	redis.want("GH.EXPLAIN "+id, "[id "+id+" … owner bob … maxwait 30 maxdelay 0 passes …Z windows [] "+
		"want [] host h2 purpose tests request  holders [[id h… owner ann host h1 …]] users []]")
	s.wants(t, "GET lock/held/release?key=secret", 204, "")
	redis.want("GH.EXPLAIN "+id, "[id "+id+" … holders [] users []]")

	id = s.refusal(t, "GET gcra/api/acquire?limits=1/1m,9/1h&maxwait=0")
	redis.want("GH.EXPLAIN "+id, "[id "+id+" … windows [[limit 1/1m remaining 0 …] [limit 9/1h …]] want [] "+
		"… holders [] users [[user carl count 1 excess 0]]]")
	id = s.refusal(t, "GET gcra/user/acquire?size=5&interval=60000&parents=gcra/team:1/1m&maxwait=0")
	redis.want("GH.EXPLAIN "+id, "[id "+id+" … binding gcra/team … want [[name gcra/user outcome granted …] "+
		"[name gcra/team outcome refused …]] …]")
}

// What is not kept is a 404 that says how many are; hostile ids are quoted.
func TestExplainsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, "--decisions", "3")
	s.wants(t, "GET lock/l/acquire?key=a", 200, "a")
	refused := "GET lock/l/acquire?key=b&maxwait=0"
	first := s.refusal(t, refused)
	for range 3 {
		s.refusal(t, refused)
	}
	for _, c := range []struct{ id, part string }{
		{first, "is not kept any more: this server keeps the last 3 refusals"},
		{"d1", "is not one of this server, which keeps its last 3 refusals"},
		{"", `decision is "", want an id`},
		{"d", `decision is "d", want an id`},
		{"D1", `decision is "D1", want an id`},
		{"d01", `decision is "d01", want an id`}, // not the spelling of d1
		{"h1", `want an id`},
		{strings.ToUpper(first), "want an id"},
		{first + "%00", "want an id"},
		{first + "/", "want an id"},
		{"..%2fmetrics", "want an id"},
		{url.PathEscape("<script>alert(1)</script>"), "want an id"},
		{"d" + strings.Repeat("z", 2000), "want an id"},
		{"dzzzzzzzzzzzzz", "want an id"}, // above 64 bits
		{"%25zz", "want an id"},
	} {
		status, body := s.call(t, "GET", "decisions/"+c.id)
		if status != http.StatusNotFound || !strings.Contains(body, c.part) || len(body) > 500 {
			t.Errorf("decision %.40q = %d %s, want 404 with %q", c.id, status, body, c.part)
		}
	}
	s.wants(t, "POST decisions/"+first, http.StatusMethodNotAllowed, "GET, HEAD")

	none := start(t, "--decisions", "0")
	none.wants(t, "GET lock/l/acquire?key=a", 200, "a")
	resp := none.begun(t.Context(), t, refused)
	_ = resp.Body.Close()
	if id := resp.Header.Get("Gatehouse-Decision"); id != "" {
		t.Errorf("a server that keeps no refusals gives one the id %s", id)
	}
	none.wants(t, "GET decisions/"+first, http.StatusNotFound, "this server keeps none, see --decisions")
}

// The busiest names come first, by what is asked for, and hashed on request.
func TestBusiest(t *testing.T) {
	t.Parallel()
	s := start(t)
	hostile := url.PathEscape("a\"<b>\\{}😀")
	for name, n := range map[string]int{"busy": 5, hostile: 3, "rare": 1} {
		for range n {
			asked := "GET gcra/" + name + "/acquire?size=1000&interval=1000&owner=o-" + url.QueryEscape(name)
			s.wants(t, asked, 204, "")
		}
	}
	var top struct {
		Names []struct {
			Kind, Name    string
			Count, Excess int64
		}
		Users []struct{ User string }
	}
	ask := func(query string) string {
		status, body := s.call(t, "GET", "top"+query)
		top.Names, top.Users = nil, nil
		if err := json.Unmarshal([]byte(body), &top); err != nil || status != http.StatusOK {
			t.Fatalf("top%s = %d %s, %v", query, status, body, err)
		}
		text := ""
		for _, n := range top.Names {
			text += fmt.Sprintf("%s/%s %d, ", n.Kind, n.Name, n.Count)
		}
		return text
	}
	if got, want := ask(""), "gcra/busy 5, gcra/a\"<b>\\{}😀 3, gcra/rare 1, "; got != want {
		t.Errorf("the busiest names are %s, want %s", got, want)
	}
	if len(top.Users) != 3 || top.Users[0].User != "o-busy" {
		t.Errorf("the busiest users are %v, want o-busy first", top.Users)
	}
	if got, want := ask("?k=1&kind=gcra&by=granted"), "gcra/busy 5, "; got != want {
		t.Errorf("the busiest name is %s, want %s", got, want)
	}
	if got := ask("?by=refused") + ask("?kind=lock") + ask("?by=waited"); got != "" {
		t.Errorf("names without a refusal, a lock or a wait are %s, want none", got)
	}
	if got := ask("?hash=true"); strings.Contains(got, "busy") || !strings.Contains(got, "gcra/sha256:") {
		t.Errorf("the hashed names are %s", got)
	}
	for query, part := range map[string]string{
		"by=x":       `by is "x", want granted, refused or waited`,
		"k=0":        `k is "0", want a whole number from 1 to 500`,
		"k=501":      `k is "501"`,
		"kind=x":     `kind is "x", want one such as gcra`,
		"kind=grant": `kind is "grant"`,
		"hash=x":     `hash is "x", want true or false`,
		"x=1":        `parameter "x" is unknown, want one of by kind k hash`,
	} {
		s.wants(t, "GET top?"+query, http.StatusBadRequest, part)
	}
}
