package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// all is a query that has every parameter there is.
const all = "?size=2&cost=1&interval=60000&expires=60000&maxwait=0&key=k&message=m&amount=1&value=1&id=me" +
	"&burst=3&mode=fine&guard=5&zone=Europe/Berlin"

// parameters are the rules by which a query is read.
var parameters = []script{
	{"a key changes nothing about a token", `
		tokenbucket/{}/acquire` + all + ` -> 204`},
	{"a parameter that a call does not need does no harm", `
		semaphore/{}/acquire` + all + ` -> 200 k
		semaphore/{}/renew` + all + ` -> 204
		semaphore/{}/release` + all + ` -> 204
		lock/{}/acquire` + all + ` -> 200 k
		lock/{}/renew` + all + ` -> 204
		lock/{}/release` + all + ` -> 204
		event/{}/send` + all + ` -> 204
		event/{}/wait` + all + ` -> 204
		watchdog/{}/kick` + all + ` -> 204
		watchdog/{}/wait` + all + ` -> 408
		counter/{}/count` + all + ` -> 200 1
		counter/{}/value` + all + ` -> 200 1
		counter/{}/reset` + all + ` -> 204
		barrier/{}/wait` + all + ` -> 408
		counter/{}/stats` + all + ` -> 200
		DELETE counter/{}` + all + ` -> 204
		counter/{}/count?limits=10/1s,5/week -> 200 1
		counter/{}/count?interval=day -> 200 2`},
	{"an unknown parameter is refused, and creates nothing", `
		tokenbucket/{}/acquire?sizes=5 -> 400 parameter "sizes" is unknown, want one of size …
		semaphore/{}/acquire?key=k&ttl=5 -> 400
		lock/{}/acquire?whose=me -> 400
		event/{}/send?msg=m -> 400
		watchdog/{}/kick?timeout=5 -> 400
		counter/{}/count?by=5 -> 400
		counter/{}/reset?to=5 -> 400
		barrier/{}/wait?n=5 -> 400
		tokenbucket/{}/stats -> 404
		semaphore/{}/stats -> 404
		lock/{}/stats -> 404
		event/{}/stats -> 404
		watchdog/{}/stats -> 404
		counter/{}/stats -> 404
		barrier/{}/stats -> 404`},
	{"an unknown parameter changes nothing", `
		counter/{}/count -> 200 1
		counter/{}/count?amount=5&by=5 -> 400
		counter/{}/reset?by=5 -> 400
		counter/{}/value -> 200 1`},
	{"parameter names are percent-decoded", `
		counter/{}/count?%61mount=3 -> 200 3
		counter/{}/count?a%6DO%75nt=4&%69d=me -> 200 7
		semaphore/{}/acquire?%73ize=3&key=a&cost=3 -> 200 a
		semaphore/{}/acquire?s%69ze=3&k%65y=b&m%61xwait=0 -> 408`},
	{"letter case in parameter names does not count", `
		counter/{}/count?AMOUNT=3 -> 200 3
		event/{}/wait?maxWait=0 -> 408
		event/{}/send?Message=Text -> 204
		/event/{}/wait -> 200 Text  # in values it does`},
	{"the last of a repeated parameter counts", `
		counter/{}/count?amount=1&amount=5 -> 200 5
		counter/{}/count?amount=x&amount=5 -> 200 10  # a bad earlier one is not looked at
		counter/{}/count?amount=5&amount=x -> 400
		counter/{}/count?amount=1&AMOUNT=2 -> 200 12`},
	{"an empty size or key is an absent one", `
		tokenbucket/{}/acquire?size=&interval=60000 -> 204 [RateLimit-Policy: "tokenbucket";q=1;w=60]
		barrier/{}/wait?size=&maxwait=0 -> 408
		semaphore/{}/acquire?key= -> 200 …-…-4…-…-…`},
	{"other numbers must not be empty", `
		event/{}/wait?maxwait= -> 400 maxwait is "", want … of milliseconds from -1 to 3153600000000
		tokenbucket/{}/acquire?interval= -> 400 interval is "", want … of milliseconds from 1 to 3153600000000
		semaphore/{}/acquire?expires= -> 400 expires is "", want … of milliseconds from 0 to 3153600000000
		counter/{}/count?amount= -> 400
		counter/{}/reset?value= -> 400
		tokenbucket/{}/acquire?cost= -> 400
		event/{}/wait?maxwait -> 400  # the same without the sign`},
	{"a time with a unit is told in milliseconds", `
		tokenbucket/{}/acquire?interval=1m -> 400 interval …: write interval=60000 for 1m0s
		semaphore/{}/acquire?expires=1.5h -> 400 …: write expires=5400000 for 1h30m0s
		event/{}/wait?maxwait=30s -> 400 …: write maxwait=30000 for 30s
		pace/{}/acquire?guard=5ms -> 400 …: write guard=5 for 5ms
		tokenbucket/{}/acquire?interval=minute -> 400 interval is "minute", want …, or day, week or month
		tokenbucket/{}/acquire?size=5s -> 400 size is "5s", want a whole number from 0 to 999999999999999`},
	{"empty pairs are passed over", `
		counter/{}/count? -> 200 1
		counter/{}/count?& -> 200 2
		counter/{}/count?&&amount=2& -> 200 4
		counter/{}/count?= -> 400`},
	{"a size is a whole decimal number that is not negative", `
		tokenbucket/{}/acquire?size=-1 -> 400 size is "-1", want a whole number from 0 to 999999999999999
		tokenbucket/{}/acquire?size=%2B1 -> 400
		tokenbucket/{}/acquire?size=+1 -> 400
		tokenbucket/{}/acquire?size=1.5 -> 400
		tokenbucket/{}/acquire?size=1e3 -> 400
		tokenbucket/{}/acquire?size=0x1 -> 400
		tokenbucket/{}/acquire?size=1_000 -> 400
		tokenbucket/{}/acquire?size=five -> 400
		tokenbucket/{}/acquire?size=%D9%A3 -> 400  # the digit three of another script
		tokenbucket/{}/acquire?size=12345678901234567890123 -> 400
		tokenbucket/{}/acquire?size=18446744073709551615 -> 400
		tokenbucket/{}/acquire?size=9223372036854775808 -> 400
		tokenbucket/{}/acquire?size=1000000000000000 -> 400
		tokenbucket/{}/stats -> 404
		tokenbucket/{}/acquire?size=999999999999999 -> 204
		semaphore/{}/acquire?size=999999999999999 -> 200
		barrier/{}/wait?size=999999999999999&maxwait=0 -> 408
		tokenbucket/{}/acquire?size=0005&interval=60000 -> 204 [RateLimit-Policy: "tokenbucket";q=5;w=60]`},
	{"a time may have a plus sign", `
		event/{}/wait?maxwait=%2B50 -> 408 after 50ms
		tokenbucket/{}/acquire?interval=%2B60000 -> 204 [RateLimit-Policy: …;w=60]`},
	{"a maxwait is -1 or more, up to a hundred years", `
		event/{}/wait?maxwait=-2 -> 400 maxwait is "-2", want … of milliseconds from -1 to 3153600000000
		event/{}/wait?maxwait=-9223372036854775808 -> 400
		event/{}/wait?maxwait=3153600000001 -> 400
		event/{}/wait?maxwait=18446744073710 -> 400  # a millisecond too much for 64 bits of nanoseconds
		event/{}/wait?maxwait=9223372036854775807 -> 400
		event/{}/wait?maxwait=9223372036854775808 -> 400
		event/{}/wait?maxwait=1.5 -> 400
		w1: event/{}/wait?maxwait=-1
		w2: event/{}/wait?maxwait=3153600000000
		event/{}/send -> 204
		w1 -> 204
		w2 -> 204`},
	{"an interval is above 0", `
		tokenbucket/{}/acquire?interval=0 -> 400
		tokenbucket/{}/acquire?interval=-1 -> 400
		tokenbucket/{}/acquire?interval=-60000 -> 400
		tokenbucket/{}/acquire?interval=3153600000001 -> 400
		tokenbucket/{}/acquire?interval=18446744073710 -> 400
		tokenbucket/{}/acquire?interval=9223372036854775807 -> 400
		tokenbucket/{}/stats -> 404
		tokenbucket/{}/acquire?interval=1 -> 204
		50ms pass
		tokenbucket/{}/acquire?interval=3153600000000 -> 204`},
	{"expires is not below 0", `
		semaphore/{}/acquire?expires=-1 -> 400
		lock/{}/acquire?expires=-1 -> 400
		watchdog/{}/kick?expires=-1 -> 400
		semaphore/{}/acquire?expires=3153600000001 -> 400
		semaphore/{}/acquire?expires=18446744073710 -> 400  # bouncer: a hold that ends at once
		semaphore/{}/acquire?expires=9223372036854775807 -> 400
		semaphore/{}/stats -> 404
		watchdog/{}/stats -> 404
		semaphore/{}/acquire?expires=3153600000000 -> 200`},
	{"an amount and a value are signed 64-bit numbers", `
		counter/{}/count?amount=9223372036854775808 -> 400
		counter/{}/count?amount=-9223372036854775809 -> 400
		counter/{}/reset?value=9223372036854775808 -> 400
		counter/{}/count?amount=1.0 -> 400
		counter/{}/stats -> 404
		counter/{}/reset?value=-9223372036854775808 -> 204
		counter/{}/value -> 200 -9223372036854775808
		counter/{}/reset?value=9223372036854775807 -> 204
		counter/{}/value -> 200 9223372036854775807`},
	{"a bad value is refused also where it is not needed", `
		counter/{}/count?size=x -> 400
		counter/{}/value?maxwait=-5 -> 400
		event/{}/send?interval=0 -> 400
		event/{}/wait?maxwait=0 -> 408  # it was not sent
		counter/{}/stats -> 404`},
	{"a malformed escape is refused", `
		tokenbucket/{}/acquire?size=%zz -> 400
		counter/{}/count?amount=%3 -> 400
		semaphore/{}/acquire?key=%zz -> 400
		semaphore/{}/acquire?key=100% -> 400
		event/{}/send?message=%f -> 400
		counter/{}/count?id=%%% -> 400
		counter/{}/stats -> 404`},
	{"a semicolon separates nothing", `
		tokenbucket/{}/acquire?size=1;interval=60000 -> 400
		counter/{}/count?amount=1;amount=2 -> 400
		counter/{}/stats -> 404`},
	{"escapes in values are decoded", `
		counter/{}/count?amount=%31%32 -> 200 12
		semaphore/{}/acquire?key=a+b%2Bc%26d%3De%25 -> 200 a b+c&d=e%
		semaphore/{}/release?key=a%20b%2bc%26d=e%25 -> 204`},
	{"id is for logs, and changes nothing", `
		counter/{}/count?id=me -> 200 1
		counter/{}/count?id=you -> 200 2
		semaphore/{}/acquire?key=k&id=me -> 200 k
		semaphore/{}/release?key=k&id=you -> 204`},
	{"what is left out has bouncer's defaults", `
		tokenbucket/{}/acquire -> 204 [RateLimit-Policy: "tokenbucket";q=1;w=1]
		semaphore/{}/acquire -> 200 [RateLimit-Policy: "semaphore";q=1;…]
		semaphore/{}/acquire?maxwait=0 -> 408 …try again in … ms [Retry-After: ~60]
		watchdog/{}/kick -> 204
		watchdog/{}/wait?maxwait=0 -> 408 [Retry-After: ~60]
		barrier/{}/wait?maxwait=0 -> 408
		w1: barrier/{}/wait
		barrier/{}/wait -> 204  # it takes two
		w1 -> 204
		counter/{}/count -> 200 1
		counter/{}/reset -> 204
		counter/{}/value -> 200 0`},
	{"maxwait=0 is one try", `
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 408
		semaphore/{}/acquire?maxwait=0 -> 200
		semaphore/{}/acquire?maxwait=0 -> 408
		event/{}/wait?maxwait=0 -> 408 event/{}: wait not granted at once; …
		watchdog/{}/wait?maxwait=0 -> 408
		barrier/{}/wait?maxwait=0 -> 408`},
	{"maxwait=N is refused after N milliseconds", `
		tokenbucket/{}/acquire?size=0&maxwait=250 -> 408 after 250ms
		semaphore/{}/acquire?size=0&maxwait=250 -> 408 after 250ms
		lock/{}/acquire -> 200
		lock/{}/acquire?maxwait=250 -> 408 after 250ms
		event/{}/wait?maxwait=250 -> 408 …maxwait=250 ms… after 250ms
		watchdog/{}/wait?maxwait=250 -> 408 after 250ms
		barrier/{}/wait?maxwait=250 -> 408 after 250ms`},
}

func TestParameters(t *testing.T) {
	t.Parallel()
	play(t, parameters)
}

func TestMadeUpKeyIsRandomUUID(t *testing.T) {
	t.Parallel()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	name, seen := fresh(t), map[string]bool{}
	for range 20 {
		a := shared().get(t, "/v1/semaphore/"+name+"/acquire?size=20")
		if !a.is("200") || !uuid.MatchString(a.body) || seen[a.body] {
			t.Errorf("acquire without a key = %s, want 200 and a version 4 UUID, not one of %v", a, seen)
		}
		seen[a.body] = true
	}
	for key := range seen {
		shared().want(t, "/v1/semaphore/"+name+"/release?key="+key, "204")
	}
}

// texts are parameters at the limit of their length and one past it.
var texts = []struct{ fact, request, want string }{
	{"a key of 512 bytes", "semaphore/{}/acquire?key=" + strings.Repeat("k", 512), "200"},
	{"a key of 513 bytes", "semaphore/{}/acquire?key=" + strings.Repeat("k", 513), "400"},
	{"a message of 4096 bytes", "event/{}/send?message=" + strings.Repeat("m", 4096), "204"},
	{"a message of 4097 bytes", "event/{}/send?message=" + strings.Repeat("m", 4097), "400"},
	{"an id of 4096 bytes", "counter/{}/count?id=" + strings.Repeat("i", 4096), "200"},
	{"an id of 4097 bytes", "counter/{}/count?id=" + strings.Repeat("i", 4097), "400"},
}

func TestTextLimits(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		request := "/v1/" + strings.ReplaceAll(text.request, "{}", fresh(t))
		if a := shared().get(t, request); !a.is(text.want) {
			t.Errorf("%s = %s, want %s", text.fact, a, text.want)
		}
	}
	name := fresh(t)
	long := strings.Repeat("é", 1024) // 6 KiB on the wire
	shared().want(t, "/v1/event/"+name+"/send?message="+strings.ReplaceAll(long, "é", "%C3%A9"), "204")
	// Its header would be longer than proxies take.
	if a := shared().get(t, "/v1/event/"+name+"/wait"); !a.is("200 " + long) {
		t.Errorf("a message of %d bytes comes back with %d and %d bytes, want 200 and all of it",
			len(long), a.status, len(a.body))
	}
}
