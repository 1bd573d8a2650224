package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A clockWatch compares the system's clock with the one that the stores memory, disk and etcd go on by, which
// begins with the system's and is never set. They part when the system's clock is set, and when the machine
// sleeps, as the other one stands still then. The stores do not follow; see
// docs/decisions/0025-the-clock-is-not-followed.md. So somebody must be able to see it.
type clockWatch struct {
	log   *slog.Logger
	wall  func() time.Time     // the system's clock
	since func() time.Duration // how long the server runs, by the other
	start time.Time            // by the system's

	logged time.Duration // the step that was logged last
}

// newClockWatch begins when the store does.
func newClockWatch(log *slog.Logger, figures prometheus.Registerer) *clockWatch {
	begun := time.Now()
	w := &clockWatch{
		log: log, start: begun.Round(0), // without what Go would compare by
		wall:  func() time.Time { return time.Now().Round(0) },
		since: func() time.Duration { return time.Since(begun) },
	}
	figures.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_clock_step_seconds",
		Help: "How far the system's clock was set forward since the server started, time asleep included.",
	}, func() float64 { return w.step().Seconds() }))
	return w
}

// step is by how much the system's clock is ahead since the start.
func (w *clockWatch) step() time.Duration { return w.wall().Sub(w.start) - w.since() }

const (
	clockEvery = 10 * time.Second
	// stepWorth is what is logged. Less may be two readings of which the machine did something else between.
	stepWorth = time.Second
)

// run looks at the clock now and then, until ctx ends.
func (w *clockWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(clockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look()
		}
	}
}

// look logs a step that was not logged yet.
func (w *clockWatch) look() {
	step := w.step()
	if (step - w.logged).Abs() < stepWorth {
		return
	}
	w.log.Warn("the system's clock was set, or the machine slept: calendar windows go by the time "+
		"without that until the server is restarted",
		"step", (step - w.logged).String(), "since the start", step.String())
	w.logged = step
}
