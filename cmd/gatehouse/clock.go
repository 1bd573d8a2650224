package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// A clockWatch compares the system's clock with the monotonic clock, by which the stores memory, disk and
// etcd continue from the system's time at their start. The two drift apart when the system's clock is set,
// and when the machine sleeps, as the monotonic clock stands still then. The stores do not follow; see
// docs/decisions/0025-the-clock-is-not-followed.md. A clockWatch shows the difference in a metric and the
// log.
type clockWatch struct {
	log     *slog.Logger
	wall    func() time.Time     // returns the system's time
	elapsed func() time.Duration // returns the time since the start by the monotonic clock
	start   time.Time            // by the system's clock

	logged time.Duration // clockStep when it was last logged
}

// newClockWatch returns a watch that starts now, and registers its metric. It is to be called when the store
// is opened.
func newClockWatch(log *slog.Logger, metrics prometheus.Registerer) *clockWatch {
	// Round(0) strips the monotonic reading of a time. With it, Sub would compare by the monotonic clock, and
	// no step would ever be seen.
	begun := time.Now()
	w := &clockWatch{
		log: log, start: begun.Round(0),
		wall:    func() time.Time { return time.Now().Round(0) },
		elapsed: func() time.Duration { return time.Since(begun) },
	}
	telemetry.Gauge(metrics, "gatehouse_clock_step_seconds",
		"Time by which the system's clock was set forward since the start, including time asleep.",
		func() float64 { return w.clockStep().Seconds() })
	return w
}

// clockStep returns by how much the system's clock has gone ahead since the start; below 0 if it was set
// back.
func (w *clockWatch) clockStep() time.Duration { return w.wall().Sub(w.start) - w.elapsed() }

const (
	clockInterval = 10 * time.Second
	// minLoggedStep is the smallest step that is logged. The two clocks are read one after the other, and a
	// busy machine may take some time between the two.
	minLoggedStep = time.Second
)

// watchClock calls logStep regularly until ctx ends.
func (w *clockWatch) watchClock(ctx context.Context) error {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			// The end of the process is no failure of this watch.
			return nil
		case <-ticker.C:
			w.logStep()
		}
	}
}

// logStep logs the change of clockStep since the last line, if it is a large one.
func (w *clockWatch) logStep() {
	// Small steps add up here: they are compared with the last one that was logged, not with the last look.
	step := w.clockStep()
	if (step - w.logged).Abs() < minLoggedStep {
		return
	}
	w.log.Warn("the system's clock was set, or the machine slept: calendar windows go by the time "+
		"without that until the server is restarted",
		"step", (step - w.logged).String(), "since the start", step.String())
	w.logged = step
}
