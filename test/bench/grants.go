package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
)

// grantNames is how many names a grant has here.
const grantNames = 4

// grants measures one decision over several names.
func grants(ctx context.Context, b *bench) (text string, rows []row, err error) {
	rows, err = grantsInProcess(b)
	if err != nil {
		return "", nil, err
	}
	for _, measure := range []func(context.Context, *bench) ([]row, error){grantsOverHTTP, grantsOnRedis} {
		some, err := measure(ctx, b)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, some...)
	}
	text = "A grant over four limiters without a record, which is always granted. In process the floor is\n" +
		"four single acquires of the same limiters. Over HTTP it is the server's CPU for one request: the\n" +
		"floor is the fasthttp handler, which gets the same POST over as many connections and answers 200\n" +
		"with nothing. On Redis it is the time of a decision about names that were asked for before, and\n" +
		"the floor is one acquire of one name, of the same server and as many callers."
	return text, rows, nil
}

// grantWants is a grant over four names of their own for each number.
func grantWants(number int64) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, Want: make([]gatehouse.Member, grantNames)}
	for i := range cmd.Want {
		cmd.Want[i] = gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.TokenBucket, Name: fmt.Sprint("bench ", number, " ", i)},
			Rule: bucket().Rule, Cost: 1,
		}
	}
	return cmd
}

// grantsInProcess measures the gate over the memory store.
func grantsInProcess(b *bench) (rows []row, err error) {
	g := gate.New(memory.New(memory.Config{}), gate.Config{})
	cmd, acquire := grantWants(0), bucket()
	one := func() {
		for i := range cmd.Want {
			grant(g, cmd.Want[i].Key, acquire)
		}
	}
	decided := make(chan struct{}, 1) // has room for the answer
	pooled := &gate.GrantRequest{Command: cmd, Checked: true, Decided: func(*gate.GrantRequest) {
		decided <- struct{}{}
	}}
	var room [grantNames]gatehouse.MemberDecision
	within := budget{most: 1.3}
	contestants := []struct {
		what   string
		budget budget
		once   func()
	}{
		{"in process: DoGrantInto room that the caller brings", within, func() {
			d, err := g.DoGrantInto(context.Background(), &cmd, room[:])
			mustGrant(&d, err)
		}},
		{"in process: SubmitGrant of a request that is used again", within, func() {
			g.SubmitGrant(pooled)
			<-decided
			mustGrant(&pooled.Decision, pooled.Err)
		}},
		{"in process: DoGrant, which makes a list for its answer", budget{}, func() {
			d, err := g.DoGrant(context.Background(), cmd)
			mustGrant(&d, err)
		}},
	}
	measures := []func() (float64, error){b.perOp(repeat(one))}
	for _, c := range contestants {
		measures = append(measures, b.perOp(repeat(c.once)))
	}
	all, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	for i, c := range contestants {
		note := fmt.Sprintf("allocations: %.0f", testing.AllocsPerRun(10_000, c.once))
		rows = append(rows, row{c.what, all[0], all[i+1], nanoseconds, c.budget, note})
	}
	return rows, nil
}

func repeat(once func()) func(n int) {
	return func(n int) {
		for range n {
			once()
		}
	}
}

func mustGrant(d *gatehouse.GrantDecision, err error) {
	if err != nil || d.Outcome != gatehouse.Granted {
		panic(fmt.Sprintf("grant: %s, %v, want granted", d.Outcome, err))
	}
}

// grantsOverHTTP measures the server's CPU for a POST.
func grantsOverHTTP(ctx context.Context, b *bench) (rows []row, err error) {
	script := filepath.Join(b.dir, "grants.lua")
	lua := "wrk.method = 'POST'\nwrk.body = '" + grantsBody() + "'\n"
	if err := os.WriteFile(script, []byte(lua), 0o600); err != nil {
		return nil, err
	}
	measures := make([]func() (float64, error), 2)
	for i, command := range []func(address string) []string{b.role("posts"), b.gatehouse} {
		s, err := b.start(ctx, command)
		if err != nil {
			return nil, err
		}
		load := func(seconds int) (float64, error) { return s.loadBy(ctx, seconds, "/v1/grants", "-s", script) }
		if _, err := load(1); err != nil { // to warm up
			return nil, err
		}
		measures[i] = func() (float64, error) { return load(b.scale(3, 1)) }
	}
	all, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	return []row{{
		"POST /v1/grants, CPU", all[0], all[1], nanoseconds, budget{most: 1.6}, "",
	}}, nil
}

// grantsBody is the body of the POST.
func grantsBody() string {
	var members []string
	for i := range grantNames {
		members = append(members, fmt.Sprintf(`{"tokenbucket":"bench-%d","size":999999999}`, i))
	}
	return `{"want":[` + strings.Join(members, ",") + `]}`
}

// servePosts is a floor.
func servePosts(address string) error {
	return fasthttp.ListenAndServe(address, func(ctx *fasthttp.RequestCtx) {
		// The body is there, as it is for whoever reads it.
		if len(ctx.PostBody()) == 0 {
			ctx.SetStatusCode(fasthttp.StatusBadRequest)
		}
	})
}

// grantsOnRedis measures the time of a decision.
func grantsOnRedis(ctx context.Context, b *bench) (rows []row, err error) {
	s := new(shared)
	defer s.end()
	g, err := s.openGate()
	if err != nil {
		return nil, err
	}
	// Names are asked for again and again, few enough that all are warm after a moment.
	const warm = 10_000
	acquire := bucket()
	var commands [warm]gatehouse.GrantCommand
	for i := range commands {
		commands[i] = grantWants(int64(i))
	}
	next := func() *gatehouse.GrantCommand { return &commands[s.asked.Add(1)%warm] }
	four := func(ctx context.Context) error {
		d, err := g.DoGrant(ctx, *next())
		if err == nil && d.Outcome != gatehouse.Granted {
			err = fmt.Errorf("grant: %s, want granted", d.Outcome)
		}
		return err
	}
	one := func(ctx context.Context) error {
		_, err := g.Do(ctx, next().Want[0].Key, acquire)
		return err
	}
	if err := spreadOver(ctx, warm, four); err != nil { // to warm up
		return nil, err
	}
	for _, callers := range []int{1, sharedCallers} {
		all, err := b.race(perCallOf(ctx, b, callers, one), perCallOf(ctx, b, callers, four))
		if err != nil {
			return nil, err
		}
		what := "Redis, 4 warm names, callers: " + strconv.Itoa(callers)
		rows = append(rows, row{what, all[0], all[1], nanoseconds, budget{most: 2}, ""})
	}
	return rows, nil
}

// perCallOf is a measure of the nanoseconds of a call, so many callers together.
func perCallOf(
	ctx context.Context, b *bench, callers int, call func(context.Context) error,
) func() (float64, error) {
	chunk := 40 * callers
	least := time.Duration(b.scale(1000, 100)) * time.Millisecond
	return func() (float64, error) {
		n, start := 0, time.Now()
		for time.Since(start) < least {
			if err := spreadOverCallers(ctx, callers, chunk, call); err != nil {
				return 0, err
			}
			n += chunk
		}
		return float64(time.Since(start)) / float64(n), nil
	}
}
