package params

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

func TestFeedback(t *testing.T) {
	for query, want := range map[string]gatehouse.Feedback{
		"status=429": {Status: 429},
		"status=429&retry-after=&remaining=&reset=":    {Status: 429},
		"Status=503&RETRY-AFTER=5000":                  {Status: 503, RetryAfter: 5 * time.Second},
		"status=200&remaining=0&reset=+7":              {Status: 200, Reset: 7 * time.Millisecond},
		"status=200&remaining=5&reset=1000":            {Status: 200, Remaining: 5, Reset: time.Second},
		"status=200&reset=1000":                        {Status: 200},
		"status=599&retry-after=0&remaining=1&reset=0": {Status: 599, Remaining: 1},
	} {
		cmd := mustRead(t, gatehouse.GCRA, gatehouse.OpFeedback, query)
		if *cmd.Feedback != want || cmd.Size != gatehouse.InForce {
			t.Errorf("%s = %+v with a size of %d, want %+v and the limit in force",
				query, *cmd.Feedback, cmd.Size, want)
		}
		if err := cmd.Check(gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	cmd := mustRead(t, gatehouse.Pace, gatehouse.OpFeedback, "status=429&size=3&interval=1000")
	if cmd.Size != 3 || cmd.Interval != time.Second {
		t.Errorf("a report with a limit has %+v", cmd.Rule)
	}
	if cmd := mustRead(t, gatehouse.Pace, gatehouse.OpAcquire, "status=429&reset=3"); cmd.Feedback != nil {
		t.Errorf("an acquire has a feedback of %+v", *cmd.Feedback)
	}
}

func TestFeedbackRefused(t *testing.T) {
	for query, want := range map[string]string{
		"":                                 "status is missing, want that of the third party's answer",
		"retry-after=5":                    "status is missing",
		"status=600":                       `status is "600", want a whole number from 100 to 599`,
		"status=429&retry-after=1s":        `write retry-after=1000 for 1s`,
		"status=429&reset=-1":              `reset is "-1", want a whole number of milliseconds from 0 to`,
		"status=200&remaining=5":           `remaining is "5" without a reset`,
		"status=200&remaining=-5&reset=10": `remaining is "-5", want a whole number from 0 to`,
	} {
		_, err := read(gatehouse.GCRA, gatehouse.OpFeedback, query)
		if gatehouse.CodeOf(err) != gatehouse.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q = %v, want it refused: %s", query, err, want)
		}
	}
}
