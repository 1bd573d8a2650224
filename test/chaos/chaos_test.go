//go:build linux || darwin

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
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

// breaches are short histories in which a promise is broken, or none is.
var breaches = []struct {
	fact, promise string
	calls         []recordedCall
}{
	{"a lock is held by two", roomIsKept, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, expires: time.Minute, start: 0, end: 1},
		{op: "acquire", holder: "b", outcome: granted, fence: 2, expires: time.Minute, start: 2, end: 3},
	}},
	{"the second comes after the release", "", []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, start: 0, end: 1},
		{op: "release", holder: "a", outcome: cut, start: 2, end: 3},
		{op: "acquire", holder: "b", outcome: granted, fence: 2, start: 4, end: 5},
	}},
	{"the second comes after the end", "", []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, expires: time.Second, start: 0, end: 1},
		{op: "acquire", holder: "b", outcome: granted, fence: 2, start: 1e9, end: 2e9},
	}},
	{"a renewal puts off the end", roomIsKept, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, expires: time.Second, start: 0, end: 1},
		{op: "renew", holder: "a", outcome: granted, fence: 1, expires: time.Second, start: 9e8, end: 91e7},
		{op: "acquire", holder: "b", outcome: granted, fence: 2, start: 11e8, end: 12e8},
	}},
	{"a hold is gone before its end", holdsStay, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, start: 0, end: 1},
		{op: "renew", holder: "a", outcome: conflict, start: 2, end: 3},
	}},
	{"a hold is gone that was granted at the second try", holdsStay, []recordedCall{
		{op: "acquire", holder: "a", outcome: cut, start: 0, end: 1},
		{op: "acquire", holder: "a", outcome: granted, fence: 1, start: 2, end: 3},
		{op: "release", holder: "a", outcome: conflict, start: 4, end: 5},
	}},
	{"a hold that a renewal found is gone", holdsStay, []recordedCall{
		{op: "acquire", holder: "a", outcome: cut, start: 0, end: 1},
		{op: "renew", holder: "a", outcome: granted, fence: 1, start: 2, end: 3},
		{op: "renew", holder: "a", outcome: conflict, start: 4, end: 5},
	}},
	{"a hold that a renewal found is of another, too", roomIsKept, []recordedCall{
		{op: "acquire", holder: "a", outcome: cut, start: 0, end: 1},
		{op: "renew", holder: "a", outcome: granted, fence: 1, start: 2, end: 3},
		{op: "acquire", holder: "b", outcome: granted, fence: 2, start: 4, end: 5},
	}},
	{"a release that means another hold does it", holdsStay, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 2, start: 0, end: 1},
		{op: "release", holder: "a", meantFence: 1, outcome: granted, start: 2, end: 3},
	}},
	{"a release that means another hold does nothing", "", []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 2, start: 0, end: 1},
		{op: "release", holder: "a", meantFence: 1, outcome: conflict, start: 2, end: 3},
		{op: "renew", holder: "a", meantFence: 2, outcome: granted, fence: 2, start: 4, end: 5},
	}},
	{"what was released is held again", releasesStay, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, start: 0, end: 1},
		{op: "release", holder: "a", outcome: granted, start: 2, end: 3},
		{op: "renew", holder: "a", outcome: granted, fence: 1, start: 4, end: 5},
	}},
	{"a token falls", fencesRise, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 2, start: 0, end: 1},
		{op: "release", holder: "a", outcome: granted, start: 2, end: 3},
		{op: "acquire", holder: "b", outcome: granted, fence: 1, start: 4, end: 5},
	}},
	{"tokens of grants at the same time are in any order", "", []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 2, start: 0, end: 4},
		{op: "release", holder: "a", outcome: granted, start: 4, end: 5},
		{op: "acquire", holder: "b", outcome: granted, fence: 1, expires: 1, start: 1, end: 5},
	}},
	{"a renewal has another token", fencesRise, []recordedCall{
		{op: "acquire", holder: "a", outcome: granted, fence: 1, start: 0, end: 1},
		{op: "renew", holder: "a", outcome: granted, fence: 2, start: 2, end: 3},
	}},
}

// judgedWrong is the promises of which the judge does not find what is so: this one is broken, and no other.
func judgedWrong(calls []recordedCall, broken string) (wrong []string) {
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

func TestTheJudgeFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, b := range breaches {
		for i := range b.calls {
			b.calls[i].key = "lock/l"
		}
		for _, p := range judgedWrong(b.calls, b.promise) {
			t.Errorf("%s: what is judged of %q is wrong", b.fact, p)
		}
	}
}

// others are the same for what is not held.
var others = []struct {
	fact, promise string
	calls         []recordedCall
}{
	{"a count is lost", countsStay, []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: granted, value: 2, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 1, final: true, start: 2, end: 3},
	}},
	{"a count that nobody was told of is there, or not", "", []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: cut, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 2, start: 2, end: 3},
		{key: "counter/c", op: "count", amount: 2, outcome: unavailable, start: 4, end: 5},
		{key: "counter/c", op: "value", outcome: granted, value: 2, final: true, start: 6, end: 7},
	}},
	{"a count is there twice", countsStay, []recordedCall{
		{key: "counter/c", op: "count", amount: 2, outcome: granted, value: 2, start: 0, end: 1},
		{key: "counter/c", op: "value", outcome: granted, value: 4, final: true, start: 2, end: 3},
	}},
	{"an event is forgotten", eventsStay, []recordedCall{
		{key: "event/e", op: "send", message: "m", outcome: granted, start: 0, end: 1},
		{key: "event/e", op: "wait", outcome: refused, start: 2, end: 3},
	}},
	{"a bucket gives too much", ratesAreKept, []recordedCall{
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

func TestTheJudgeFindsWhatIsForgotten(t *testing.T) {
	t.Parallel()
	for _, b := range others {
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
