//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse/test/oracle"
)

// A soakReport is what a run has shown.
type soakReport struct {
	memory                int64 // what the server may have
	calmMemory, maxMemory int64 // resident bytes before the attack, and at most
	endMemory             int64 // after it
	calm, hot             []time.Duration
	bystander             []time.Duration // during the attack, of clients of a server that is not attacked
	unserved              map[string]int
	lost                  []string
	inWindow              int64 // grants in one window of the limiter
	grants                int
	counted               int64
	attackers             *attackerProcess // nil before the attack
	attacks               []progress
	status                int     // of the process at its end
	serverEnded           bool    // it ended by itself
	othersShare           float64 // of the machine's time, by its host and by other programs
	judged                bool
	slowdown, allowed     float64
}

// The latency that honest clients may have is a multiple of their calm one.
const (
	allowedSlowdown = 3
	maxOthersShare  = 0.10
)

// runSoak starts a server, lets honest clients work with it, and attacks it.
func runSoak(ctx context.Context, c soakConfig) (*soakReport, error) {
	s, err := startServer(ctx, c)
	if err != nil {
		return nil, err
	}
	// It is stopped twice after a good run, and the second time does nothing.
	defer s.stopServer()
	h := newHonestClients(s)
	defer h.client.CloseIdleConnections()
	if err := h.acquireHolds(ctx); err != nil {
		return nil, err
	}
	r := &soakReport{memory: c.memory, allowed: allowedSlowdown}
	var besides *honestClients
	ours := []int{os.Getpid(), s.process.Process.Pid} // honest clients are this process
	if c.judge {
		other, err := startBystander(ctx, c)
		if err != nil {
			return nil, err
		}
		defer other.server.stopServer()
		besides = other
		ours = append(ours, other.server.process.Process.Pid)
	}
	// First a calm time, for comparison, then the attack. The honest clients work through both.
	working, rest := context.WithCancel(ctx)
	defer rest()
	var honest sync.WaitGroup
	honest.Go(func() { h.callUntil(working) })
	r.watchMemory(ctx, s, c, max(c.length/4, time.Second))
	// The peak of the calm time is its memory. The attack starts with no peak.
	r.calmMemory, r.maxMemory = r.maxMemory, 0
	h.beginAttack()
	if besides != nil {
		besides.beginAttack()
		honest.Go(func() { besides.callUntil(working) })
	}
	err = r.runAttacks(ctx, s, c, ours)
	rest()
	// From here on the lists of the clients are read without their lock.
	honest.Wait()
	r.serverEnded = s.hasEnded()
	if !r.serverEnded {
		var unread error
		r.counted, unread = h.checkGranted(ctx)
		err = errors.Join(err, unread)
	}
	h.judgeCalls()
	r.calm, r.hot, r.unserved, r.lost = h.calm, h.hot, h.unserved, h.lost
	r.grants, r.inWindow = len(h.grants), oracle.MostWithin(h.grants, limitWindow)
	r.status = s.stopServer()
	if besides != nil {
		r.bystander = besides.hot
	}
	calm := max(latencyPercentile(r.calm, 99), latencyPercentile(r.bystander, 99), 1)
	r.slowdown = float64(latencyPercentile(r.hot, 99)) / float64(calm)
	r.judged = c.judge && r.othersShare < maxOthersShare
	return r, errors.Join(err, ctx.Err())
}

// startBystander starts a server that is not attacked, and honest clients for it. On few processors attackers
// take time from all that runs there: what these clients wait for is no fault of a server.
func startBystander(ctx context.Context, c soakConfig) (*honestClients, error) {
	c.folder = filepath.Join(c.folder, "bystander")
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		return nil, err
	}
	s, err := startServer(ctx, c)
	if err != nil {
		return nil, err
	}
	h := newHonestClients(s)
	if err := h.acquireHolds(ctx); err != nil {
		s.stopServer()
		return nil, err
	}
	return h, nil
}

// runAttacks has all attacks made at once for the length of the run. ours are the processes of the run
// without the attackers'.
func (r *soakReport) runAttacks(ctx context.Context, s *attackedServer, c soakConfig, ours []int) error {
	a, err := startAttackers(ctx, s, c)
	if err != nil {
		return fmt.Errorf("starting attackers: %w", err)
	}
	ours = append(ours, a.process.Process.Pid)
	before := readUsage(ours)
	r.attackers = a
	r.watchMemory(ctx, s, c, c.length)
	// A busy machine may not have let every attack begin yet.
	for late := time.Now().Add(patience); !a.allBegun() && time.Now().Before(late) && ctx.Err() == nil; {
		r.watchMemory(ctx, s, c, time.Second)
	}
	// Before the attackers end: their time could not be read any more.
	r.othersShare = before.shareOfOthers(readUsage(ours))
	err = a.stopAttacks()
	r.attacks, r.endMemory = a.lastProgress(), s.residentMemory()
	r.maxMemory = max(r.maxMemory, r.endMemory)
	return err
}

// watchMemory samples the server's memory for a time, or until the server ends.
func (r *soakReport) watchMemory(ctx context.Context, s *attackedServer, c soakConfig, length time.Duration) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	end := time.NewTimer(length)
	defer end.Stop()
	// Memory is sampled often, as a peak may be short, and printed seldom.
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
		r.maxMemory = max(r.maxMemory, s.residentMemory())
		if since := time.Since(begin); since-shown >= 5*time.Second {
			shown = since
			steps := int64(0)
			for _, p := range r.attackers.lastProgress() {
				steps += p.Steps
			}
			_, _ = fmt.Fprintf(c.out, "%4.0f s  memory %d MiB, at most %d MiB; attackers made %d steps\n",
				since.Seconds(), s.residentMemory()>>20, r.maxMemory>>20, steps)
		}
	}
}

// latencyPercentile returns the latency that the given percentage of requests do not exceed; 0 without any.
func latencyPercentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*percent/100]
}

// listFaults are what was not as promised.
func (r *soakReport) listFaults() (all []string) {
	if r.serverEnded {
		all = append(all, "the server ended")
	}
	if r.maxMemory > r.memory {
		all = append(all,
			fmt.Sprintf("the server had %d MiB, want at most %d", r.maxMemory>>20, r.memory>>20))
	}
	// A server that forgets may have lost all of some hundred holds. The first five are enough to see it.
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
	// A server that ended by itself is a fault of its own, whatever its status was.
	if r.status != 0 && !r.serverEnded {
		all = append(all, fmt.Sprintf("the server ended with status %d after SIGTERM", r.status))
	}
	// Without a latency during the attack, the slowdown would look perfect.
	if len(r.hot) == 0 {
		all = append(all, "no honest client was served during the attack")
	}
	if r.judged && r.slowdown > r.allowed {
		all = append(all, fmt.Sprintf("p99 was %.1f times what it is without an attack, want %.0f",
			r.slowdown, r.allowed))
	}
	return all
}

func (r *soakReport) isGood() bool { return len(r.listFaults()) == 0 }

// writeText shows the report.
func (r *soakReport) writeText(to io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(to, format+"\n", args...) }
	say("\n%-22s %9s %9s  last that went wrong", "attack", "steps", "ended")
	for _, p := range r.attacks {
		say("%-22s %9d %9d  %s", p.Name, p.Steps, p.Ends, p.Last)
	}
	say("\nmemory of %d MiB: calm %d, at most %d, after the attack %d MiB",
		r.memory>>20, r.calmMemory>>20, r.maxMemory>>20, r.endMemory>>20)
	// The p99 of the calm time and of the attack are what the slowdown is made of.
	for _, phase := range []struct {
		name string
		all  []time.Duration
	}{{"calm", r.calm}, {"attacked", r.hot}, {"elsewhere", r.bystander}} {
		say("honest clients, %-9s %6d requests, p50 %v, p99 %v", phase.name, len(phase.all),
			latencyPercentile(phase.all, 50).Round(10*time.Microsecond),
			latencyPercentile(phase.all, 99).Round(10*time.Microsecond))
	}
	verdict := "not judged"
	if r.judged {
		verdict = fmt.Sprintf("at most %.0f", r.allowed)
	}
	say("p99 under attack is %.1f times the longer of the others (%s; other programs had %.0f %%)",
		r.slowdown, verdict, 100*r.othersShare)
	for _, what := range slices.Sorted(maps.Keys(r.unserved)) {
		say("not served: %s, %d times", what, r.unserved[what])
	}
	say("kept: %d holds, a counter at %d, a limiter with %d grants and at most %d of %d in its window",
		2*holds, r.counted, r.grants, r.inWindow, limitSize)
	for _, fault := range r.listFaults() {
		say("FAIL: %s", fault)
	}
}
