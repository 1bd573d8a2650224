package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Shares of the machine's time above which a measurement says more about its neighbours than about us.
const (
	mostOthers = 0.10 // used by other programs right before a section
	mostSteal  = 0.10 // given to other machines of the same host during a section
)

// restPatience is how long a section waits for the machine to be at rest, sectionTries how often it is
// measured until one time is undisturbed.
const (
	restPatience = 2 * time.Minute
	sectionTries = 3
)

// cpuTimes are seconds of all processors since the machine started, in ticks.
type cpuTimes struct{ total, idle, stolen float64 }

// readCPUTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func readCPUTimes() (times cpuTimes, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const label, idle, iowait, steal = 0, 4, 5, 8
	if len(fields) <= steal || fields[label] != "cpu" {
		return times, fmt.Errorf("/proc/stat begins with %q, want the times of all processors", line)
	}
	for i, field := range fields[:steal+1] {
		if i == label {
			continue
		}
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return times, fmt.Errorf("/proc/stat: %w", err)
		}
		times.total += ticks
		// A processor that waits for a disk is free for others.
		switch i {
		case idle, iowait:
			times.idle += ticks
		case steal:
			times.stolen = ticks
		}
	}
	return times, nil
}

// since returns which shares of the time since an earlier reading were used by programs and were stolen.
func (t cpuTimes) since(before cpuTimes) (used, stolen float64) {
	total := t.total - before.total
	if total <= 0 {
		return 0, 0
	}
	stolen = (t.stolen - before.stolen) / total
	return 1 - (t.idle-before.idle)/total - stolen, stolen
}

// errBusy says that the machine is never at rest.
var errBusy = errors.New("the machine is too busy to measure anything; try again when nothing else runs")

// waitForRest returns once other programs have used next to nothing for a second. This one uses nothing
// meanwhile.
func waitForRest(ctx context.Context) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	before, err := readCPUTimes()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(restPatience); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
		now, err := readCPUTimes()
		if err != nil {
			return err
		}
		used, stolen := now.since(before)
		if used <= mostOthers && stolen <= mostSteal {
			return nil
		}
		// Figures of a busy machine are worse than none.
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %.0f %% used by other programs, %.0f %% stolen",
				errBusy, 100*used, 100*stolen)
		}
		before = now
	}
}

// measureAtRest measures a section on a machine at rest, and again if that was disturbed. A section that was
// never undisturbed says so instead of showing figures.
func (b *bench) measureAtRest(ctx context.Context, s section) (text string, rows []row, err error) {
	// A quick run shows that everything works; its figures mean nothing in any case.
	if b.quick {
		return b.measureOnce(ctx, s)
	}
	stolen := 0.0
	for range sectionTries {
		if err := waitForRest(ctx); err != nil {
			return "", nil, err
		}
		before, err := readCPUTimes()
		if err != nil {
			return "", nil, err
		}
		text, rows, err = b.measureOnce(ctx, s)
		if err != nil {
			return "", nil, err
		}
		after, err := readCPUTimes()
		if err != nil {
			return "", nil, err
		}
		_, stolen = after.since(before)
		if stolen <= mostSteal {
			return text, rows, nil
		}
		fmt.Fprintf(os.Stderr, "%-8s disturbed: %.0f %% of the time was stolen\n", s.name, 100*stolen)
	}
	text = fmt.Sprintf("Not measured: in each of %d tries other machines of the same host took more than "+
		"%.0f %% of the time, %.0f %% in the last.", sectionTries, 100*mostSteal, 100*stolen)
	return text, nil, nil
}

// measureOnce measures a section and ends the servers it has started: they would take time from what is
// measured next, or outlive this program.
func (b *bench) measureOnce(ctx context.Context, s section) (text string, rows []row, err error) {
	defer b.stop()
	return s.measure(ctx, b)
}
