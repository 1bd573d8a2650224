//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// A report is what a run has shown.
type report struct {
	memory            int64 // what the server may have
	calmest, most     int64 // resident bytes before the attack, and at most
	last              int64 // after it
	calm, hot         []time.Duration
	unserved          map[string]int
	lost              []string
	inWindow          int // grants in one window of the limiter
	grants            int
	counted           int64
	attackers         *attackers // nil before the attack
	attacks           []progress
	status            int     // of the process at its end
	gone              bool    // it ended by itself
	taken             float64 // of the machine's time, by its host and by other programs
	judged            bool
	slowdown, allowed float64
}

// The latency that honest clients may have is a multiple of their calm one.
const (
	allowedSlowdown = 3
	mostTaken       = 0.10
)

// run starts a server, lets honest clients work with it, and attacks it.
func run(ctx context.Context, c config) (*report, error) {
	s, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	h := newCrowd(s)
	defer h.client.CloseIdleConnections()
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	r := &report{memory: c.memory, allowed: allowedSlowdown}
	working, rest := context.WithCancel(ctx)
	defer rest()
	var honest sync.WaitGroup
	honest.Go(func() { h.work(working) })
	r.watch(ctx, s, c, max(c.length/4, time.Second))
	r.calmest, r.most = r.most, 0
	h.mu.Lock()
	h.attacked = true
	h.mu.Unlock()
	err = r.attack(ctx, s, c)
	rest()
	honest.Wait()
	if r.gone = s.gone(); !r.gone {
		err = errors.Join(err, h.check(ctx))
	}
	r.calm, r.hot, r.unserved, r.lost = h.calm, h.hot, h.unserved, h.lost
	r.grants, r.inWindow, r.counted = len(h.grants), mostInWindow(h.grants), h.counted
	r.status = s.stop()
	r.slowdown = float64(percentile(r.hot, 99)) / float64(max(percentile(r.calm, 99), 1))
	r.judged = c.judge && r.taken < mostTaken
	return r, errors.Join(err, ctx.Err())
}

// attack has all attacks made at once for the length of the run.
func (r *report) attack(ctx context.Context, s *server, c config) error {
	a, err := attackWith(ctx, s, c)
	if err != nil {
		return fmt.Errorf("starting attackers: %w", err)
	}
	ours := []int{os.Getpid(), s.process.Process.Pid, a.process.Process.Pid}
	before := readUsage(ours)
	r.attackers = a
	r.watch(ctx, s, c, c.length)
	// A busy machine may not have let every attack begin yet.
	for late := time.Now().Add(patience); !a.begun() && time.Now().Before(late) && ctx.Err() == nil; {
		r.watch(ctx, s, c, time.Second)
	}
	r.taken = before.taken(readUsage(ours))
	err = a.cease()
	r.attacks, r.last = a.progress(), s.resident()
	r.most = max(r.most, r.last)
	return err
}

// watch looks at the server's memory until so much time has passed or the server has ended.
func (r *report) watch(ctx context.Context, s *server, c config, length time.Duration) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	end := time.NewTimer(length)
	defer end.Stop()
	begin, shown := time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-s.ended:
			return
		case <-look.C:
		}
		r.most = max(r.most, s.resident())
		if since := time.Since(begin); since-shown >= 5*time.Second {
			shown = since
			steps := int64(0)
			for _, p := range r.attackers.progress() {
				steps += p.Steps
			}
			_, _ = fmt.Fprintf(c.out, "%4.0f s  memory %d MiB, at most %d MiB; attackers made %d steps\n",
				since.Seconds(), s.resident()>>20, r.most>>20, steps)
		}
	}
}

// percentile is the latency that so many percent do not exceed.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*percent/100]
}

// faults are what was not as promised.
func (r *report) faults() (all []string) {
	if r.gone {
		all = append(all, "the server ended")
	}
	if r.most > r.memory {
		all = append(all, fmt.Sprintf("the server had %d MiB, want at most %d", r.most>>20, r.memory>>20))
	}
	for i, lost := range r.lost {
		if i == 5 {
			all = append(all, fmt.Sprintf("and %d more are lost", len(r.lost)-i))
			break
		}
		all = append(all, "lost: "+lost)
	}
	if r.inWindow > limitSize {
		all = append(all, fmt.Sprintf("the limiter let %d through in %v, want at most %d",
			r.inWindow, limitWindow, limitSize))
	}
	if r.status != 0 && !r.gone {
		all = append(all, fmt.Sprintf("the server ended with status %d after SIGTERM", r.status))
	}
	if len(r.hot) == 0 {
		all = append(all, "no honest client was served during the attack")
	}
	if r.judged && r.slowdown > r.allowed {
		all = append(all, fmt.Sprintf("p99 was %.1f times its calm value, want %.0f", r.slowdown, r.allowed))
	}
	return all
}

func (r *report) good() bool { return len(r.faults()) == 0 }

// print shows the report.
func (r *report) print(to io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(to, format+"\n", args...) }
	say("\n%-22s %9s %9s  last that went wrong", "attack", "steps", "ended")
	for _, p := range r.attacks {
		say("%-22s %9d %9d  %s", p.Name, p.Steps, p.Ends, p.Last)
	}
	say("\nmemory of %d MiB: calm %d, at most %d, after the attack %d MiB",
		r.memory>>20, r.calmest>>20, r.most>>20, r.last>>20)
	for _, phase := range []struct {
		name string
		all  []time.Duration
	}{{"calm", r.calm}, {"attacked", r.hot}} {
		say("honest clients, %-8s %6d requests, p50 %v, p99 %v", phase.name, len(phase.all),
			percentile(phase.all, 50).Round(10*time.Microsecond),
			percentile(phase.all, 99).Round(10*time.Microsecond))
	}
	verdict := "not judged"
	if r.judged {
		verdict = fmt.Sprintf("at most %.0f", r.allowed)
	}
	say("p99 under attack is %.1f times the calm one (%s; others had %.0f %% of the machine)",
		r.slowdown, verdict, 100*r.taken)
	for _, what := range slices.Sorted(maps.Keys(r.unserved)) {
		say("not served: %s, %d times", what, r.unserved[what])
	}
	say("kept: %d holds, a counter at %d, a limiter with %d grants and at most %d of %d in its window",
		2*holds, r.counted, r.grants, r.inWindow, limitSize)
	for _, fault := range r.faults() {
		say("FAIL: %s", fault)
	}
}
