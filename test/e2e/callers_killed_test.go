package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// The limits of calls whose clients are killed. All tokens that they take count until the end of the test.
const (
	killedTokens = 16_000
	killedSlots  = 1000
	killedMean   = 10
	// killedLength is how long their grants last: longer than any call, and what the test waits for.
	killedLength = 4 * time.Second
)

// killedPart is calls whose grants end in some way when their client is gone.
func killedPart(account, onExpiry string) *callerPart {
	return &callerPart{
		Account: account, Tokens: "slidinglog", Mean: killedMean,
		Options: fmt.Sprintf(`"expires":%d,"on-expiry":%q`, killedLength.Milliseconds(), onExpiry),
		Want: fmt.Sprintf(`{"pace":%q,"size":40,"interval":400},`+
			`{"semaphore":"%[1]s-slots","size":%[2]d},`+
			`{"slidinglog":"%[1]s-tokens","size":%[3]d,"interval":%[4]d,"cost":%%d}`,
			account, killedSlots, killedTokens, (24 * time.Hour).Milliseconds()),
	}
}

// Of a client that is killed, wherever it is between its grant and the release of it, counts what its
// on-expiry says, and all else is usable.
func TestKilledCallers(t *testing.T) {
	t.Parallel()
	playKilled(t, start(t, "--max-connections-per-address", "4000"))
}

// The same with three servers, any of which settles and releases what another has granted.
func TestCallersKilledOnRedis(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skip("make callers does it: it takes long")
	}
	playKilled(t, startShared(t, redistest.Start(t), 3, patient...)...)
}

// playKilled kills most of the clients of three accounts, whose grants end in different ways.
func playKilled(t *testing.T, servers ...*server) {
	t.Helper()
	c := startCallers(t, true, servers...)
	name := fresh(t)
	ways := []string{"estimate", "zero", "last"}
	var accounts []string
	for _, way := range ways {
		accounts = append(accounts, name+"-"+way)
	}
	var doomed []*callersAt
	for i, p := range c.procs {
		c.tell(p, killedPart(accounts[i%len(ways)], ways[i%len(ways)]))
		// Of each account one process goes on.
		if i >= len(ways) {
			doomed = append(doomed, p)
		}
	}
	for _, account := range accounts {
		c.party.serves(t, account, 50)
	}
	// Most of those who are killed stand before a settle or behind one, in a call, as clients do.
	c.party.hold(t, 2*callerGoroutines, accounts...)
	c.kill(doomed)
	c.party.release()
	for _, account := range accounts {
		c.party.serves(t, account, 50)
	}
	c.end()
	for i, way := range ways {
		j := &killedJudge{t: t, server: servers[0], account: accounts[i], way: way}
		j.judge(c.grantsOf(j.account))
	}
}

// A killedGrant is how far a grant has come.
type killedGrant struct {
	id             string
	estimate, cost int64
	last           stepRecord
}

// grantsOf are all grants of an account that were asked for.
func (c *callers) grantsOf(account string) []*killedGrant {
	found := make(map[string]*killedGrant)
	var all []*killedGrant
	for _, s := range c.steps {
		g := found[s.ID]
		switch {
		case len(s.ID) < len(account) || s.ID[:len(account)] != account:
			continue
		case g == nil:
			g = &killedGrant{id: s.ID, estimate: s.Figure}
			found[s.ID] = g
			all = append(all, g)
		case s.Step != "grant":
			g.cost = s.Figure
		}
		g.last = s
	}
	return all
}

// notGranted is what counts of a grant that is not there.
const notGranted = -1

// mayCount is what may count of the grant when it has ended. Of what was asked for last nobody knows whether
// it took effect, if it was not answered.
func (g *killedGrant) mayCount(way string) []int64 {
	expired := map[string]int64{"estimate": g.estimate, "last": g.estimate}[way]
	// What was settled beyond the estimate was spent for certain.
	settled := map[string]int64{"estimate": max(g.estimate, g.cost), "last": g.cost}[way]
	switch at := g.last; {
	case at.Step == "grant" && !at.Done:
		return []int64{notGranted, expired}
	case at.Step == "grant":
		return []int64{expired}
	case at.Step == "settle" && !at.Done:
		return []int64{expired, settled}
	case at.Step == "settle":
		return []int64{settled}
	case !at.Done:
		return []int64{settled, g.cost}
	}
	return []int64{g.cost}
}

// A killedJudge judges what counts of the grants of an account.
type killedJudge struct {
	t            *testing.T
	server       *server
	account, way string
}

// judge judges all grants of an account, and that the limiter counts exactly what they say.
func (j *killedJudge) judge(all []*killedGrant) {
	j.t.Helper()
	// All have ended when all slots are free.
	j.server.want(j.t, fmt.Sprintf("/v1/semaphore/%s-slots/acquire?cost=%d&maxwait=%d&key=all", j.account,
		killedSlots, patience.Milliseconds()), "200 all")
	sum, at := int64(0), make(map[string]int)
	for _, g := range all {
		counts := j.counted(g.id)
		if may := g.mayCount(j.way); !slices.Contains(may, counts) {
			j.t.Errorf("of %s, %+v, %d counts, want one of %v", g.id, g, counts, may)
		}
		sum += max(0, counts)
		at[fmt.Sprint(g.last.Step, " ", g.last.Done)]++
	}
	j.t.Logf("%s: %d grants, how far they came: %v; %d count", j.way, len(all), at, sum)
	tokens := "/v1/slidinglog/" + j.account + "-tokens/acquire?maxwait=0&cost="
	j.server.want(j.t, fmt.Sprint(tokens, killedTokens-sum), "204")
	j.server.want(j.t, tokens+"1", "408")
}

// counted is what counts of a grant, which must have ended.
func (j *killedJudge) counted(id string) int64 {
	j.t.Helper()
	request, err := http.NewRequestWithContext(j.t.Context(), http.MethodGet,
		"http://"+j.server.address+"/v1/grants/"+id, http.NoBody)
	if err != nil {
		j.t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(request)
	if err != nil {
		j.t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode == http.StatusNotFound {
		return notGranted
	}
	var got struct {
		Ended bool
		Want  []struct{ Cost int64 }
	}
	err = json.NewDecoder(a.Body).Decode(&got)
	if err != nil || !got.Ended || len(got.Want) != 3 {
		j.t.Fatalf("grant %s = %s, %+v, %v, want it ended, with three members", id, a.Status, got, err)
	}
	return got.Want[2].Cost
}
