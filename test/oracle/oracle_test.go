package oracle

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// margin is how much earlier a hold may end in these histories, whose calls take 1 ns each. So one that is
// briefly held need not be held at all, and the others last for ever.
const margin = time.Second

// briefly is a call on a hold that ends soon.
func briefly(t tell) tell {
	t.cmd.Expires = margin
	return t
}

// waiting is a call that waits for a while.
func waiting(t tell) tell {
	t.cmd.MaxWait = time.Minute
	return t
}

func value(n int64) tell {
	t := count(0, n)
	t.cmd.Op = gatehouse.OpValue
	return t
}

// judged are short histories in which a promise is broken, or none is.
var judged = []struct {
	fact   string
	broken Promise
	losses []time.Duration
	told   []tell
}{
	{"held by two", RoomIsKept, nil, []tell{acquire("a", 1), acquire("b", 2)}},
	{"two of a semaphore", "", nil, []tell{pool(acquire("a", 1)), pool(acquire("b", 2))}},
	{"three of a semaphore of two", RoomIsKept, nil,
		[]tell{pool(acquire("a", 1)), pool(acquire("b", 2)), pool(acquire("c", 3))}},
	{"one may have released", "", nil, []tell{acquire("a", 1), lost(release("a", granted)), acquire("b", 2)}},
	{"the first has ended", "", nil, []tell{briefly(acquire("a", 1)), acquire("b", 2)}},
	{"a renewal puts off the end", RoomIsKept, nil,
		[]tell{briefly(acquire("a", 1)), renew("a", 1), acquire("b", 2)}},
	{"gone before its end", HoldsStay, nil, []tell{acquire("a", 1), renew("a", 0)}},
	{"gone, granted at the second try", HoldsStay, nil,
		[]tell{lost(acquire("a", 0)), acquire("a", 1), release("a", conflict)}},
	{"gone, found by a renewal", HoldsStay, nil, []tell{lost(acquire("a", 0)), renew("a", 1), renew("a", 0)}},
	{"of another too, found by a renewal", RoomIsKept, nil,
		[]tell{lost(acquire("a", 0)), renew("a", 1), acquire("b", 2)}},
	{"another hold is meant and released", HoldsStay, nil,
		[]tell{acquire("a", 6), ofFive(release("a", granted))}},
	{"another hold is meant and left", "", nil,
		[]tell{acquire("a", 6), ofFive(release("a", conflict)), renew("a", 6)}},
	{"released and renewed", ReleasesStay, nil,
		[]tell{acquire("a", 1), release("a", granted), renew("a", 1)}},
	{"released twice", ReleasesStay, nil,
		[]tell{acquire("a", 1), release("a", granted), release("a", granted)}},
	{"shared by its holder", "", nil,
		[]tell{acquire("a", 1), acquire("a", 1), release("a", granted), acquire("b", 2)}},
	{"two holds of one holder", HoldsStay, nil, []tell{acquire("a", 1), acquire("a", 2)}},
	{"a token falls", FencesRise, nil, []tell{acquire("a", 2), release("a", granted), acquire("b", 1)}},
	{"tokens at the same time", "", nil, []tell{briefly(acquire("a", 2)), overlapping(acquire("b", 1))}},
	{"a renewal has another token", FencesRise, nil, []tell{acquire("a", 1), renew("a", 2)}},
	{"a loss ends a hold", "", []time.Duration{2}, []tell{acquire("a", 1), acquire("b", 2), renew("a", 0)}},
	{"a loss takes the tokens", FencesRise, []time.Duration{2}, []tell{acquire("a", 2), acquire("b", 1)}},
	{"held by two after a loss", RoomIsKept, []time.Duration{1, 2},
		[]tell{acquire("z", 1), acquire("a", 2), acquire("b", 3)}},

	{"counts add up", "", nil, []tell{count(2, 2), lost(count(3, 0)), value(2), value(5)}},
	{"a count is lost", CountsStay, nil, []tell{count(2, 2), value(1)}},
	{"a count is lost with everything", "", []time.Duration{2}, []tell{count(2, 2), value(0)}},
	{"a count is there twice", CountsStay, nil, []tell{count(2, 2), value(4)}},
	{"a value falls", CountsStay, nil, []tell{lost(count(2, 0)), value(2), value(0)}},

	{"seen by who waits and who comes later", "", nil, []tell{waiting(event(wait, granted, "m")),
		overlapping(event(send, granted, "m")), event(wait, granted, "m")}},
	{"forgotten", EventsStay, nil, []tell{event(send, granted, "m"), event(wait, refused, "")}},
	{"lost with everything", "", []time.Duration{2},
		[]tell{event(send, granted, "m"), event(wait, refused, "")}},
	{"who waits is not told", EventsStay, nil,
		[]tell{waiting(event(wait, refused, "")), overlapping(event(send, granted, "m"))}},
	{"nobody sent it", EventsStay, nil, []tell{event(wait, granted, "m"), lost(event(send, granted, "m"))}},
	{"another message", EventsStay, nil,
		[]tell{lost(event(send, granted, "n")), event(send, granted, "m"), event(wait, granted, "n")}},
	{"sent twice", EventsStay, nil, []tell{event(send, granted, "m"), event(send, granted, "n")}},
}

// foundIn is what a judge finds in a history, with how often it put something to the test.
func foundIn(told []tell, losses []time.Duration) (found map[Promise]string, tested int) {
	var h History
	h.tell(told)
	found = make(map[Promise]string)
	judge := Judge{Losses: losses, Margin: margin, Tested: make(map[Promise]int),
		Report: func(p Promise, _ time.Duration, text string) { found[p] = text }}
	for _, calls := range h.keys {
		judge.Calls(calls)
	}
	for _, n := range judge.Tested {
		tested += n
	}
	return found, tested
}

// A judge reports the promise that is broken, and no other, and nothing of what Linear takes for right.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, test := range judged {
		found, tested := foundIn(test.told, test.losses)
		_, ok := found[test.broken]
		if len(found) > 1 || len(found) == 1 && !ok || ok != (test.broken != "") {
			t.Errorf("%s: broken are %q, want %q", test.fact, found, test.broken)
		}
		if tested == 0 {
			t.Errorf("%s: nothing was put to the test", test.fact)
		}
	}
	for _, test := range histories {
		if found, _ := foundIn(test.told, nil); test.right && len(found) > 0 {
			t.Errorf("%s: broken are %q, want nothing", test.name, found)
		}
	}
}

// What lies within a window counts in it, and nothing else.
func TestSpans(t *testing.T) {
	t.Parallel()
	spans := func(times ...int) (list []Span) { // in ms; each takes 1 ms
		for _, ms := range times {
			at := time.Duration(ms) * time.Millisecond
			list = append(list, Span{at, at + time.Millisecond, 1})
		}
		return list
	}
	two := func(time.Duration) int64 { return 2 }
	one := func(_, _ time.Duration) int64 { return 1 }
	refilled := func(length time.Duration) int64 { return 1 + int64(length/(490*time.Millisecond)) }
	for _, test := range []struct {
		fact  string
		spans []Span
		bound Bound
		right bool
	}{
		{"nothing", nil, Bound{Window: time.Second, Most: two}, true},
		{"three in a window of two", spans(0, 500, 998), Bound{Window: time.Second, Most: two}, false},
		{"the third may come later", spans(0, 500, 999), Bound{Window: time.Second, Most: two}, true},
		{"a window slides", spans(100, 900, 1050), Bound{Window: time.Second, Most: two}, false},
		{"or does not", spans(100, 900, 1050), Bound{Window: time.Second, Aligned: true, Most: two}, true},
		{"three do", spans(0, 500, 998), Bound{Window: time.Second, Aligned: true, Most: two}, false},
		{"one was given back", spans(0, 500, 998), Bound{Window: time.Second, Most: two, Slack: one}, true},
		{"three in all", spans(0, 500, 5000), Bound{Most: two}, false},
		{"as much as comes back", spans(0, 500, 999), Bound{Most: refilled}, true},
		{"more than comes back", spans(0, 400, 999), Bound{Most: refilled}, false},
	} {
		right := true
		judge := Judge{Report: func(Promise, time.Duration, string) { right = false }}
		judge.Spans(test.spans, test.bound)
		if right != test.right {
			t.Errorf("%s: right %t, want %t", test.fact, right, test.right)
		}
	}
	if got := MostWithin(spans(100, 900, 1050, 1800), time.Second); got != 3 {
		t.Errorf("MostWithin = %d, want 3", got)
	}
}
