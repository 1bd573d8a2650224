//go:build linux || darwin

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
	"github.com/gatehousehq/gatehouse/test/oracle"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortly is how a run is made in a test: make chaos makes longer ones.
func shortly(t *testing.T) chaosConfig {
	t.Helper()
	c := chaosConfig{length: 4 * time.Second, clients: 12, pause: 10 * time.Millisecond, seed: 1}
	c.slack = 10 * time.Second // other tests run beside it
	c.folder = t.TempDir()
	var err error
	c.binary, err = servertest.Build(t.Context(), c.folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNothingIsLostThatWasPromised(t *testing.T) {
	t.Parallel()
	c := shortly(t)
	for i := range variants {
		v := &variants[i]
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			own := c
			own.folder = t.TempDir()
			p, err := testStore(t.Context(), v, own)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			p.writeText(&text)
			if !p.asExpected() {
				t.Errorf("%s keeps all promises: %t, want %t\n%s", v.name, p.Kept, !v.forgets, &text)
			}
			for _, line := range p.Promises[:len(p.Promises)-1] {
				if line.Checked == 0 {
					t.Errorf("%s: %q was never put to the test\n%s", v.name, line.Promise, &text)
				}
			}
			if err := json.NewEncoder(new(bytes.Buffer)).Encode(p); err != nil {
				t.Error(err)
			}
		})
	}
}

// judgedWrong is the promises of which the judge does not find what is so: this one is broken, and no other.
func judgedWrong(calls []recordedCall, broken oracle.Promise) (wrong []oracle.Promise) {
	r := &chaosRun{variant: &variants[3], config: chaosConfig{slack: time.Second}}
	for i := range calls {
		c := &calls[i]
		if c.outcome == cut && c.text == "" { // its server was killed
			r.faults = append(r.faults, &injectedFault{at: c.start, back: c.end})
		}
		r.calls = append(r.calls, c)
	}
	j := judgeRun(r)
	for _, p := range guarantees {
		if (j.counts[p].broken > 0) != (p == broken) {
			wrong = append(wrong, p)
		}
	}
	return wrong
}

// breaches are short histories in which a promise is broken, or none is. What the oracle finds in longer ones
// is tested with it.
var breaches = []struct {
	fact    string
	promise oracle.Promise
	calls   []recordedCall
}{
	{"a lock is held by two", oracle.RoomIsKept, []recordedCall{
		{key: "lock/l", op: "acquire", holder: "a", outcome: granted, fence: 1, expires: time.Minute, end: 1},
		{key: "lock/l", op: "acquire", holder: "b", outcome: granted, fence: 2, start: 2, end: 3},
	}},
	{"a release that means another hold does it", oracle.HoldsStay, []recordedCall{
		{key: "lock/l", op: "acquire", holder: "a", outcome: granted, fence: 2, start: 0, end: 1},
		{key: "lock/l", op: "release", holder: "a", meantFence: 1, outcome: granted, start: 2, end: 3},
	}},
	{"a count is lost", oracle.CountsStay, []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: granted, value: 2, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 1, final: true, start: 2, end: 3},
	}},
	{"a count that nobody was told of is there, or not", "", []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: cut, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 2, start: 2, end: 3},
		{key: "counter/c", op: "count", amount: 2, outcome: unavailable, start: 4, end: 5},
		{key: "counter/c", op: "value", outcome: granted, value: 2, final: true, start: 6, end: 7},
	}},
	{"a count is there twice", oracle.CountsStay, []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: granted, value: 2, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 4, final: true, start: 2, end: 3},
	}},
	{"an event is forgotten", oracle.EventsStay, []recordedCall{
		{key: "event/e", op: "send", message: "m", outcome: granted, start: 0, end: 1},
		{key: "event/e", op: "wait", outcome: refused, start: 2, end: 3},
	}},
	{"a bucket gives too much", oracle.RatesAreKept, []recordedCall{
		{key: "gcra/t", op: "acquire", size: 1, interval: 9, cost: 2, outcome: granted, start: 0, end: 1},
		{key: "gcra/t", op: "acquire", size: 1, interval: 9, cost: 1, outcome: granted, start: 2, end: 3},
	}},
	{"nobody answers", inTime, []recordedCall{
		{key: "event/e", op: "wait", outcome: cut, text: "timeout", start: 0, end: 2 * time.Second},
	}},
	{"an answer is late", inTime, []recordedCall{
		{key: "event/e", op: "wait", outcome: refused, start: 0, end: 2 * time.Second},
	}},
}

func TestTheJudgeFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, b := range breaches {
		for _, p := range judgedWrong(b.calls, b.promise) {
			t.Errorf("%s: what is judged of %q is wrong", b.fact, p)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-store shelf":        `-store is "shelf", want ` + wantStore,
		"-seconds 0":          "-seconds and -clients must be above 0, -pause not below",
		"-clients 0":          "-seconds and -clients must be above 0, -pause not below",
		"-store disk,,memory": `-store is "", want ` + wantStore,
	} {
		err := runCommand(t.Context(), strings.Fields(args), new(bytes.Buffer))
		if err == nil || err.Error() != want {
			t.Errorf("chaos %s = %v, want %s", args, err, want)
		}
	}
}
