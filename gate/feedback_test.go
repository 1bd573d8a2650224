package gate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// reportOf is a report to a limiter of 600 a minute.
func reportOf(f gatehouse.Feedback) gatehouse.Command {
	cmd := gatehouse.Command{Op: gatehouse.OpFeedback, Rule: perMinute(), Feedback: &f}
	return cmd
}

func perMinute() gatehouse.Rule { return gatehouse.Rule{Size: 600, Burst: 599, Interval: time.Minute} }

// A gate bounds the pause, and draws the jitter from the name. The caller's feedback stays as it is.
func TestFeedbackIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(memory.New(memory.Config{}), gate.Config{MaxPause: 20 * time.Second})
		pause := func(name string, f gatehouse.Feedback) time.Duration {
			cmd := reportOf(f)
			d, err := g.Do(t.Context(), gatehouse.Key{Kind: gatehouse.GCRA, Name: name}, cmd)
			if err != nil || d.Reported == nil || *cmd.Feedback != f {
				t.Fatalf("feedback %+v = %+v, %v, and it is %+v then", f, d, err, cmd.Feedback)
			}
			return d.Reported.PausedFor
		}
		report := gatehouse.Feedback{Status: 429, RetryAfter: 10 * time.Second}
		a, b, again := pause("a", report), pause("b", report), pause("a", report)
		if a == b || a != again || min(a, b) < 10*time.Second || max(a, b) > 11*time.Second {
			t.Errorf("pauses at a, b and a again are %s, %s and %s, want 10s to 11s, by the name",
				a, b, again)
		}
		report.RetryAfter = time.Hour
		if c := pause("c", report); c != 20*time.Second {
			t.Errorf("the longest pause is %s, want 20s", c)
		}
		report.MaxPause = time.Second
		if d := pause("d", report); d != time.Second {
			t.Errorf("the pause of a report with a longest one is %s, want 1s", d)
		}
		_, err := g.Do(t.Context(), gatehouse.Key{Kind: gatehouse.GCRA, Name: "e"},
			gatehouse.Command{Op: gatehouse.OpFeedback})
		if gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("a feedback without one = %v, want it to be invalid", err)
		}
	})
}

// Those who wait are held, not refused, and go in their order once the pause is over, as the ramp has room
// for them. Only a maxwait ends before.
func TestWaitersAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key := gate.New(memory.New(memory.Config{}), gate.Config{}), gatehouse.Key{
			Kind: gatehouse.SlidingLog, Name: "api",
		}
		full := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: perMinute(), Cost: 600}
		must(t, g, key, full)
		began, l := time.Now(), newLog()
		for _, name := range []string{"a", "b", "c"} {
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: perMinute(), Cost: 1, MaxWait: gatehouse.Forever,
			}
			submit(g, key, cmd, l.done(name))
		}
		hasty := full
		hasty.Cost, hasty.MaxWait = 1, 2*time.Second
		submit(g, key, hasty, l.done("hasty"))
		// They wait for a whole minute when the pause begins, and it is over before that: then for the ramp.
		d := must(t, g, key, reportOf(gatehouse.Feedback{Status: 429, RetryAfter: 55 * time.Second}))
		must(t, g, key, gatehouse.Command{Op: gatehouse.OpRefund, Cost: 600})
		synctest.Wait()
		time.Sleep(time.Until(began.Add(d.Reported.PausedFor)))
		synctest.Wait()
		l.wantOrder(t, "hasty")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		l.wantOrder(t, "hasty", "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			if l.get(name).outcome != gatehouse.Granted || l.get("hasty").outcome != gatehouse.Refused {
				t.Errorf("%s = %v, and who would not wait %v", name, l.get(name), l.get("hasty"))
			}
		}
	})
}
