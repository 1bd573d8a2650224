package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Each step of the clock, forward or back, is logged once. Small ones are logged when they make a large one.
func TestClockStepsAreSeen(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := newClockWatch(slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	if got := w.clockStep().Abs(); got > minLoggedStep {
		t.Errorf("at the start the step is %v, want next to none", got)
	}
	wall, since := w.start, time.Duration(0)
	w.wall, w.elapsed = func() time.Time { return wall }, func() time.Duration { return since }
	for _, c := range []struct {
		passes, step time.Duration // of the time, and of the clock besides
		want         string
	}{
		{time.Hour, 0, ""},
		{0, 600 * time.Millisecond, ""},
		{0, 600 * time.Millisecond, `step=1.2s "since the start"=1.2s`},
		{time.Hour, 0, ""},
		{time.Minute, 8 * time.Hour, `step=8h0m0s "since the start"=8h0m1.2s`}, // asleep
		{time.Minute, -8 * time.Hour, `step=-8h0m0s "since the start"=1.2s`},
		{time.Minute, 0, ""},
	} {
		log.Reset()
		wall, since = wall.Add(c.passes+c.step), since+c.passes
		w.logStep()
		if got := log.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("after %v and a step by %v the log says %q, want %q", c.passes, c.step, got, c.want)
		}
	}
}
