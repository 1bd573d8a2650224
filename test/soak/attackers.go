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

// A plan is what attackers are told on their standard input, which ends when they are to cease.
type plan struct {
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
	var p plan
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p)
	}
	if err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	only, err := regexp.Compile(p.Only)
	if err != nil {
		return err
	}
	ctx, cease := context.WithCancel(context.Background())
	go func() { // ends with the input
		_, _ = io.Copy(io.Discard, reader)
		cease()
	}()
	var all sync.WaitGroup
	var tallies []*tally
	s := &server{http: p.HTTP, resp: p.RESP, grpc: p.GRPC, jarl: p.JARL}
	for _, a := range attacks {
		if !only.MatchString(a.name) {
			continue
		}
		t := &tally{name: a.name}
		tallies = append(tallies, t)
		all.Go(func() { a.run(&field{ctx: ctx, server: s, scale: p.Scale, tally: t}) })
	}
	say := json.NewEncoder(out)
	tell := time.NewTicker(time.Second)
	defer tell.Stop()
	for wait(ctx, tell) {
		if err := say.Encode(reached(tallies)); err != nil {
			cease()
		}
	}
	all.Wait()
	return say.Encode(reached(tallies))
}

func reached(tallies []*tally) (all []progress) {
	for _, t := range tallies {
		all = append(all, progress{t.name, t.done.Load(), t.failed.Load(), t.text()})
	}
	return all
}

// attackers is the process that attacks.
type attackers struct {
	process *exec.Cmd
	input   io.Closer
	ended   chan struct{}

	mu   sync.Mutex
	last []progress
}

// attackWith starts attackers, at the lowest priority where latency is judged. Elsewhere they are to be heard
// also on a machine that has no time to spare.
func attackWith(ctx context.Context, s *server, c config) (*attackers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &attackers{ended: make(chan struct{})}
	a.process = exec.CommandContext(ctx, self)
	if c.judge {
		a.process = exec.CommandContext(ctx, "nice", "-n", "19", self)
	}
	a.process.Env = append(os.Environ(), attackersVariable+"=1")
	a.process.Stderr = os.Stderr
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
	go a.listen(output) // ends with the process
	p := plan{HTTP: s.http, RESP: s.resp, GRPC: s.grpc, JARL: s.jarl, Scale: c.scale, Only: c.only}
	return a, json.NewEncoder(input).Encode(p)
}

func (a *attackers) listen(output io.Reader) {
	defer close(a.ended)
	for decoder := json.NewDecoder(output); ; {
		var now []progress
		if err := decoder.Decode(&now); err != nil {
			return
		}
		a.mu.Lock()
		a.last = now
		a.mu.Unlock()
	}
}

// progress is how far they have come.
func (a *attackers) progress() []progress {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// begun reports whether each attack was made at least once.
func (a *attackers) begun() bool {
	all := a.progress()
	return len(all) > 0 && !slices.ContainsFunc(all, func(p progress) bool { return p.Steps == 0 })
}

// cease ends the attack. What they hold is closed with their process.
func (a *attackers) cease() error {
	err := a.input.Close()
	timer := time.AfterFunc(patience, func() { _ = a.process.Process.Kill() })
	defer timer.Stop()
	<-a.ended
	return errors.Join(err, a.process.Wait())
}
