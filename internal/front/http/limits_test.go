package http

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// told are the fields that a decision leads to.
type told struct{ policy, limit, retry string }

func tell(key gatehouse.Key, op gatehouse.Op, d *gatehouse.Decision) told {
	var resp fasthttp.Response
	h := &resp.Header
	h.DisableNormalizing() // to find what is spelled otherwise than the library would
	r := responder{key: key, op: op}
	r.writeDecision(&resp, d, nil)
	return told{
		string(h.Peek("RateLimit-Policy")), string(h.Peek("RateLimit")), string(h.Peek("Retry-After")),
	}
}

// Short for what stands in the tables.
const (
	ms     = time.Millisecond
	s      = time.Second
	m      = time.Minute
	ever   = gatehouse.Forever
	no     = gatehouse.Refused
	yes    = gatehouse.Granted
	big    = gatehouse.MaxSize
	eon    = gatehouse.MaxDuration
	eonSec = "3153600000"
)

func TestLimitFields(t *testing.T) {
	for _, c := range []struct {
		fact string
		kind gatehouse.Kind
		d    gatehouse.Decision
		want told
	}{
		{"a grant tells when all is back", gatehouse.TokenBucket,
			gatehouse.Decision{Outcome: yes, Limit: 5, Remaining: 4, Interval: m, ResetAfter: 1500 * ms},
			told{`"tokenbucket";q=5;w=60`, `"tokenbucket";r=4;t=2`, ""}},
		{"a refusal tells when to try again", gatehouse.TokenBucket,
			gatehouse.Decision{Outcome: no, Limit: 5, Interval: s, ResetAfter: 1, RetryAfter: 2*s + 1},
			told{`"tokenbucket";q=5;w=1`, `"tokenbucket";r=0;t=3`, "3"}},
		{"at once is a second, for there are no fractions", gatehouse.SlidingLog,
			gatehouse.Decision{Outcome: no, Limit: 5, Interval: s, RetryAfter: 1},
			told{`"slidinglog";q=5;w=1`, `"slidinglog";r=0;t=1`, "1"}},
		{"nobody knows when", gatehouse.Pace,
			gatehouse.Decision{Outcome: no, Interval: s, ResetAfter: s, RetryAfter: ever},
			told{`"pace";q=0;w=1`, `"pace";r=0`, ""}},
		{"size 0 never has more", gatehouse.Pace,
			gatehouse.Decision{Outcome: yes, Interval: s, ResetAfter: s},
			told{`"pace";q=0;w=1`, `"pace";r=0`, ""}},
		{"all is there already", gatehouse.FixedWindow,
			gatehouse.Decision{Outcome: yes, Limit: 5, Remaining: 5, Interval: s},
			told{`"fixedwindow";q=5;w=1`, `"fixedwindow";r=5;t=0`, ""}},
		{"a window that is no whole second is not told", gatehouse.FixedWindow,
			gatehouse.Decision{Outcome: yes, Limit: 5, Remaining: 5, Interval: 60*s + 1},
			told{`"fixedwindow";q=5`, `"fixedwindow";r=5;t=0`, ""}},
		{"a GCRA's is, though its steps are cut to nanoseconds", gatehouse.GCRA,
			gatehouse.Decision{Outcome: yes, Limit: 3, Remaining: 2, Interval: 3 * (s / 3), ResetAfter: 1},
			told{`"gcra";q=3;w=1`, `"gcra";r=2;t=1`, ""}},
		{"half a second is none", gatehouse.GCRA,
			gatehouse.Decision{Outcome: yes, Limit: 3, Remaining: 2, Interval: 500 * ms, ResetAfter: s},
			told{`"gcra";q=3`, `"gcra";r=2;t=1`, ""}},
		{"the largest numbers", gatehouse.SlidingWindow,
			gatehouse.Decision{Outcome: no, Limit: big, Remaining: big, Interval: eon, RetryAfter: eon},
			told{`"slidingwindow";q=999999999999999;w=` + eonSec,
				`"slidingwindow";r=999999999999999;t=` + eonSec, eonSec}},
		{"slots have no window", gatehouse.Semaphore,
			gatehouse.Decision{Outcome: no, Limit: 3, RetryAfter: s},
			told{`"semaphore";q=3;qu="concurrent-requests"`, `"semaphore";r=0`, "1"}},
	} {
		key := gatehouse.Key{Kind: c.kind, Name: "n"}
		if got := tell(key, gatehouse.OpAcquire, &c.d); got != c.want {
			t.Errorf("%s:\ngot  %v\nwant %v", c.fact, got, c.want)
		}
	}
}

// Three limits, of which the second is a window of the calendar.
func three(first, second, third gatehouse.Window) []gatehouse.Window {
	first.Limit = gatehouse.Limit{Size: 10, Interval: s}
	second.Limit = gatehouse.Limit{Size: 50, Calendar: gatehouse.Day}
	third.Limit = gatehouse.Limit{Size: 90, Calendar: gatehouse.Month}
	return []gatehouse.Window{first, second, third}
}

func TestSeveralLimits(t *testing.T) {
	const policy = `"10/1s";q=10;w=1, "50/day";q=50;w=86400, "90/month";q=90`
	for _, c := range []struct {
		fact string
		d    gatehouse.Decision
		want told
	}{
		{"the least is first", gatehouse.Decision{Outcome: yes, Windows: three(
			gatehouse.Window{Remaining: 9, ResetAfter: 100 * ms},
			gatehouse.Window{Remaining: 4, ResetAfter: time.Hour},
			gatehouse.Window{Remaining: 4, ResetAfter: 48 * time.Hour})},
			told{policy, `"50/day";r=4;t=3600, "10/1s";r=9;t=1, "90/month";r=4;t=172800`, ""}},
		{"the longest refusal is first, though another has less", gatehouse.Decision{
			Outcome: no, RetryAfter: time.Hour, Windows: three(
				gatehouse.Window{RetryAfter: 100 * ms, ResetAfter: s},
				gatehouse.Window{Remaining: 3, ResetAfter: 8 * time.Hour},
				gatehouse.Window{Remaining: 2, RetryAfter: time.Hour, ResetAfter: 2 * time.Hour})},
			told{policy, `"90/month";r=2;t=3600, "10/1s";r=0;t=1, "50/day";r=3`, "3600"}},
		{"names are ASCII", gatehouse.Decision{Outcome: yes, Windows: []gatehouse.Window{
			{Limit: gatehouse.Limit{Size: 2, Interval: 1500 * time.Nanosecond}},
			{Limit: gatehouse.Limit{Size: 3, Interval: 90 * s}}}},
			told{`"2/1.5us";q=2, "3/1m30s";q=3;w=90`, `"2/1.5us";r=0;t=0, "3/1m30s";r=0;t=0`, ""}},
		{"for ever is longest", gatehouse.Decision{Outcome: no, RetryAfter: ever, Windows: three(
			gatehouse.Window{RetryAfter: eon}, gatehouse.Window{RetryAfter: ever}, gatehouse.Window{})},
			told{policy, `"50/day";r=0, "10/1s";r=0;t=` + eonSec + `, "90/month";r=0`, ""}},
	} {
		key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "n"}
		if got := tell(key, gatehouse.OpAcquire, &c.d); got != c.want {
			t.Errorf("%s:\ngot  %v\nwant %v", c.fact, got, c.want)
		}
	}
}

// What decides tells what is left; what does not, or was not decided, does not.
func TestWhoTellsLimits(t *testing.T) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			if kind.Has(op) {
				checkWhoTells(t, kind, op)
			}
		}
	}
}

func checkWhoTells(t *testing.T, kind gatehouse.Kind, op gatehouse.Op) {
	t.Helper()
	want := op == gatehouse.OpAcquire ||
		kind.Limiter() && op != gatehouse.OpStats && op != gatehouse.OpDelete && op != gatehouse.OpBump &&
			op != gatehouse.OpHolders && op != gatehouse.OpWaiters
	for outcome := gatehouse.Refused; outcome <= gatehouse.Exhausted; outcome++ {
		got := tell(gatehouse.Key{Kind: kind, Name: "n"}, op, &gatehouse.Decision{Outcome: outcome})
		if tells := got.policy != "" && got.limit != ""; tells != (want && outcome <= yes) {
			t.Errorf("%s %s %s tells %v", kind, op, outcome, got)
		}
	}
}

// The sentence and the problem both name the limits that refuse.
func TestRefusalsNameTheLimit(t *testing.T) {
	key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "n"}
	for _, c := range []struct {
		op      gatehouse.Op
		windows []gatehouse.Window
		want    string
		json    string
	}{
		{gatehouse.OpAcquire, nil, "gcra/n: acquire not granted at once; try again in 2 ms",
			`"violated-policies":["gcra"]}`},
		{gatehouse.OpPeek, nil, "gcra/n: peek not granted; try again in 2 ms",
			`"violated-policies":["gcra"]}`},
		{gatehouse.OpReserve,
			three(gatehouse.Window{}, gatehouse.Window{RetryAfter: ms}, gatehouse.Window{}),
			"gcra/n: reserve not granted: 50/day allows no more; try again in 2 ms",
			`"violated-policies":["50/day"]}`},
		{gatehouse.OpAcquire,
			three(gatehouse.Window{RetryAfter: ms}, gatehouse.Window{RetryAfter: ever}, gatehouse.Window{}),
			"gcra/n: acquire not granted at once: 10/1s and 50/day allow no more; " +
				"try again in 2 ms",
			`"violated-policies":["10/1s","50/day"]}`},
		{gatehouse.OpAcquire, three(gatehouse.Window{}, gatehouse.Window{Remaining: 1}, gatehouse.Window{}),
			"gcra/n: acquire not granted at once: 10/1s allows no more; try again in 2 ms",
			`"violated-policies":["10/1s"]}`},
	} {
		d := gatehouse.Decision{Outcome: no, RetryAfter: ms + 1, Windows: c.windows}
		r := responder{key: key, op: c.op}
		var resp fasthttp.Response
		r.writeDecision(&resp, &d, nil)
		if got := string(resp.Body()); got != c.want {
			t.Errorf("%s %v = %s, want %s", c.op, c.windows, got, c.want)
		}
		r.wantsJSON = true
		r.writeDecision(&resp, &d, nil)
		want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":408,` +
			`"detail":"` + c.want + `","code":"refused","retry_after_ms":2,` + c.json
		if got := string(resp.Body()); got != want {
			t.Errorf("%s as JSON = %s, want %s", c.op, got, want)
		}
	}
}

// A limiter with one limit is asked and answered without garbage.
func TestAnsweringMakesNoGarbage(t *testing.T) {
	var resp fasthttp.Response
	var r httpRequest
	path, query := []byte("/v1/gcra/n/acquire"), []byte("size=5&interval=60000&cost=2&burst=9&maxwait=0")
	d := gatehouse.Decision{Outcome: yes, Limit: 10, Remaining: 4, Interval: m, ResetAfter: s}
	once := func() {
		if _, p := r.readRequest([]byte("GET"), path, query); p != nil {
			t.Fatal(p.detail)
		}
		reply := responder{key: r.Key, op: r.Command.Op}
		resp.Reset()
		reply.writeDecision(&resp, &d, nil)
	}
	// One is the name, which outlives the request.
	if n := testing.AllocsPerRun(100, once); n > 1 {
		t.Errorf("a request and its answer make %.0f allocations, want only the name's", n)
	}
}
