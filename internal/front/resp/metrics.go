package resp

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's figures: those of every protocol, and why connections are cut.
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

// tallies count one event loop's answers. Those that follow one another alike are counted at once, and what
// is written at once took equally long: the clock is read once for the commands that arrived together, and
// once for their answers.
type tallies struct {
	metrics *metrics
	shard   *telemetry.Shard
	began   time.Duration // when the loop turned to the connection
	since   time.Duration // when the command being answered began to be handled
	rows    [maxRows]row
	n       int
}

// maxRows is more than a pipeline that acquires and releases in turns usually has.
const maxRows = 32

// A row is answers of one sort.
type row struct {
	series  *telemetry.Series
	outcome telemetry.Outcome
	count   uint64
	since   time.Duration
}

// begin notes that the loop turns to a connection.
func (t *tallies) begin() {
	t.flush() // what a connection that broke off has left
	t.began = t.metrics.Now()
	t.since = t.began
}

// count notes one answer.
func (t *tallies) count(kind gatehouse.Kind, op gatehouse.Op, outcome telemetry.Outcome) {
	series := t.shard.Of(kind, op)
	if t.n > 0 {
		last := &t.rows[t.n-1]
		if last.series == series && last.outcome == outcome && last.since == t.since {
			last.count++
			return
		}
	}
	if t.n == maxRows {
		t.flush()
	}
	t.rows[t.n] = row{series, outcome, 1, t.since}
	t.n++
}

// resume makes ready to answer a command that was put off. One that stood in line begins to be handled
// again.
func (t *tallies) resume(w *waiter) {
	since, put := w.question.since.get()
	switch {
	case !put:
	case w.alone:
		t.shard.Of(w.question.key.Kind, w.question.op).Waited(t.began - since)
	default:
		t.since = since
	}
}

// resumed ends what resume began.
func (t *tallies) resumed() { t.since = t.began }

// lost notes that a command leaves the line because its client is gone.
func (t *tallies) lost(w *waiter) {
	if since, put := w.question.since.get(); put && w.alone {
		t.shard.Of(w.question.key.Kind, w.question.op).Waited(t.metrics.Now() - since)
	}
}

// An instant is a time of the metrics' clock in 6 bytes, which a question has to spare: microseconds, enough
// for eight years. The zero instant is none.
type instant [3]uint16

func newInstant(at time.Duration) instant {
	us := uint64(at/time.Microsecond) + 1
	return instant{uint16(us), uint16(us >> 16), uint16(us >> 32)} // #nosec G115 -- in parts
}

// get returns the time; ok is false for none.
func (i instant) get() (at time.Duration, ok bool) {
	us := uint64(i[0]) | uint64(i[1])<<16 | uint64(i[2])<<32
	if us == 0 {
		return 0, false
	}
	return time.Duration(us-1) * time.Microsecond, true // #nosec G115 -- 48 bits
}

// flush shows what was counted.
func (t *tallies) flush() {
	if t.n == 0 {
		return
	}
	now := t.metrics.Now()
	for i := range t.rows[:t.n] {
		r := &t.rows[i]
		r.series.Count(r.outcome, r.count, now-r.since)
	}
	t.n = 0
}
