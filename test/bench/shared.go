package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	store "github.com/gatehousehq/gatehouse/store/cas/redis"
	rate "github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const (
	// sharedCallers ask at once, all in one process, spread over the servers of it.
	sharedCallers = 512
	// sharedKeys are the names that have been asked for before: about 100,000, and a prime number. Servers are
	// asked in turns, so each name that comes again comes to the next of them, however many there are.
	sharedKeys = 100_003
	// sharedBurst is so much that all are let through, of one a second.
	sharedBurst = 999_999_999
)

// A limiterOf asks one limiter about a name.
type limiterOf func(ctx context.Context, name string) error

// A shared is Redis, and the limiters that keep their records in it.
type shared struct {
	server *redistest.Server
	plain  limiterOf
	rate   limiterOf
	ours   [3]limiterOf // by as many servers and one
	ends   []func()
	asked  atomic.Int64 // grants so far, which are numbered
}

// onRedis measures limits that are kept in Redis.
func onRedis(ctx context.Context, b *bench) (text string, rows []row, err error) {
	s := new(shared)
	defer s.end()
	if err := s.begin(); err != nil {
		return "", nil, err
	}
	for _, of := range sharedQuestions() {
		some, err := s.compare(ctx, b, of)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, some...)
	}
	text = "The time of a decision, 512 callers at once, in one process beside one Redis. The floor is a\n" +
		"generic cell rate algorithm in Lua, run by EVALSHA with the same client and as many callers.\n" +
		"redis_rate does it with its own client. With several servers the callers are spread over them,\n" +
		"and each name is asked for at all of them, which is the worst case: what one knows of it the\n" +
		"other has changed."
	return text, rows, nil
}

// A sharedQuestion is which names are asked for.
type sharedQuestion struct {
	what   string
	name   func(number int64) string // for the call with this number
	budget [3]float64                // of as many servers and one; 0 is none
}

func sharedQuestions() []sharedQuestion {
	warm := func(number int64) string { return fmt.Sprint("warm ", number%sharedKeys) }
	return []sharedQuestion{
		{"one hot key", func(int64) string { return "hot" }, [3]float64{0.15}},
		{"100,000 warm keys", warm, [3]float64{0.7, 0, 1}},
		{"keys never seen", func(number int64) string { return fmt.Sprint("cold ", number) }, [3]float64{1 / 0.6}},
	}
}

// compare puts one question to all.
func (s *shared) compare(ctx context.Context, b *bench, of sharedQuestion) (rows []row, err error) {
	// The script is the floor, so it comes first; redis_rate is only mentioned beside.
	asks := append([]limiterOf{s.plain, s.rate}, s.ours[:]...)
	measures := make([]func() (float64, error), len(asks))
	for i, ask := range asks {
		// Each counts its own calls: with one count for all, a name would come back after any number of them. The
		// name is made within the call for all of them, so that its cost is in the floor as well.
		var asked atomic.Int64
		call := func(ctx context.Context) error { return ask(ctx, of.name(asked.Add(1))) }
		if err := spreadOver(ctx, sharedKeys, call); err != nil { // to warm up
			return nil, err
		}
		measures[i] = b.perCall(ctx, call)
	}
	all, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	beside := "redis_rate: " + nanoseconds(all[1].median())
	for i, many := range all[2:] {
		what := fmt.Sprintf("%s, servers: %d", of.what, i+1)
		r := row{what: what, floor: all[0], ours: many, unit: nanoseconds, budget: budget{most: of.budget[i]}}
		if i == 0 {
			r.note = beside
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// perCall is a measure of the nanoseconds of a call, all callers together.
func (b *bench) perCall(ctx context.Context, call func(context.Context) error) func() (float64, error) {
	const chunk = 100_000 // callers that have only begun, and the last of them, are few among so many
	least := time.Duration(b.scale(500, 100)) * time.Millisecond
	return func() (float64, error) {
		// A chunk is never cut short, so the time runs on a little beyond least and n is exact.
		n, start := 0, time.Now()
		for time.Since(start) < least {
			if err := spreadOver(ctx, chunk, call); err != nil {
				return 0, err
			}
			n += chunk
		}
		return float64(time.Since(start)) / float64(n), nil
	}
}

// spreadOver has all callers make n calls together.
func spreadOver(ctx context.Context, n int, call func(context.Context) error) error {
	return spreadOverCallers(ctx, sharedCallers, n, call)
}

// spreadOverCallers has so many callers make n calls together.
func spreadOverCallers(ctx context.Context, callers, n int, call func(context.Context) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			// Each caller has a context of its own, as requests to a server have. With one context for all,
			// its lock was the bottleneck.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for next.Add(1) <= int64(n) {
				if err := call(ctx); err != nil {
					// Only this caller stops. The others go on to the end of the chunk, and any one error
					// spoils the measurement.
					failed.Store(&err)
					return
				}
			}
		})
	}
	work.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *shared) end() {
	// Backwards, because what was opened later uses what was opened before; Redis goes last.
	for _, end := range slices.Backward(s.ends) {
		end()
	}
}

// begin starts Redis and connects the limiters to it.
func (s *shared) begin() (err error) {
	s.server, err = redistest.Open()
	if err != nil {
		return err
	}
	s.ends = append(s.ends, s.server.Kill)
	// No cache in the client: the floor is to ask Redis for every decision.
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.server.Address}, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		return err
	}
	s.ends = append(s.ends, client.Close)
	script, arguments := rueidis.NewLuaScript(throttleScript), []string{strconv.Itoa(sharedBurst), "1", "1"}
	s.plain = func(ctx context.Context, name string) error {
		_, err := script.Exec(ctx, client, []string{"plain/" + name}, arguments).ToArray()
		return err
	}
	// redis_rate brings its own client. A common one would measure what its users do not have.
	other := goredis.NewClient(&goredis.Options{Addr: s.server.Address})
	s.ends = append(s.ends, func() { _ = other.Close() })
	limiter := rate.NewLimiter(other)
	s.rate = func(ctx context.Context, name string) error {
		_, err := limiter.Allow(ctx, name, rate.Limit{Rate: 1, Burst: sharedBurst, Period: time.Second})
		return err
	}
	for i := range s.ours {
		s.ours[i], err = s.servers(i + 1)
		if err != nil {
			return err
		}
	}
	return nil
}

// openGate starts Redis, and returns a gate over it.
func (s *shared) openGate() (*gate.Gate, error) {
	var err error
	s.server, err = redistest.Open()
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, s.server.Kill)
	return s.gateOf(1, "bench:")
}

// gateOf returns the gate of one server. Its records begin with a prefix.
func (s *shared) gateOf(number int, prefix string) (*gate.Gate, error) {
	backend, err := store.Open("redis://" + s.server.Address + "?prefix=" + prefix)
	if err != nil {
		return nil, err
	}
	kept := cas.New(backend, cas.Config{
		Server: uint32(number), Names: 4 * sharedKeys, Timeout: 10 * time.Second, // few
	})
	first := cas.FirstTicket(uint32(number)) + 1 // few
	g := gate.New(kept, gate.Config{FirstTicket: first})
	s.ends = append(s.ends, backend.Close, kept.Close, g.Close)
	return g, nil
}

// servers returns a limiter that asks many servers of ours in turns.
func (s *shared) servers(many int) (limiterOf, error) {
	gates := make([]*gate.Gate, many)
	for i := range gates {
		// Each number of servers has a prefix of its own: the servers of one row must not find records of
		// another.
		var err error
		gates[i], err = s.gateOf(i+1, strconv.Itoa(many)+":")
		if err != nil {
			return nil, err
		}
	}
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 1, Interval: time.Second, Burst: sharedBurst}, Cost: 1,
	}
	var turn atomic.Uint64
	return func(ctx context.Context, name string) error {
		// In turns: with a server for each name none would find a record changed.
		g := gates[turn.Add(1)%uint64(many)] // few
		_, err := g.Do(ctx, gatehouse.Key{Kind: gatehouse.GCRA, Name: name}, cmd)
		return err
	}, nil
}
