package gatehouse_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// limiters are the kinds that limit a rate.
func limiters() []gatehouse.Kind {
	return []gatehouse.Kind{
		gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.FixedWindow,
		gatehouse.SlidingWindow, gatehouse.SlidingLog, gatehouse.Pace,
	}
}

func TestLimiterOperations(t *testing.T) {
	ops := []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve, gatehouse.OpCancel,
		gatehouse.OpRefund, gatehouse.OpCharge, gatehouse.OpReset, gatehouse.OpStats, gatehouse.OpDelete,
	}
	for kind := range gatehouse.Kind(gatehouse.Kinds) {
		limiter := slices.Contains(limiters(), kind)
		if kind.Limiter() != limiter {
			t.Errorf("%s: limiter %t, want %t", kind, kind.Limiter(), limiter)
		}
		for _, op := range ops {
			if limiter && !kind.Has(op) {
				t.Errorf("%s has no %s", kind, op)
			}
		}
		// A grant is peeked too, by a command of its own.
		peeks := kind.Has(gatehouse.OpPeek) && kind != gatehouse.Grant
		if !limiter && (peeks || kind.Has(gatehouse.OpReserve)) {
			t.Errorf("%s has operations of a limiter", kind)
		}
	}
	for _, op := range ops {
		if waits := op == gatehouse.OpAcquire; op.Waits() != waits {
			t.Errorf("%s waits: %t, want %t", op, op.Waits(), waits)
		}
		yields := op == gatehouse.OpAcquire || op >= gatehouse.OpPeek && op <= gatehouse.OpReserve
		if op.Yields() != yields {
			t.Errorf("%s yields: %t, want %t", op, op.Yields(), yields)
		}
	}
}

// checks are what limiters are asked: ten a second, two at once, a burst of nine beyond the first, but for
// what the words say. "bare" stands for nothing but the operation. The kinds are all, or some names.
var checks = []struct {
	kinds string
	op    gatehouse.Op
	words string
	want  string // part of the error, "" when there is none
}{
	{"all", gatehouse.OpAcquire, "", ""},
	{"all", gatehouse.OpAcquire, "interval=0s", "Interval is 0s"},
	{"all", gatehouse.OpPeek, "interval=-1ns", "Interval is -1ns"},
	{"all", gatehouse.OpAcquire, "interval=876000h burst=0 cost=1", ""},
	{"all", gatehouse.OpReserve, "interval=876000h1ns", "Interval is 876000h"},
	{"all", gatehouse.OpAcquire, "size=0", ""},
	{"all", gatehouse.OpReserve, "size=-1", "Size is -1"},
	{"all", gatehouse.OpAcquire, "size=999999999999999 interval=1000000s", ""},
	{"all", gatehouse.OpAcquire, "size=1000000000000000", "Size is 1000000000000000"},
	{"all", gatehouse.OpAcquire, "cost=0", "Cost is 0, want 1 to"},
	{"all", gatehouse.OpReserve, "cost=0", "Cost is 0, want 1 to"},
	{"all", gatehouse.OpDelay, "cost=0", "Cost is 0, want 1 to"},
	{"all", gatehouse.OpPeek, "cost=0", ""},
	{"all", gatehouse.OpPeek, "cost=-1", "Cost is -1, want 0 to"},
	{"all", gatehouse.OpAcquire, "cost=10", ""},
	{"all", gatehouse.OpAcquire, "cost=11", "cost 11 can never fit a size of 10"},
	{"all", gatehouse.OpDelay, "cost=11", "can never fit"},
	{"all", gatehouse.OpAcquire, "size=0 cost=10", ""},
	// The limit in force is not known here.
	{"all", gatehouse.OpPeek, "bare cost=99", ""},
	{"all", gatehouse.OpDelay, "bare cost=99", ""},
	{"all", gatehouse.OpAcquire, "bare cost=1", "Interval is 0s"},
	{"all", gatehouse.OpAcquire, "interval=0s calendar=month", ""},
	{"all", gatehouse.OpAcquire, "calendar=none", "Calendar is"},
	// A GCRA lets burst and one through at once, whatever its rate.
	{"gcra", gatehouse.OpAcquire, "size=1 cost=10", ""},
	{"gcra", gatehouse.OpAcquire, "size=100 cost=11", "cost 11 can never fit a size of 10"},
	{"gcra", gatehouse.OpAcquire, "burst=-1", "Burst is -1"},
	{"gcra", gatehouse.OpAcquire, "size=1000000000 burst=999999999999998", ""},
	{"gcra", gatehouse.OpAcquire, "burst=999999999999999", "Burst is 999999999999999"},
	{"gcra", gatehouse.OpAcquire, "size=1000000000", ""},
	{"gcra", gatehouse.OpAcquire, "size=1000000001", "more than one per nanosecond"},
	{"gcra", gatehouse.OpAcquire, "size=1 interval=87600h burst=9", ""},
	{"gcra", gatehouse.OpAcquire, "size=1 interval=87600h burst=10", "more than 100 years"},
	{"tokenbucket gcra fixedwindow slidinglog", gatehouse.OpAcquire, "mode=1", "Mode is fine"},
	{"slidingwindow", gatehouse.OpAcquire, "mode=1", ""},
	{"slidingwindow", gatehouse.OpPeek, "mode=2", ""},
	{"slidingwindow", gatehouse.OpAcquire, "mode=3", "Mode is paced"},
	{"pace", gatehouse.OpReserve, "mode=4", ""},
	{"pace", gatehouse.OpPeek, "mode=2", "Mode is strict"},
	{"all", gatehouse.OpAcquire, "mode=99", "Mode is"},
	{"pace", gatehouse.OpReserve, "guard=876000h", ""},
	{"pace", gatehouse.OpReserve, "guard=-1ns", "Guard is -1ns"},
	{"all", gatehouse.OpAcquire, "limits=10/1s,20/1m,30/month", ""},
	{"all", gatehouse.OpAcquire, "limits=10/1s,20/1m size=-1 interval=-1s", ""},
	{"all", gatehouse.OpAcquire, "limits=10/1s", ""},
	{"all", gatehouse.OpAcquire, "limits=10/1s,1/1m,30/month", "cost 2 can never fit a size of 1"},
	{"all", gatehouse.OpAcquire, "limits=10/1s,0/1m,30/month", ""},
	{"gcra", gatehouse.OpAcquire, "limits=10/1ns,20/1m", "more than one per nanosecond"},
	{"all", gatehouse.OpCancel, "bare key=k", ""},
	{"all", gatehouse.OpCancel, "bare", "Holder of 0 bytes"},
	{"all", gatehouse.OpRefund, "bare cost=999999999999999", ""},
	{"all", gatehouse.OpRefund, "bare cost=0", "Cost is 0"},
	{"all", gatehouse.OpReset, "bare", ""},
	// A charge may be for more than fits at once.
	{"all", gatehouse.OpCharge, "cost=999999999999999", ""},
	{"all", gatehouse.OpCharge, "size=0 cost=7", ""},
	{"all", gatehouse.OpCharge, "cost=0", "Cost is 0, want 1 to"},
	{"all", gatehouse.OpCharge, "interval=0s", "Interval is 0s"},
	{"all", gatehouse.OpCharge, "bare cost=1", "Interval is 0s"},
	// Whoever leaves the limit as it is says so.
	{"all", gatehouse.OpAcquire, "bare cost=99 size=inforce", ""},
	{"all", gatehouse.OpReserve, "bare cost=99 size=inforce mode=99", ""},
	{"all", gatehouse.OpCharge, "bare cost=99 size=inforce", ""},
	{"all", gatehouse.OpPeek, "bare cost=99 size=inforce", ""},
	{"all", gatehouse.OpAcquire, "bare cost=0 size=inforce", "Cost is 0"},
}

// build makes the command that the words of a check stand for.
func build(t *testing.T, op gatehouse.Op, words string) gatehouse.Command {
	t.Helper()
	cmd := gatehouse.Command{Op: op, Rule: gatehouse.Rule{Size: 10, Interval: time.Second, Burst: 9}, Cost: 2}
	for word := range strings.FieldsSeq(words) {
		field, value, _ := strings.Cut(word, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		length, _ := time.ParseDuration(value)
		switch field {
		case "bare":
			cmd = gatehouse.Command{Op: op}
		case "size":
			if cmd.Size = number; value == "inforce" {
				cmd.Size = gatehouse.InForce
			}
		case "cost":
			cmd.Cost = number
		case "burst":
			cmd.Burst = number
		case "interval":
			cmd.Interval = length
		case "guard":
			cmd.Guard = length
		case "mode":
			cmd.Mode = gatehouse.Mode(number) //nolint:gosec // a small one
		case "key":
			cmd.Holder = value
		case "calendar":
			if cmd.Calendar, _ = gatehouse.ParseCalendar(value); value == "none" {
				cmd.Calendar = gatehouse.Month + 1
			}
		case "limits":
			var err error
			if cmd.Limits, err = gatehouse.ParseLimits(value); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%s is no field", field)
		}
	}
	return cmd
}

func TestCheckLimiters(t *testing.T) {
	for _, c := range checks {
		for _, kind := range limiters() {
			if c.kinds != "all" && !slices.Contains(strings.Fields(c.kinds), kind.String()) {
				continue
			}
			cmd := build(t, c.op, c.words)
			checkOne(t, kind, cmd, c.want)
		}
	}
}

func checkOne(t *testing.T, kind gatehouse.Kind, cmd gatehouse.Command, want string) {
	t.Helper()
	err := cmd.Check(gatehouse.Key{Kind: kind, Name: "x"})
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: Check(%+v) = %v, want none", kind, cmd, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: Check(%+v) = %v, want %s", kind, cmd, err, want)
	case err != nil && gatehouse.CodeOf(err) != gatehouse.CodeInvalid:
		t.Errorf("%s: Check(%+v): code %s, want invalid", kind, cmd, gatehouse.CodeOf(err))
	}
}

// TestCheckLimits: lists of limits that no text stands for.
func TestCheckLimits(t *testing.T) {
	for want, list := range map[string][]gatehouse.Limit{
		"limits has 9/1s after 9/1m":     {{Size: 9, Interval: 60_000_000_000}, {Size: 9, Interval: 1e9}},
		"limits has 9/0s, want a window": {{Size: 9}},
		"limits has -9/1ns, want a size": {{Size: -9, Interval: 1}},
		"limits are 9, want at most 8":   make([]gatehouse.Limit, gatehouse.MaxLimits+1),
	} {
		for _, kind := range limiters() {
			rule := gatehouse.Rule{Limits: gatehouse.NewLimitList(list...)}
			checkOne(t, kind, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Rule: rule}, want)
		}
	}
	long := gatehouse.Command{
		Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1,
	}
	long.Holder = strings.Repeat("k", gatehouse.MaxHolder)
	checkOne(t, gatehouse.Pace, long, "")
	long.Holder += "k"
	checkOne(t, gatehouse.Pace, long, "Holder of 513 bytes")
}
