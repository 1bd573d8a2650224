package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A step is one call of clients/conformance.json, which says what the members mean.
type step struct {
	Kind, Name, Op string
	Grant          string
	With           map[string]any
	Costs          map[string]int64
	Want           map[string]any
	Save           map[string]string
	Begin, Finish  string
	UntilWaiting   int `json:"until_waiting"`
}

// An answer is what a step is answered: its outcome, and the members of the decision.
type answer map[string]any

// The Go client answers the table as the others do.
func TestGo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../clients/conformance.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Cases []struct {
			Name  string
			Steps []step
		}
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.Cases) == 0 {
		t.Fatalf("the table of cases: %v, %d cases, want some", err, len(table.Cases))
	}
	gate, err := client.New(client.Config{Addresses: []string{addressIn(startServer(t))}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	for i, c := range table.Cases {
		t.Run(c.Name, func(t *testing.T) {
			p := player{t: t, gate: gate, prefix: fmt.Sprintf("case-%d", i), saved: map[string]any{}}
			p.play(c.Steps)
		})
	}
}

// addressIn is where the server of an environment listens.
func addressIn(environment []string) string {
	const name = "GATEHOUSE_ADDRESS="
	address := ""
	for _, variable := range environment { // the last one counts, as for a process
		if found, ok := strings.CutPrefix(variable, name); ok {
			address = found
		}
	}
	return address
}

// A player plays one case.
type player struct {
	t      *testing.T
	gate   *client.Client
	prefix string
	saved  map[string]any
}

func (p *player) play(steps []step) {
	type begun struct {
		step   step
		answer chan answer
	}
	beside := map[string]begun{}
	for _, s := range steps {
		switch {
		case s.Finish != "":
			p.judge(beside[s.Finish].step, <-beside[s.Finish].answer)
		case s.Begin != "":
			b := begun{s, make(chan answer, 1)}
			beside[s.Begin] = b
			go func() { b.answer <- p.call(s) }()
			p.awaitWaiters(p.key(s), s.UntilWaiting)
		default:
			p.judge(s, p.call(s))
		}
	}
}

func (p *player) name(text string) string { return p.prefix + "/" + text }

func (p *player) key(s step) gatehouse.Key {
	kind, ok := gatehouse.ParseKind(s.Kind)
	if !ok {
		p.t.Fatalf("%q is no kind", s.Kind)
	}
	return gatehouse.Key{Kind: kind, Name: p.name(s.Name)}
}

// awaitWaiters looks until so many wait. Each look is a request, so nothing spins.
func (p *player) awaitWaiters(key gatehouse.Key, want int) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		d, err := p.gate.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpWaiters})
		if err == nil && d.Report != nil && len(d.Report.Waiters) >= want {
			return
		}
	}
	p.t.Fatalf("%v has no %d that wait", key, want)
}

// call makes the call of a step.
func (p *player) call(s step) answer {
	var decision answer
	var err error
	if s.Grant != "" {
		decision, err = p.callGrant(s)
	} else {
		decision, err = p.callName(s)
	}
	if err != nil {
		return answer{"outcome": gatehouse.CodeOf(err).String(), "detail": err.Error()}
	}
	return decision
}

func (p *player) callName(s step) (answer, error) {
	op, ok := gatehouse.ParseOp(s.Op)
	if !ok {
		p.t.Fatalf("%q is no operation", s.Op)
	}
	cmd := gatehouse.Command{Op: op}
	var values params.Values
	for name, value := range s.With {
		text := fmt.Sprint(p.resolve(value))
		if name == "key" {
			text = p.name(text)
		}
		if err := values.Set([]byte(name), []byte(text)); err != nil {
			return nil, err
		}
	}
	key := p.key(s)
	if err := values.Read(key.Kind, &cmd); err != nil {
		return nil, err
	}
	d, err := p.gate.Do(p.t.Context(), key, cmd)
	if err != nil {
		return nil, err
	}
	return answer{
		"outcome": d.Outcome.String(), "limit": d.Limit, "remaining": d.Remaining, "fence": d.Fence,
		"retry_after": d.RetryAfter, "delay": d.Delay, "expires_after": d.ExpiresAfter,
		"value": fmt.Sprint(d.Value), "message": d.Message, "detail": d.Message,
	}, nil
}

func (p *player) callGrant(s step) (answer, error) {
	op, _ := gatehouse.ParseOp(s.Op)
	cmd := gatehouse.GrantCommand{Op: op, ID: p.prefix + "-" + s.Grant}
	if op == gatehouse.OpAcquire {
		cmd.Expires = time.Minute
	}
	if op == gatehouse.OpRenew {
		cmd.Expires = gatehouse.AsAcquired
	}
	if members, ok := s.With["want"].([]any); ok {
		for _, member := range members {
			cmd.Want = append(cmd.Want, p.member(member.(map[string]any)))
		}
	}
	for place, cost := range s.Costs {
		kind, name, _ := strings.Cut(place, "/")
		c, err := params.ReadCost(op, []byte(kind+"/"+p.name(name)), fmt.Append(nil, cost))
		if err != nil {
			return nil, err
		}
		cmd.Costs = append(cmd.Costs, c)
	}
	d, err := p.gate.DoGrant(p.t.Context(), cmd)
	if err != nil {
		return nil, err
	}
	return answer{"outcome": d.Outcome.String(), "fence": d.Fence, "detail": d.Message}, nil
}

// member is one name that a grant wants.
func (p *player) member(given map[string]any) gatehouse.Member {
	var m gatehouse.Member
	var values params.MemberValues
	for name, value := range given {
		if kind, ok := gatehouse.ParseKind(name); ok {
			m.Key = gatehouse.Key{Kind: kind, Name: p.name(value.(string))}
			continue
		}
		if err := values.Set([]byte(name), fmt.Append(nil, p.resolve(value))); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := values.Read(&m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

// resolve is a value, or what was saved under its name. Numbers of JSON are whole here.
func (p *player) resolve(value any) any {
	switch v := value.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "$"); ok {
			return p.saved[name]
		}
	case float64:
		return int64(v)
	}
	return value
}

// judge compares an answer with what is wanted, and keeps what is to be saved.
func (p *player) judge(s step, got answer) {
	p.t.Helper()
	for member, want := range s.Want {
		if !p.fits(got[member], want) {
			p.t.Errorf("%s %s %s%s with %v: %s = %v in %v, want %v", s.Kind, s.Name, s.Grant, s.Op, s.With,
				member, got[member], got, want)
		}
	}
	for name, member := range s.Save {
		p.saved[name] = got[member]
	}
}

func (p *player) fits(got, want any) bool {
	bounds, ok := want.(map[string]any)
	if !ok {
		return fmt.Sprint(numberOf(got)) == fmt.Sprint(numberOf(p.resolve(want)))
	}
	number, ok := numberOf(got).(int64)
	if !ok {
		return false
	}
	if above, ok := bounds["above"]; ok {
		least, ok := numberOf(p.resolve(above)).(int64)
		return ok && number > least
	}
	from, to := p.resolve(bounds["from"]).(int64), p.resolve(bounds["to"]).(int64)
	return from <= number && number <= to
}

// numberOf turns what is a number into an int64, and times into milliseconds.
func numberOf(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return params.CeilMillis(v)
	case uint64:
		return int64(v) //nolint:gosec // a fencing token has 53 bits
	}
	return value
}
