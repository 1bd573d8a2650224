package control

import (
	"bytes"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A limiter whose rule no stored form has needed so far does not know it later either, as a copy that was
// read would not: a report makes room for the rule, but is stored without it.
func TestRuleThatWasNotStoredIsNotKept(t *testing.T) {
	acquire := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10, Interval: time.Second, Burst: 9},
	}
	report := gatehouse.Command{
		Op: gatehouse.OpFeedback, Feedback: &gatehouse.Feedback{Status: 429, RetryAfter: time.Second},
	}
	closes, opens := gatehouse.Command{Op: gatehouse.OpClose}, gatehouse.Command{Op: gatehouse.OpOpen}
	histories := [][]gatehouse.Command{
		{acquire, report, acquire},
		{acquire, closes, acquire, opens, report, acquire},
		{acquire, report, closes, acquire, opens, report},
	}
	inForce := gatehouse.Rule{Size: gatehouse.InForce}
	ends := []gatehouse.Command{
		{Op: gatehouse.OpReset}, closes,
		{Op: gatehouse.OpReserve, Cost: 1, Holder: "h", MaxDelay: time.Hour, Rule: inForce},
		{Op: gatehouse.OpCharge, Cost: 15, Rule: inForce},
	}
	for _, v := range varieties() {
		for _, history := range histories {
			for _, end := range ends {
				wantSameForm(t, v, history, end)
			}
		}
	}
}

// wantSameForm looks whether a limiter and a copy that was read have one form after one more command.
func wantSameForm(t *testing.T, v variety, history []gatehouse.Command, end gatehouse.Command) {
	t.Helper()
	s := New(v.kind)
	for _, cmd := range history {
		if cmd.HasLimit() {
			cmd.Mode = v.mode
		}
		s.Step(epoch(), &Turn{Command: &cmd})
	}
	read := decoded(t, v.kind, s)
	s.Step(epoch(), &Turn{Command: &end})
	read.Step(epoch(), &Turn{Command: &end})
	if want, got := Encode(nil, s), Encode(nil, read); !bytes.Equal(got, want) {
		t.Errorf("%s: after %+v and %s the form is\n%x, of what was read\n%x", v, history, end.Op, want, got)
	}
}
