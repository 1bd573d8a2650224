//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Attackers are a process of their own, which runs when the server and the honest clients leave it room, so
// that what the report says of these depends less on how many cores the machine has.

// An attackPlan is what attackers read from their standard input. The end of the input ends the attack.
type attackPlan struct {
	HTTP, RESP, GRPC, JARL string
	Scale                  int
	Only                   string
}

// A progress is how far one attack has come.
type progress struct {
	Name        string
	Steps, Ends int64
	Last        string
}

// attackersVariable makes this program attack, whatever its arguments are.
const attackersVariable = "SOAK_ATTACKERS"

// playAttackers makes all attacks of a plan until the input ends. Each second it says how far they have come.
func playAttackers(in io.Reader, out io.Writer) error {
	var p attackPlan
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p)
	}
	if err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	// The pattern has come through a pipe, so it is compiled again.
	only, err := regexp.Compile(p.Only)
	if err != nil {
		return err
	}
	ctx, cease := context.WithCancel(context.Background())
	// The input has nothing more in it. Its end is the order to stop, which also comes when the soak is
	// killed.
	go func() {
		_, _ = io.Copy(io.Discard, reader)
		cease()
	}()
	// All attacks at once, each with a count of its own.
	var all sync.WaitGroup
	var tallies []*attackCount
	s := &attackedServer{http: p.HTTP, resp: p.RESP, grpc: p.GRPC, jarl: p.JARL}
	for _, a := range attacks {
		if !only.MatchString(a.name) {
			continue
		}
		t := &attackCount{name: a.name}
		tallies = append(tallies, t)
		all.Go(func() { a.run(&attackField{ctx: ctx, server: s, scale: p.Scale, tally: t}) })
	}
	say := json.NewEncoder(out)
	tell := time.NewTicker(time.Second)
	defer tell.Stop()
	for awaitTick(ctx, tell) {
		// The soak no longer reads, so there is nothing left to attack for.
		if err := say.Encode(progressOf(tallies)); err != nil {
			cease()
		}
	}
	all.Wait()
	return say.Encode(progressOf(tallies))
}

func progressOf(tallies []*attackCount) (all []progress) {
	for _, t := range tallies {
		all = append(all, progress{t.name, t.done.Load(), t.failed.Load(), t.lastError()})
	}
	return all
}

// attackerProcess is the process that attacks.
type attackerProcess struct {
	process *exec.Cmd
	input   io.Closer
	ended   chan struct{}

	mu   sync.Mutex
	last []progress
}

// startAttackers starts attackers, at the lowest priority where latency is judged. Elsewhere they are to be
// heard also on a machine that has no time to spare.
func startAttackers(ctx context.Context, s *attackedServer, c soakConfig) (*attackerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &attackerProcess{ended: make(chan struct{})}
	a.process = exec.CommandContext(ctx, self)
	// On few cores the attackers would otherwise take the time of the honest clients.
	if c.judge {
		a.process = exec.CommandContext(ctx, "nice", "-n", "19", self)
	}
	a.process.Env = append(os.Environ(), attackersVariable+"=1")
	a.process.Stderr = os.Stderr
	// Held open as long as the attack goes on.
	input, err := a.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	a.input = input
	output, err := a.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.process.Start(); err != nil {
		return nil, err
	}
	go a.readProgress(output) // ends with the process
	p := attackPlan{HTTP: s.http, RESP: s.resp, GRPC: s.grpc, JARL: s.jarl, Scale: c.scale, Only: c.only}
	return a, json.NewEncoder(input).Encode(p)
}

func (a *attackerProcess) readProgress(output io.Reader) {
	defer close(a.ended)
	for decoder := json.NewDecoder(output); ; {
		var now []progress
		// The end of the output is the end of the process.
		if err := decoder.Decode(&now); err != nil {
			return
		}
		a.mu.Lock()
		a.last = now
		a.mu.Unlock()
	}
}

// lastProgress is how far they have come.
func (a *attackerProcess) lastProgress() []progress {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// allBegun reports whether each attack was made at least once.
func (a *attackerProcess) allBegun() bool {
	all := a.lastProgress()
	// Without any progress yet, no attack has begun.
	return len(all) > 0 && !slices.ContainsFunc(all, func(p progress) bool { return p.Steps == 0 })
}

// stopAttacks ends the attack. What they hold is closed with their process.
func (a *attackerProcess) stopAttacks() error {
	err := a.input.Close()
	// Attackers that do not end in time are killed, so that the soak ends too.
	timer := time.AfterFunc(patience, func() { _ = a.process.Process.Kill() })
	defer timer.Stop()
	// All output is read before Wait, which closes the pipe.
	<-a.ended
	return errors.Join(err, a.process.Wait())
}
