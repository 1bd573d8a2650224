//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A chaosConfig is how a run is made.
type chaosConfig struct {
	length  time.Duration
	clients int
	pause   time.Duration // of a client between two calls, on average
	slack   time.Duration // for answers, on a machine with fewer processors than processes
	seed    uint64
	binary  string // of gatehouse
	folder  string // for data and logs
}

// An injectedFault is a kill or a freeze of one process.
type injectedFault struct {
	victim string
	store  bool // it is no gatehouse
	frozen bool // or killed
	wiped  bool // and what it held is gone

	at, back time.Duration // back is when it served again
}

// A chaosRun is one store under load, and what happened.
type chaosRun struct {
	variant *variant
	config  chaosConfig
	cluster *processCluster
	begin   time.Time

	mu       sync.Mutex
	faults   []*injectedFault
	busy     map[string]bool // victims of faults that are not over
	events   []string        // sent, by name, for all to look at
	stalls   []stall
	failures []error // processes that ended or did not come back

	calls []*recordedCall
}

// A stall is a time in which this program itself stood still.
type stall struct{ from, to time.Duration }

// runChaos starts a store, puts load on it, does harm, and looks at what is left.
func runChaos(ctx context.Context, v *variant, c chaosConfig) (*chaosRun, error) {
	r := &chaosRun{variant: v, config: c, busy: make(map[string]bool)}
	st, err := v.startCluster(c.binary, c.folder)
	// Before the error is looked at: some processes may have started.
	defer st.killAll()
	if err != nil {
		return nil, err
	}
	r.cluster, r.begin = st, time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pulse sync.WaitGroup
	pulse.Go(func() { r.recordStalls(ctx) })
	// Only the faults have a time limit. The load must outlast them.
	harmful, stop := context.WithTimeout(ctx, c.length)
	defer stop()
	loaded, unload := context.WithCancel(ctx)
	defer unload()
	var harm, load sync.WaitGroup
	harm.Go(func() { r.injectFaults(harmful) })
	clients := make([]*loadClient, c.clients)
	for i := range clients {
		clients[i] = newClient(r, i)
		load.Go(func() { clients[i].callUntil(loaded) })
	}
	// The load goes on until all faults are over, and a while after. Then every client looks at what was
	// promised to it, when nothing disturbs.
	harm.Wait()
	sleepFor(ctx, recoveryTime) // after all is well again they get on
	unload()
	load.Wait()
	r.awaitUndos(ctx)
	for _, c := range clients {
		load.Go(func() { c.verifyKept(ctx) })
	}
	load.Wait()
	// A run that was interrupted proves nothing.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// This ends recordStalls, so that the judge reads its list alone.
	cancel()
	pulse.Wait()
	for _, c := range clients {
		c.closeConns()
		r.calls = append(r.calls, c.calls...)
	}
	// Before killAll, after which no end looks like a crash.
	r.findCrashes()
	return r, nil
}

// undoTime is how long everything is left alone before the last look: what was taken back late is by then.
const undoTime = 3 * time.Second

func (r *chaosRun) awaitUndos(ctx context.Context) { sleepFor(ctx, undoTime) }

// sleepFor waits, and reports whether all of the time has passed.
func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// sinceBegin is the time since the beginning of the run.
func (r *chaosRun) sinceBegin() time.Duration { return time.Since(r.begin) }

const (
	stallCheckInterval = 10 * time.Millisecond
	minStall           = 100 * time.Millisecond
)

// recordStalls notes when this program stands still: then answers that seem late were not.
func (r *chaosRun) recordStalls(ctx context.Context) {
	last := r.sinceBegin()
	for sleepFor(ctx, stallCheckInterval) {
		now := r.sinceBegin()
		// No answer could be read in that time either.
		if now-last > minStall {
			r.mu.Lock()
			r.stalls = append(r.stalls, stall{last, now})
			r.mu.Unlock()
		}
		last = now
	}
}

// injectFaults does something each second, more or less, until ctx ends, and returns when all is well again.
func (r *chaosRun) injectFaults(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.config.seed, 0))
	var under sync.WaitGroup
	defer under.Wait()
	for sleepFor(ctx, 500*time.Millisecond+time.Duration(random.Int64N(int64(time.Second)))) {
		// All is drawn in this goroutine: the source is not safe for several.
		v, f := r.chooseVictim(random)
		if v == nil {
			continue
		}
		down := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		// Longer than a server waits for its store, so that calls fail and do not just take longer.
		if f.frozen {
			down = time.Second + time.Duration(random.Int64N(int64(time.Second)))
		}
		under.Go(func() { r.injectFault(v, f, down) })
	}
}

// chooseVictim returns the next process and what is done to it, or nil when a fault of it is not over yet.
func (r *chaosRun) chooseVictim(random *rand.Rand) (victim, *injectedFault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &injectedFault{store: random.IntN(12) < r.variant.storeShare}
	f.frozen = random.IntN(6) == 0 && !r.variant.forgets // what is frozen forgets nothing
	var able []victim
	if f.store {
		for _, v := range r.cluster.stores {
			if r.busy[v.victimName()] {
				return nil, nil // of three members one may be away
			}
			able = append(able, v)
		}
	} else {
		for _, s := range r.cluster.servers {
			if !r.busy[s.victimName()] {
				able = append(able, s)
			}
		}
	}
	if len(able) == 0 {
		return nil, nil
	}
	// It is busy until injectFault has brought it back, so that no process has two faults at once.
	v := able[random.IntN(len(able))]
	f.victim = v.victimName()
	f.wiped = f.store && r.variant.loses && !f.frozen
	r.busy[f.victim] = true
	return v, f
}

// recoveryTime is how long a process that is back is left alone.
const recoveryTime = 300 * time.Millisecond

// injectFault kills or freezes, and has the victim come back after a while.
func (r *chaosRun) injectFault(v victim, f *injectedFault, down time.Duration) {
	// Before the kill, which would hide a crash.
	if s, ok := v.(*serverVictim); ok && s.hasCrashed() {
		r.recordFailure(errors.New(s.label + " had ended by itself; its log is " + s.log))
	}
	f.at = r.sinceBegin()
	f.back = forever // until it is back, so that calls meanwhile are excused
	r.mu.Lock()
	r.faults = append(r.faults, f)
	r.mu.Unlock()
	var err error
	// A frozen process keeps its connections and its state. A killed one starts again with what it had
	// stored.
	if f.frozen {
		v.freezeVictim()
		<-time.After(down)
		v.thawVictim()
	} else {
		v.killVictim()
		<-time.After(down)
		err = v.startVictim()
	}
	if err != nil {
		r.recordFailure(err)
		return
	}
	r.mu.Lock()
	f.back = r.sinceBegin()
	r.mu.Unlock()
	<-time.After(recoveryTime)
	r.mu.Lock()
	delete(r.busy, f.victim)
	r.mu.Unlock()
}

func (r *chaosRun) recordFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, err)
}

// findCrashes notes the servers that have ended by themselves.
func (r *chaosRun) findCrashes() {
	for _, s := range r.cluster.servers {
		if s.hasCrashed() {
			r.recordFailure(errors.New(s.label + " has ended by itself; its log is " + s.log))
		}
	}
}
