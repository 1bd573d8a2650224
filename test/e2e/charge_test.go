package e2e

import "testing"

// What was spent already is charged: it is always taken, and what is not free is a debt.
var charges = []script{
	{"a charge takes what is free, and what is not free is repaid later", `
		KIND/{}/acquire?size=5&LONG&cost=3 -> 204
		KIND/{}/charge?cost=4 -> 204 "" [RateLimit: "KIND";r=0;t=…] [RateLimit-Policy: "KIND";q=5;w=8640000]
		KIND/{}/stats -> 200 …"acquired":2,…"available":0…"debt":2…
		KIND/{}/acquire?maxwait=0 -> 408 [Retry-After: …] [RateLimit: "KIND";r=0;t=…]
		KIND/{}/delay -> 200
		KIND/{}/charge?cost=40 -> 204 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/stats -> 200 …"debt":42…`},
	{"a charge of what is free leaves no debt", `
		KIND/{}/charge?size=5&LONG&cost=2 -> 204 [RateLimit: "KIND";r=3;t=…]
		KIND/{}/charge -> 204 [RateLimit: "KIND";r=2;t=…]
		2x KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/acquire?maxwait=0 -> 408
		KIND/{}/stats -> 200 {"acquired":4,…`},
	{"a refund lowers the debt first", `
		KIND/{}/charge?size=5&LONG&cost=12 -> 204 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/refund?cost=6 -> 204 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/stats -> 200 …"debt":1…
		KIND/{}/refund?cost=3 -> 204 [RateLimit: "KIND";r=2;t=…]
		2x KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/acquire?maxwait=0 -> 408`},
	{"a reset ends the debt", `
		KIND/{}/charge?size=5&LONG&cost=500 -> 204
		KIND/{}/reset -> 204 [RateLimit: "KIND";r=5;t=…]
		5x KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/acquire?maxwait=0 -> 408`},
	{"places that were reserved before stay, and the debt is behind them", `
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		KIND/{}/reserve?key=mine -> 200
		KIND/{}/charge?cost=7 -> 204
		KIND/{}/stats -> 200 …"reserved":1,"debt":7…
		KIND/{}/cancel?key=mine -> 204
		KIND/{}/stats -> 200 …"debt":7…`},
	{"a charge needs a limit, in the request or in force", `
		KIND/{}/charge -> 404 KIND/{} does not exist
		KIND/{}/charge?cost=7 -> 404
		KIND/{}/stats -> 404
		KIND/{}/charge?size=1&LONG -> 204
		KIND/{}/charge?cost=0 -> 400`},
	{"a charge that could not be repaid is refused, and takes nothing", `
		KIND/{}/charge?size=0&LONG&cost=3 -> 409 KIND/{} has a size of 0, under which nothing is ever repaid
		KIND/{}/charge?size=3&interval=60000&cost=3004 -> 409 KIND/{} would be in debt by 1001 pieces of 3; …
		KIND/{}/peek?size=3&interval=60000&cost=3 -> 204
		KIND/{}/charge?size=3&interval=60000&cost=3003 -> 204
		KIND/{}/charge -> 409
		KIND/{}/refund?cost=3003 -> 204 [RateLimit: "KIND";r=3;t=…]
		KIND/{}/charge?size=3&interval=3153600000000&cost=9 -> 409 …would be in debt for more than 100 years
		KIND/{}/peek?size=3&interval=60000&cost=3 -> 204`},
	{"a charge passes those who wait", `
		KIND/{}/acquire?size=2&LONG&cost=2 -> 204
		w1: KIND/{}/acquire?size=2&LONG
		KIND/{}/charge -> 204
		KIND/{}/refund -> 204
		KIND/{}/refund -> 204
		w1 -> 204`},
	{"many small charges are one debt", `
		KIND/{}/acquire?size=1000&LONG&cost=1000 -> 204
		1200x KIND/{}/charge -> 204
		KIND/{}/stats -> 200 …"debt":1200…`},
}

func TestCharges(t *testing.T) {
	t.Parallel()
	playLimiters(t, limiters, charges)
}

// Requests that leave the limit as it is.
var inForce = []script{
	{"without any parameter of a limit the one in force judges", `
		KIND/{}/acquire?size=3&LONG -> 204
		KIND/{}/acquire -> 204 [RateLimit: "KIND";r=1;t=…] [RateLimit-Policy: "KIND";q=3;w=8640000]
		KIND/{}/reserve?key=k -> 200 0 [RateLimit: "KIND";r=0;t=…]
		KIND/{}/acquire?cost=4 -> 409 KIND/{} lets fewer through at once than this request wants
		KIND/{}/reserve?cost=4 -> 409
		KIND/{}/acquire?maxwait=0&key=k&id=x&size= -> 408 [RateLimit-Policy: "KIND";q=3;w=8640000]
		KIND/{}/stats -> 200 …"size":3,…`},
	{"a name that is new has 1 per second", `
		KIND/{}/acquire -> 204 [RateLimit-Policy: "KIND";q=1;w=1]
		KIND/{}-x/acquire?cost=2 -> 400 KIND/{}-x is new, and a cost of 2 can never fit its size of 1: …
		KIND/{}-x/reserve?cost=2 -> 400
		KIND/{}-x/stats -> 404`},
	{"any of them means what it means alone", `
		KIND/{}/acquire?size=3&LONG -> 204
		KIND/{}/acquire?LONG&maxwait=0 -> 408 [RateLimit-Policy: "KIND";q=1;w=8640000]
		KIND/{}-x/acquire?limits=5/2400h -> 204 [RateLimit-Policy: "KIND";q=5;w=8640000]
		KIND/{}-x/peek?cost=0 -> 204 [RateLimit-Policy: "KIND";q=5;w=8640000]
		KIND/{}-x/acquire?zone=UTC&maxwait=0&cost=2 -> 400 KIND/{}-x: cost 2 can never fit a size of 1`},
	{"several limits stay in force", `
		KIND/{}/acquire?limits=3/24h,4/2400h -> 204
		2x KIND/{}/acquire -> 204 [RateLimit-Policy: "3/24h";q=3;w=86400, "4/2400h";q=4;w=8640000]
		KIND/{}/charge?cost=5 -> 204 [RateLimit: …;r=0;t=…, …;r=0;t=…]
		KIND/{}/acquire?maxwait=0 -> 408`},
	{"a size of 0 still stops", `
		KIND/{}/acquire?size=0&LONG&maxwait=0 -> 408
		KIND/{}/acquire?maxwait=0 -> 408
		KIND/{}/acquire?size=1&LONG&maxwait=0 -> 204`},
}

func TestLimitInForce(t *testing.T) {
	t.Parallel()
	playLimiters(t, limiters, inForce)
}

var holdsInForce = []script{
	{"a semaphore keeps the size in force when a request gives none", `
		semaphore/{}/acquire?size=3&key=a -> 200 a
		semaphore/{}/acquire?key=b -> 200 b [RateLimit: "semaphore";r=1] [RateLimit-Policy: "semaphore";q=3;…]
		semaphore/{}/acquire?key=b&size= -> 200 b [RateLimit: "semaphore";r=1]
		semaphore/{}/acquire?key=c&cost=2&maxwait=0 -> 408
		semaphore/{}/acquire?key=c&cost=4&maxwait=0 -> 409 …has a size below the cost of this request
		semaphore/{}/acquire?key=c&size=2&maxwait=0 -> 408 [RateLimit-Policy: "semaphore";q=2;…]
		semaphore/{}/stats -> 200 …"size":2,…`},
	{"a semaphore that is new has size 1", `
		semaphore/{}/acquire?key=a -> 200 a [RateLimit-Policy: "semaphore";q=1;…]
		semaphore/{}/acquire?key=b&maxwait=0 -> 408
		semaphore/{}-x/acquire?key=a&cost=2 -> 400 semaphore/{}-x is new, and a cost of 2 can never fit…
		semaphore/{}-x/acquire?key=a&size=2&cost=2 -> 200 a
		semaphore/{}-y/acquire?key=a&size=0&maxwait=0 -> 408
		semaphore/{}-y/acquire?key=a&maxwait=0 -> 408  # 0 still stops`},
	{"an answer tells how long the hold lasts", `
		lock/{}/acquire?key=a&expires=3600000 -> 200 a [Gatehouse-Expires: 3600000]
		lock/{}/renew?key=a&expires=7200000 -> 204 [Gatehouse-Expires: 7200000]
		lock/{}/renew?key=a -> 204 [Gatehouse-Expires: 7200000]
		lock/{}/acquire?key=a -> 200 a [Gatehouse-Expires: ~7200000]
		lock/{}/acquire?key=a&extend=true&expires=9000000 -> 200 a [Gatehouse-Expires: 9000000]
		lock/{}/acquire?key=a&extend=false&expires=1 -> 200 a [Gatehouse-Expires: ~9000000]
		lock/{}/acquire?key=a&extend=true -> 200 a [Gatehouse-Expires: 9000000]
		lock/{}/renew?key=a&expires=0 -> 204 [Gatehouse-Expires: -]
		lock/{}/acquire?key=a -> 200 a [Gatehouse-Expires: -]
		lock/{}/acquire?key=a&extend=yes -> 400 extend is "yes", want true or false
		lock/{}/release?key=a -> 204 [Gatehouse-Expires: -]`},
	{"so it is with a semaphore", `
		semaphore/{}/acquire?size=2&key=a&expires=3600000 -> 200 a [Gatehouse-Expires: 3600000]
		semaphore/{}/acquire?key=b&extend=true -> 200 b [Gatehouse-Expires: 60000]
		semaphore/{}/acquire?key=a&extend=true&expires=60000 -> 200 a [Gatehouse-Expires: 60000]`},
	{"a hold that was extended does not end before", `
		lock/{}/acquire?key=a&expires=1000 -> 200 a
		lock/{}/acquire?key=a&expires=3600000&extend=true -> 200 a [Gatehouse-Fence: …]
		lock/{}/acquire?key=b&maxwait=1200 -> 408
		lock/{}-x/acquire?key=a&expires=1000 -> 200 a
		lock/{}-x/acquire?key=a&expires=3600000 -> 200 a
		lock/{}-x/acquire?key=b&maxwait=60000 -> 200 b`},
}

func TestHoldsInForce(t *testing.T) {
	t.Parallel()
	play(t, holdsInForce)
}
