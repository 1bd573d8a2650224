//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A config is how a run is made.
type config struct {
	length  time.Duration
	clients int
	pause   time.Duration // of a client between two calls, on average
	slack   time.Duration // for answers, on a machine with fewer processors than processes
	seed    uint64
	binary  string // of gatehouse
	folder  string // for data and logs
}

// A fault is one thing done to a process.
type fault struct {
	victim string
	store  bool // it is no gatehouse
	frozen bool // or killed
	wiped  bool // and what it held is gone

	at, back time.Duration // back is when it served again
}

// A run is one store under load, and what happened.
type run struct {
	variant *variant
	config  config
	stage   *stage
	begin   time.Time

	mu     sync.Mutex
	faults []*fault
	busy   map[string]bool // victims of faults that are not over
	events []string        // sent, by name, for all to look at
	stalls []stall
	broken []error // processes that ended or did not come back

	calls []*call
}

// A stall is a time in which this program itself did not get on.
type stall struct{ from, to time.Duration }

// perform starts a store, puts load on it, does harm, and looks at what is left.
func perform(ctx context.Context, v *variant, c config) (*run, error) {
	r := &run{variant: v, config: c, busy: make(map[string]bool)}
	st, err := v.raise(c.binary, c.folder)
	defer st.end()
	if err != nil {
		return nil, err
	}
	r.stage, r.begin = st, time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pulse sync.WaitGroup
	pulse.Go(func() { r.pulse(ctx) })
	harmful, stop := context.WithTimeout(ctx, c.length)
	defer stop()
	loaded, unload := context.WithCancel(ctx)
	defer unload()
	var harm, load sync.WaitGroup
	harm.Go(func() { r.harm(harmful) })
	clients := make([]*client, c.clients)
	for i := range clients {
		clients[i] = newClient(r, i)
		load.Go(func() { clients[i].work(loaded) })
	}
	harm.Wait()
	sleep(ctx, restTime) // after all is well again they get on
	unload()
	load.Wait()
	r.settle(ctx)
	for _, c := range clients {
		load.Go(func() { c.lookAgain(ctx) })
	}
	load.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cancel()
	pulse.Wait()
	for _, c := range clients {
		c.close()
		r.calls = append(r.calls, c.calls...)
	}
	r.findCrashes()
	return r, nil
}

// settleTime is how long everything is left alone before the last look: what was taken back late is by then.
const settleTime = 3 * time.Second

func (r *run) settle(ctx context.Context) { sleep(ctx, settleTime) }

// sleep waits, and reports whether all of the time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// now is the time since the beginning of the run.
func (r *run) now() time.Duration { return time.Since(r.begin) }

const (
	beat      = 10 * time.Millisecond
	longPause = 100 * time.Millisecond
)

// pulse notes when this program does not get on: then answers that seem late were not.
func (r *run) pulse(ctx context.Context) {
	last := r.now()
	for sleep(ctx, beat) {
		now := r.now()
		if now-last > longPause {
			r.mu.Lock()
			r.stalls = append(r.stalls, stall{last, now})
			r.mu.Unlock()
		}
		last = now
	}
}

// harm does something each second, more or less, until ctx ends, and returns when all is well again.
func (r *run) harm(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.config.seed, 0))
	var under sync.WaitGroup
	defer under.Wait()
	for sleep(ctx, 500*time.Millisecond+time.Duration(random.Int64N(int64(time.Second)))) {
		v, f := r.choose(random)
		if v == nil {
			continue
		}
		down := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		if f.frozen {
			down = time.Second + time.Duration(random.Int64N(int64(time.Second)))
		}
		under.Go(func() { r.strike(v, f, down) })
	}
}

// choose chooses who is next, nobody when all that may be are busy.
func (r *run) choose(random *rand.Rand) (victim, *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fault{store: random.IntN(12) < r.variant.storeShare}
	f.frozen = random.IntN(6) == 0 && !r.variant.forgets // what is frozen forgets nothing
	var able []victim
	if f.store {
		for _, v := range r.stage.stores {
			if r.busy[v.name()] {
				return nil, nil // of three members one may be away
			}
			able = append(able, v)
		}
	} else {
		for _, s := range r.stage.servers {
			if !r.busy[s.name()] {
				able = append(able, s)
			}
		}
	}
	if len(able) == 0 {
		return nil, nil
	}
	v := able[random.IntN(len(able))]
	f.victim = v.name()
	f.wiped = f.store && r.variant.loses && !f.frozen
	r.busy[f.victim] = true
	return v, f
}

// restTime is how long a process that is back is left alone.
const restTime = 300 * time.Millisecond

// strike kills or freezes, and has the victim come back after a while.
func (r *run) strike(v victim, f *fault, down time.Duration) {
	if s, ok := v.(*server); ok && s.crashed() {
		r.note(errors.New(s.label + " had ended by itself; its log is " + s.log))
	}
	f.at = r.now()
	f.back = forever
	r.mu.Lock()
	r.faults = append(r.faults, f)
	r.mu.Unlock()
	var err error
	if f.frozen {
		v.freeze()
		<-time.After(down)
		v.thaw()
	} else {
		v.kill()
		<-time.After(down)
		err = v.begin()
	}
	if err != nil {
		r.note(err)
		return
	}
	r.mu.Lock()
	f.back = r.now()
	r.mu.Unlock()
	<-time.After(restTime)
	r.mu.Lock()
	delete(r.busy, f.victim)
	r.mu.Unlock()
}

func (r *run) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, err)
}

// findCrashes notes the servers that have ended by themselves.
func (r *run) findCrashes() {
	for _, s := range r.stage.servers {
		if s.crashed() {
			r.note(errors.New(s.label + " has ended by itself; its log is " + s.log))
		}
	}
}
