package e2e

import (
	"strconv"
	"testing"
)

var semaphores = []script{
	{"size slots, then refused", `
		3x semaphore/{}/acquire?size=3 -> 200
		semaphore/{}/acquire?size=3&maxwait=0 -> 408 semaphore/{}: acquire not granted at once; …
		semaphore/{}/acquire?size=3&maxwait=100 -> 408 after 100ms`},
	{"a key that is given is echoed byte for byte", `
		semaphore/{}/acquire?size=9&key=Key-1 -> 200 Key-1
		semaphore/{}/acquire?size=9&key=two%20words -> 200 two words
		semaphore/{}/acquire?size=9&key=%C3%BC%E2%82%AC -> 200 ü€
		semaphore/{}/acquire?size=9&key=%3Cb%3E -> 200 <b> [Content-Type: text/plain; charset=utf-8]
		semaphore/{}/release?key=%3Cb%3E -> 204`},
	{"a release frees the slot at once", `
		semaphore/{}/acquire?key=a -> 200 a
		semaphore/{}/release?key=a -> 204
		semaphore/{}/acquire?key=b&maxwait=0 -> 200 b`},
	{"a release hands the slot to who waits", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		semaphore/{}/release?key=a -> 204
		w1 -> 200 b`},
	{"a release of what is not held is a conflict", `
		semaphore/{}/release?key=a -> 409 semaphore/{} is not held with this key: …
		semaphore/{}/acquire?key=a -> 200
		semaphore/{}/release?key=b -> 409
		semaphore/{}/release?key=a -> 204
		semaphore/{}/release?key=a -> 409`},
	{"a release needs a key", `
		semaphore/{}/release -> 400 key is missing, want the key that acquire answered with
		semaphore/{}/release?key= -> 400
		semaphore/{}/renew -> 400
		lock/{}/release -> 400
		lock/{}/renew?key= -> 400`},
	{"a held key is answered again, also when there is no room", `
		semaphore/{}/acquire?size=2&key=a -> 200 a [RateLimit: "semaphore";r=1]
		semaphore/{}/acquire?size=2&key=a -> 200 a [RateLimit: "semaphore";r=1]
		semaphore/{}/acquire?size=2&key=b -> 200 b [RateLimit: "semaphore";r=0]
		semaphore/{}/acquire?size=2&key=a -> 200 a
		semaphore/{}/acquire?size=2&key=a&maxwait=0 -> 200 a
		semaphore/{}/acquire?size=0&key=a&maxwait=0 -> 200 a
		semaphore/{}/release?key=a -> 204
		semaphore/{}/release?key=a -> 409  # it was one hold`},
	{"a held key that is asked for again resizes all the same", `
		semaphore/{}/acquire?size=1&key=a -> 200 a
		semaphore/{}/acquire?size=2&key=a -> 200 a [RateLimit-Policy: "semaphore";q=2;…]
		semaphore/{}/acquire?size=2&key=b&maxwait=0 -> 200 b`},
	{"asking again for a held key does not extend it", `
		semaphore/{}/acquire?key=a&expires=2000 -> 200
		semaphore/{}/acquire?key=a&expires=60000 -> 200
		semaphore/{}/acquire?key=b -> 200 b after 0s`},
	{"two who wait with one key share the hold", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		w2: semaphore/{}/acquire?key=b
		semaphore/{}/release?key=a -> 204
		w1 -> 200 b
		w2 -> 200 b
		semaphore/{}/stats -> 200 …"held":1,"holders":1,"waiting":0}
		semaphore/{}/release?key=b -> 204
		semaphore/{}/release?key=b -> 409`},
	{"a hold ends when it expires, and who waits goes on", `
		semaphore/{}/acquire?key=a&expires=400 -> 200
		semaphore/{}/acquire?key=b -> 200 b after 0s
		semaphore/{}/release?key=a -> 409
		semaphore/{}/stats -> 200 …"expired":1,…"held":1,…`},
	{"a refusal says when the next hold ends", `
		semaphore/{}/acquire?size=2&key=a&expires=60000 -> 200
		semaphore/{}/acquire?size=2&key=b&expires=20000 -> 200
		semaphore/{}/acquire?size=2&maxwait=0 -> 408 …try again in … ms [Retry-After: ~20]`},
	{"expires=0 is never", `
		semaphore/{}/acquire?key=a&expires=0 -> 200
		semaphore/{}/acquire?key=b&maxwait=300 -> 408 …only another request… [Retry-After: -] after 300ms
		semaphore/{}/release?key=a -> 204`},
	{"a key is free again after it expired", `
		semaphore/{}/acquire?key=a&expires=100 -> 200
		300ms pass
		semaphore/{}/release?key=a -> 409
		semaphore/{}/acquire?key=a&maxwait=0 -> 200 a
		semaphore/{}/release?key=a -> 204`},
	{"size 0 lets nobody in, and holds stay", `
		semaphore/{}/acquire?key=a&size=1 -> 200
		semaphore/{}/acquire?key=b&size=0&maxwait=0 -> 408
		semaphore/{}/acquire?key=b&size=0&maxwait=100 -> 408 after 100ms
		semaphore/{}/release?key=a -> 204
		semaphore/{}/acquire?key=b&size=0&maxwait=0 -> 408 …only another request… [Retry-After: -]`},
	{"shrinking: nobody enters until the extra ones have left", `
		semaphore/{}/acquire?size=3&key=a -> 200
		semaphore/{}/acquire?size=3&key=b -> 200
		semaphore/{}/acquire?size=3&key=c -> 200
		semaphore/{}/acquire?size=1&maxwait=0 -> 408
		semaphore/{}/release?key=a -> 204
		semaphore/{}/acquire?size=1&maxwait=0 -> 408
		semaphore/{}/release?key=b -> 204
		semaphore/{}/acquire?size=1&maxwait=0 -> 408
		semaphore/{}/release?key=c -> 204
		semaphore/{}/acquire?size=1&maxwait=0 -> 200`},
	{"growing: another request's size lets those in who wait", `
		semaphore/{}/acquire?size=1&key=a -> 200
		w1: semaphore/{}/acquire?size=1&key=b
		semaphore/{}/acquire?size=3&key=c -> 200 c
		w1 -> 200 b`},
	{"a release does not resize", `
		3x semaphore/{}/acquire?size=4 -> 200
		semaphore/{}/acquire?size=4&key=a -> 200
		w1: semaphore/{}/acquire?size=4&key=w
		semaphore/{}/release?key=a -> 204
		w1 -> 200 w
		semaphore/{}/release?key=w&size=1 -> 204
		semaphore/{}/stats -> 200 …"size":4,"held":3,…`},
	{"a cost takes so many slots under one key", `
		semaphore/{}/acquire?size=5&cost=3&key=a -> 200 a [RateLimit: "semaphore";r=2]
		semaphore/{}/acquire?size=5&cost=3&key=b&maxwait=0 -> 408
		semaphore/{}/acquire?size=5&cost=2&key=b&maxwait=0 -> 200 b [RateLimit: "semaphore";r=0]
		semaphore/{}/release?key=a -> 204
		semaphore/{}/stats -> 200 …"held":2,"holders":1,…
		semaphore/{}/acquire?size=5&cost=6 -> 400 semaphore/{}: cost 6 can never fit a size of 5`},
	{"a resize that makes a waiter impossible tells it at once", `
		semaphore/{}/acquire?size=3&key=a -> 200
		w1: semaphore/{}/acquire?size=3&cost=3
		semaphore/{}/acquire?size=2&key=a -> 200
		w1 -> 409`},
	{"nobody overtakes who waits, although there is room", `
		semaphore/{}/acquire?size=3&key=a -> 200
		w1: semaphore/{}/acquire?size=3&cost=3&key=b
		semaphore/{}/acquire?size=3&maxwait=0 -> 408
		semaphore/{}/release?key=a -> 204
		w1 -> 200 b`},
	{"a renewal moves the end, and is answered with the fencing token", `
		semaphore/{}/acquire?key=a -> 200
		semaphore/{}/renew?key=a&expires=20000 -> 204 [Gatehouse-Fence: …]
		semaphore/{}/acquire?maxwait=0 -> 408 [Retry-After: ~20]
		semaphore/{}/renew?key=a&expires=0 -> 204
		semaphore/{}/acquire?maxwait=0 -> 408 [Retry-After: -]
		semaphore/{}/renew?key=a&expires=100 -> 204
		semaphore/{}/acquire?key=b -> 200 b after 0s
		semaphore/{}/renew?key=a -> 409`},
	{"a renewal without a length takes that of the acquire", `
		semaphore/{}/acquire?key=a&expires=6000 -> 200
		3500ms pass
		semaphore/{}/renew?key=a -> 204
		semaphore/{}/acquire?maxwait=0 -> 408 [Retry-After: ~6]`},
	{"what is not held cannot be renewed", `
		semaphore/{}/renew?key=a -> 409
		lock/{}/renew?key=a -> 409`},
	{"headers tell the size and what is left", `
		semaphore/{}/acquire?size=2 -> 200 [RateLimit-Policy: "semaphore";q=2;qu="concurrent-requests"]
		semaphore/{}/acquire?size=2 -> 200 [RateLimit: "semaphore";r=0] [Gatehouse-Fence: …]
		semaphore/{}/acquire?size=2&maxwait=0 -> 408 [RateLimit: "semaphore";r=0] [Gatehouse-Fence: -]`},
	{"a lock has one holder, whatever its size", `
		lock/{}/acquire?key=a&size=5 -> 200 a [RateLimit-Policy: "lock";q=1;qu="concurrent-requests"]
		lock/{}/acquire?key=b&size=5&maxwait=0 -> 408
		lock/{}/acquire?key=a&size=0 -> 200 a
		w1: lock/{}/acquire?key=b&size=0
		lock/{}/renew?key=a -> 204 [Gatehouse-Fence: …]
		lock/{}/release?key=b -> 409
		lock/{}/release?key=a -> 204
		w1 -> 200 b [Gatehouse-Fence: …]`},
	{"a lock and a semaphore of one name are two", `
		lock/{}/acquire?key=a -> 200
		semaphore/{}/acquire?key=b&maxwait=0 -> 200 b
		lock/{}/release?key=b -> 409`},
}

func TestSemaphore(t *testing.T) {
	t.Parallel()
	play(t, semaphores)
}

// A fencing token belongs to a hold, and rises with every grant under one name.
func TestFencingTokensRise(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"semaphore", "lock"} {
		place, last := "/v1/"+kind+"/"+fresh(t), uint64(0)
		release := place + "/release?key=a"
		for _, end := range []string{release, release, "DELETE " + place, release} {
			token := fence(t, place+"/acquire?key=a")
			again := fence(t, place+"/acquire?key=a&expires=5")
			renewed := fence(t, place+"/renew?key=a")
			if token <= last || again != token || renewed != token {
				t.Errorf("tokens of a new hold of %s = %d, again %d, renewed %d, want one above %d",
					place, token, again, renewed, last)
			}
			last = token
			shared().want(t, end, "204")
		}
	}
}

// fence is the fencing token that a request is answered with.
func fence(t *testing.T, request string) uint64 {
	t.Helper()
	a := shared().get(t, request)
	token, err := strconv.ParseUint(a.header.Get("Gatehouse-Fence"), 10, 64)
	if err != nil {
		t.Fatalf("%s = %s, Gatehouse-Fence: %v, want a number", request, a, err)
	}
	return token
}
