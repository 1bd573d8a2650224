package resp

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's metrics: those of every protocol, and why connections are cut.
type metrics struct {
	*telemetry.Protocol
	malformed, slow prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{Protocol: telemetry.New(s.config.Metrics, telemetry.RESP)}
	m.malformed, m.slow = m.Cuts("malformed"), m.Cuts("slow")
	m.Connections(s.config.Metrics, s.open.Load)
	return m
}

// answerCounts counts the answers of one event loop. Equal answers that follow one another are counted
// together. Answers that are written together took equally long: the clock is read once for the commands
// that arrived together, and once for their answers.
type answerCounts struct {
	now   func() time.Duration
	shard *telemetry.Shard
	began time.Duration // when the loop turned to the connection
	since time.Duration // when the command being answered began to be handled
	runs  [maxRuns]answerRun
	n     int
}

// maxRuns is more than a pipeline that acquires and releases in turns usually has.
const maxRuns = 32

// An answerRun is answers of one sort.
type answerRun struct {
	series  *telemetry.Series
	outcome telemetry.RequestOutcome
	count   uint64
	since   time.Duration
}

// beginRound notes that the loop turns to a connection now.
func (t *answerCounts) beginRound(now time.Duration) {
	t.flushCounts() // what a connection that broke off has left
	t.began, t.since = now, now
}

// countAnswer notes n equal answers.
func (t *answerCounts) countAnswer(
	kind gatehouse.Kind, op gatehouse.Op, outcome telemetry.RequestOutcome, n uint64,
) {
	series := t.shard.Of(kind, op)
	// A pipeline mostly has equal answers, which then cost one addition.
	if t.n > 0 {
		last := &t.runs[t.n-1]
		if last.series == series && last.outcome == outcome && last.since == t.since {
			last.count += n
			return
		}
	}
	if t.n == maxRuns {
		t.flushCounts()
	}
	t.runs[t.n] = answerRun{series, outcome, n, t.since}
	t.n++
}

// resumeTiming makes ready to answer a command that was put off. One that stood in line begins to be handled
// again.
func (t *answerCounts) resumeTiming(w *waiter) {
	since, put := w.since.sinceStart()
	switch {
	case !put:
	case w.alone:
		t.shard.Of(w.operation()).Waited(t.began - since)
	default:
		t.since = since
	}
}

// endResume ends what resume began.
func (t *answerCounts) endResume() { t.since = t.began }

// endWait notes that a command leaves the line because its client is gone.
func (t *answerCounts) endWait(w *waiter) {
	if since, put := w.since.sinceStart(); put && w.alone {
		t.shard.Of(w.operation()).Waited(t.now() - since)
	}
}

// An instant is a time of the metrics' clock in 6 bytes, which a waiter has to spare: microseconds, enough
// for eight years. The zero instant is none.
type instant [3]uint16

func newInstant(at time.Duration) instant {
	us := uint64(at/time.Microsecond) + 1
	return instant{uint16(us), uint16(us >> 16), uint16(us >> 32)} // in parts
}

// sinceStart returns the time; ok is false for none.
func (i instant) sinceStart() (at time.Duration, ok bool) {
	us := uint64(i[0]) | uint64(i[1])<<16 | uint64(i[2])<<32
	if us == 0 {
		return 0, false
	}
	return time.Duration(us-1) * time.Microsecond, true // 48 bits
}

// flushCounts shows what was counted.
func (t *answerCounts) flushCounts() {
	if t.n == 0 {
		return
	}
	now := t.now()
	for i := range t.runs[:t.n] {
		r := &t.runs[i]
		r.series.Count(r.outcome, r.count, now-r.since)
	}
	t.n = 0
}
