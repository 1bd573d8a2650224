package e2e

import (
	"slices"
	"strings"
	"testing"
)

// limiters are the kinds that limit a rate. They answer the same questions.
var limiters = []string{"tokenbucket", "gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace"}

// playLimiters runs every script on some limiters, in the place of KIND. LONG is an interval that none of
// them outlives, and which no window's end is near: a hundred days.
func playLimiters(t *testing.T, kinds []string, scripts []script) {
	t.Helper()
	for _, kind := range kinds {
		for _, s := range scripts {
			t.Run(kind+": "+s.fact, func(t *testing.T) {
				t.Parallel()
				lines := strings.ReplaceAll(s.lines, "KIND", kind)
				playOn(t, shared(), strings.ReplaceAll(lines, "LONG", "interval=8640000000"))
			})
		}
	}
}

var everyLimiter = []script{
	{"so many in an interval, then refused", `
		3x KIND/{}/acquire?size=3&LONG -> 204 ""
		KIND/{}/acquire?size=3&LONG&maxwait=0 -> 408 KIND/{}: acquire not granted at once; try …
		KIND/{}/acquire?size=3&LONG&maxwait=100 -> 408 after 100ms`},
	{"headers tell the size and what is left", `
		KIND/{}/acquire?size=3&LONG -> 204 [RateLimit-Policy: "KIND";q=3;w=8640000] [Retry-After: -]
		KIND/{}/acquire?size=3&LONG&cost=2 -> 204 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/acquire?size=3&LONG&maxwait=0 -> 408 [RateLimit: "KIND";r=0;t=…] [Retry-After: …]`},
	{"a key is no reason for a body", `
		KIND/{}/acquire?size=3&LONG&key=k -> 204 ""`},
	{"with /v1 and without is one limiter", `
		/KIND/{}/acquire?LONG -> 204
		KIND/{}/peek -> 408
		/KIND/{}/peek -> 408`},
	{"a peek takes nothing, makes no name and sets no limit", `
		5x KIND/{}/peek?size=3&LONG -> 204 "" [RateLimit: "KIND";r=3;t=…]
		KIND/{}/peek?size=3&LONG -> 204 [RateLimit-Policy: "KIND";q=3;w=8640000]
		KIND/{}/stats -> 404
		KIND/{}/acquire?size=2&LONG -> 204
		KIND/{}/peek?size=1&LONG -> 408 KIND/{}: peek not granted; try … [RateLimit-Policy: "KIND";q=1;…]
		KIND/{}/stats -> 200 …"size":2,…"available":1…
		KIND/{}/peek -> 204 [RateLimit-Policy: "KIND";q=2;…]`},
	{"a peek without a limit asks about the one in force", `
		KIND/{}/peek -> 404 KIND/{} does not exist
		KIND/{}/acquire?size=3&LONG -> 204
		3x KIND/{}/peek?cost=2 -> 204 [RateLimit: "KIND";r=2;t=…]
		KIND/{}/peek?cost=3 -> 408 [Retry-After: …]
		KIND/{}/peek?cost=4 -> 409
		KIND/{}/peek?cost=0 -> 204
		KIND/{}/acquire?size=3&LONG&cost=2 -> 204
		KIND/{}/peek?cost=0 -> 204 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/peek -> 408`},
	{"a delay says when, and takes nothing", `
		KIND/{}/delay -> 404
		2x KIND/{}/delay?size=2&LONG&cost=2 -> 200 0 [Content-Type: text/plain; charset=utf-8]
		KIND/{}/delay?size=2&LONG&cost=2 -> 200 0 [RateLimit: …;r=2;t=…]
		KIND/{}/stats -> 404
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		KIND/{}/delay -> 200
		KIND/{}/delay?cost=0 -> 400
		KIND/{}/delay?size=0&LONG -> 408 KIND/{}: delay not granted; only another request can change that
		KIND/{}/delay?size=0&LONG -> 408 [Retry-After: -]`},
	{"a reservation takes its place, which can be given back", `
		KIND/{}/reserve?size=2&LONG -> 200 0 [RateLimit: "KIND";r=1;t=…]
		KIND/{}/reserve?size=2&LONG&cost=2&key=mine -> 200
		KIND/{}/acquire?size=2&LONG&maxwait=0 -> 408
		KIND/{}/peek -> 408
		KIND/{}/cancel?key=other -> 409 KIND/{} has no reservation of this key that lies ahead
		KIND/{}/cancel?key=mine -> 204 "" [RateLimit: "KIND";r=1;t=…]
		KIND/{}/cancel?key=mine -> 409
		KIND/{}/acquire?size=2&LONG&maxwait=0 -> 204
		KIND/{}/acquire?size=2&LONG&maxwait=0 -> 408`},
	{"what is reserved for now cannot be cancelled", `
		KIND/{}/reserve?LONG&key=mine -> 200 0
		KIND/{}/cancel?key=mine -> 409
		KIND/{}/cancel -> 400 key is missing, want the key that reserve was given
		KIND/{}-x/cancel?key=mine -> 404`},
	{"a key reserves one place", `
		KIND/{}/acquire?LONG -> 204
		KIND/{}/reserve?LONG&key=mine -> 200
		KIND/{}/stats -> 200 …"reserved":1…
		KIND/{}/reserve?LONG&key=mine -> 200
		KIND/{}/stats -> 200 …"reserved":1…
		KIND/{}/reserve?LONG&key=yours -> 200
		KIND/{}/stats -> 200 …"reserved":2…`},
	{"a size of 0 has no place to reserve", `
		KIND/{}/reserve?size=0&LONG -> 408 KIND/{}: reserve not granted; only another request can change that
		KIND/{}/reserve?size=0&LONG -> 408 [Retry-After: -] [RateLimit: "KIND";r=0]`},
	{"a refund gives back what was taken, and no more", `
		KIND/{}/refund -> 404
		KIND/{}/acquire?size=5&LONG&cost=4 -> 204
		KIND/{}/refund?cost=2 -> 204 "" [RateLimit: "KIND";r=3;t=…]
		KIND/{}/refund?cost=9 -> 204 [RateLimit: "KIND";r=5;t=…]
		KIND/{}/refund?cost=0 -> 400
		5x KIND/{}/acquire?size=5&LONG&maxwait=0 -> 204
		KIND/{}/acquire?size=5&LONG&maxwait=0 -> 408`},
	{"a reset forgets what was taken and reserved", `
		KIND/{}/reset -> 404
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		KIND/{}/reserve?size=2&LONG&key=mine -> 200
		KIND/{}/reset -> 204 "" [RateLimit: "KIND";r=2;t=…] [RateLimit-Policy: "KIND";q=2;w=8640000]
		KIND/{}/cancel?key=mine -> 409
		2x KIND/{}/acquire?size=2&LONG&maxwait=0 -> 204
		KIND/{}/acquire?size=2&LONG&maxwait=0 -> 408`},
	{"what is given back lets in who waits", `
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		w1: KIND/{}/acquire?size=2&LONG
		KIND/{}/refund -> 204
		w1 -> 204
		w2: KIND/{}/acquire?size=2&LONG
		w3: KIND/{}/acquire?size=2&LONG
		KIND/{}/reset -> 204
		w2 -> 204
		w3 -> 204`},
	{"nobody overtakes who waits", `
		KIND/{}/acquire?size=3&LONG&cost=2 -> 204
		w1: KIND/{}/acquire?size=3&LONG&cost=2
		KIND/{}/acquire?size=3&LONG&maxwait=0 -> 408
		KIND/{}/peek -> 408
		KIND/{}/reserve?size=3&LONG -> 408
		KIND/{}/refund -> 204 [RateLimit: "KIND";r=2;t=…]
		w1 -> 204
		KIND/{}/acquire?size=3&LONG&maxwait=0 -> 408`},
	{"who leaves the line takes nothing", `
		KIND/{}/acquire?size=2&LONG -> 204
		w1: KIND/{}/acquire?size=2&LONG&cost=2
		w1 hangs up
		KIND/{}/acquire?size=2&LONG&maxwait=0 -> 204`},
	{"a cost above the size can never fit", `
		KIND/{}/acquire?size=5&LONG&cost=6 -> 400 KIND/{}: cost 6 can never fit a size of 5
		KIND/{}/reserve?size=5&LONG&cost=6 -> 400
		KIND/{}/peek?size=5&LONG&cost=6 -> 400
		KIND/{}/stats -> 404`},
	{"who waits at a short interval goes with it", `
		4x KIND/{}/acquire?interval=400 -> 204`},
	{"size 0 stops it until another request opens it", `
		KIND/{}/acquire?size=0&LONG&maxwait=0 -> 408 …only another request can change that [Retry-After: -]
		w1: KIND/{}/acquire?size=0&LONG
		KIND/{}/acquire?size=3&LONG -> 204
		w1 -> 204`},
	{"a deleted one begins anew, and tells who waits", `
		KIND/{}/acquire?LONG -> 204
		w1: KIND/{}/acquire?LONG
		DELETE KIND/{} -> 204
		w1 -> 409 KIND/{} was deleted while this request waited
		KIND/{}/acquire?LONG&maxwait=0 -> 204`},
	{"other kinds have other operations", `
		KIND/{}/release?key=k -> 404
		KIND/{}/value -> 404
		PUT KIND/{}/reserve -> 405 [Allow: GET, POST, OPTIONS]
		OPTIONS KIND/{}/cancel -> 200 "" [Allow: GET, POST, OPTIONS]
		/V1/KIND/{}/Peek/?cost=0 -> 301 "" [Location: /v1/KIND/{}/peek?cost=0]`},
}

func TestEveryLimiter(t *testing.T) {
	t.Parallel()
	playLimiters(t, limiters, everyLimiter)
}

var severalLimits = []script{
	{"every limit must let it through, and the answer says which does not", `
		KIND/{}/acquire?limits=2/24h,3/2400h -> 204 [RateLimit-Policy: "2/24h";q=2;w=86400, "3/2400h";q=3;…]
		KIND/{}/acquire?limits=2/24h,3/2400h -> 204
		9x KIND/{}/acquire?limits=2/24h,3/2400h&maxwait=0 -> 408 …at once: 2/24h allows no more; try …
		KIND/{}/acquire?limits=2/24h,3/2400h&maxwait=0 -> 408 [RateLimit: "2/24h";r=0;t=…, "3/2400h";r=1]
		KIND/{}/stats -> 200 …"limits":"2/24h,3/2400h"…`},
	{"several may refuse at once, and the one that does so longest comes first", `
		KIND/{}/acquire?limits=2/24h,3/2400h&cost=2 -> 204
		KIND/{}/peek?cost=2 -> 408 …: peek not granted: 2/24h and 3/2400h allow no more; try again in … ms
		KIND/{}/peek?cost=2 -> 408 [RateLimit: "3/2400h";r=1;t=…, "2/24h";r=0;t=…]`},
	{"the order in which they are given does not count", `
		KIND/{}/acquire?limits=3/2400h,2/24h -> 204 [RateLimit-Policy: "2/24h";…, "3/2400h";…]
		KIND/{}/acquire?limits=2/24h,3/2400h -> 204
		KIND/{}/acquire?limits=3/2400h,2/24h&maxwait=0 -> 408`},
	{"a peek and a delay ask all of them", `
		KIND/{}/peek?limits=1/24h,3/2400h -> 204
		KIND/{}/stats -> 404
		KIND/{}/acquire?limits=2/24h,3/2400h -> 204
		KIND/{}/peek?limits=1/24h,3/2400h -> 408 KIND/{}: peek not granted: 1/24h allows no more; try …
		KIND/{}/peek -> 204
		KIND/{}/delay -> 200 0
		KIND/{}/delay?cost=2 -> 200`},
	{"a cost must fit all of them", `
		KIND/{}/acquire?limits=5/24h,4/2400h&cost=5 -> 400 KIND/{}: cost 5 can never fit a size of 4
		KIND/{}/acquire?limits=5/24h,4/2400h&cost=4 -> 204
		KIND/{}/peek?cost=5 -> 409`},
	{"a refund, a reset and a cancellation are for all of them", `
		KIND/{}/acquire?limits=2/24h,3/2400h&cost=2 -> 204
		KIND/{}/refund -> 204 [RateLimit: "2/24h";r=1;t=…, "3/2400h";r=2;t=…]
		KIND/{}/reserve?limits=2/24h,3/2400h&cost=2&key=mine -> 200
		KIND/{}/cancel?key=mine -> 204 [RateLimit: "2/24h";r=1;t=…, "3/2400h";r=2;t=…]
		KIND/{}/reset -> 204 [RateLimit: "2/24h";r=2;t=…, "3/2400h";r=3;t=…]`},
	{"a second limit joins the first, which goes on counting", `
		2x KIND/{}/acquire?size=5&interval=86400000 -> 204
		KIND/{}/acquire?limits=5/24h,9/2400h -> 204 [RateLimit: "5/24h";r=2;t=…, "9/2400h";r=8;t=…]
		KIND/{}/acquire?size=5&interval=86400000 -> 204 [RateLimit: "KIND";r=1;t=…]
		KIND/{}/acquire?size=5&interval=86400000&cost=2&maxwait=0 -> 408`},
	{"eight limits are the most", `
		KIND/{}/acquire?limits=1/1s,2/2s,3/3s,4/4s,5/5s,6/6s,7/7s,8/8s -> 204
		KIND/{}-x/acquire?limits=1/1s,2/2s,3/3s,4/4s,5/5s,6/6s,7/7s,8/8s,9/9s -> 400 limits are 9, want…`},
	{"one limit is as if it were given in parts", `
		KIND/{}/acquire?limits=2/2400h -> 204 [RateLimit-Policy: "KIND";q=2;w=8640000]
		KIND/{}/acquire?size=2&LONG -> 204 [RateLimit: "KIND";r=0;t=…]`},
}

func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	playLimiters(t, limiters, severalLimits)
}

// What was taken goes on counting when the limit is changed. Those are all but a GCRA, which remembers no
// number but a time.
var countedLimits = []script{
	{"a larger size lets in who waits, a smaller one tells who cannot fit", `
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		w1: KIND/{}/acquire?size=2&LONG&cost=2
		KIND/{}/acquire?size=5&LONG&maxwait=0 -> 408
		w1 -> 204
		w2: KIND/{}/acquire?size=5&LONG&cost=5
		KIND/{}/acquire?size=4&LONG&maxwait=0 -> 408
		w2 -> 409 KIND/{} …`},
	{"2 of 5 taken, then size 8: 6 more", `
		KIND/{}/acquire?size=5&LONG&cost=2 -> 204
		KIND/{}/peek?size=8&LONG&cost=6 -> 204
		KIND/{}/delay?size=8&LONG&cost=6 -> 200 0
		6x KIND/{}/acquire?size=8&LONG&maxwait=0 -> 204
		KIND/{}/acquire?size=8&LONG&maxwait=0 -> 408
		KIND/{}/acquire?size=3&LONG&maxwait=0 -> 408
		KIND/{}/acquire?size=10&LONG&maxwait=0&cost=2 -> 204`},
	{"one of several limits is changed, the others stay", `
		KIND/{}/acquire?limits=2/24h,3/2400h&cost=2 -> 204
		3x KIND/{}/acquire?limits=2/24h,3/2400h&maxwait=0 -> 408
		KIND/{}/acquire?limits=9/24h,3/2400h&maxwait=0 -> 204 [RateLimit: "3/2400h";r=0;t=…, "9/24h";r=6;t=…]
		KIND/{}/acquire?limits=9/24h,3/2400h&maxwait=0 -> 408 …: 3/2400h allows no more; …
		KIND/{}/acquire?limits=3/24h,3/2400h&maxwait=0 -> 408 …: 3/24h and 3/2400h allow no more; …`},
	{"who waits for one of several limits is let in when that is raised", `
		KIND/{}/acquire?limits=1/24h,9/2400h -> 204
		w1: KIND/{}/acquire?limits=1/24h,9/2400h
		KIND/{}/acquire?limits=2/24h,9/2400h&maxwait=0 -> 408
		w1 -> 204`},
}

func TestLimitsThatChange(t *testing.T) {
	t.Parallel()
	counted := slices.DeleteFunc(slices.Clone(limiters), func(kind string) bool { return kind == "gcra" })
	playLimiters(t, counted, countedLimits)
}
