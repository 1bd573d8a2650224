package e2e

import "testing"

var deletes = []script{
	{"of what is not there", `
		DELETE tokenbucket/{} -> 404 tokenbucket/{} does not exist
		DELETE semaphore/{} -> 404
		DELETE lock/{} -> 404
		DELETE event/{} -> 404
		DELETE watchdog/{} -> 404
		DELETE counter/{} -> 404
		DELETE /barrier/{} -> 404 barrier/{} does not exist`},
	{"twice", `
		counter/{}/count -> 200 1
		DELETE counter/{} -> 204 ""
		DELETE counter/{} -> 404
		counter/{}/stats -> 404
		counter/{}/count -> 200 1`},
	{"of a bucket: who waits is told, and it begins anew", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		w1: tokenbucket/{}/acquire?interval=60000
		w2: /tokenbucket/{}/acquire?interval=60000&maxwait=60000
		DELETE tokenbucket/{} -> 204
		w1 -> 409 tokenbucket/{} was deleted while this request waited
		w2 -> 409
		tokenbucket/{}/stats -> 404
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 204`},
	{"of a semaphore: holds end, and who waits is told", `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b
		w2: semaphore/{}/acquire?key=c
		DELETE semaphore/{} -> 204
		w1 -> 409 semaphore/{} was deleted while this request waited
		w2 -> 409
		semaphore/{}/release?key=a -> 409
		semaphore/{}/renew?key=a -> 409
		semaphore/{}/acquire?key=d&maxwait=0 -> 200 d`},
	{"of a lock", `
		lock/{}/acquire?key=a -> 200
		w1: lock/{}/acquire?key=b
		DELETE lock/{} -> 204
		w1 -> 409
		lock/{}/acquire?key=c&maxwait=0 -> 200 c`},
	{"of an event: its waiters do not take it for the signal", `
		w1: event/{}/wait
		w2: /event/{}/wait
		DELETE event/{} -> 204
		w1 -> 409 event/{} was deleted while this request waited
		w2 -> 409
		w3: event/{}/wait
		event/{}/send -> 204
		w3 -> 204`},
	{"of a watchdog: its waiters do not take it for the signal", `
		watchdog/{}/kick -> 204
		w1: watchdog/{}/wait
		DELETE watchdog/{} -> 204
		w1 -> 409 watchdog/{} was deleted while this request waited
		watchdog/{}/wait?maxwait=0 -> 408`},
	{"of a watchdog that fired", `
		watchdog/{}/kick?expires=0 -> 204
		DELETE watchdog/{} -> 204
		watchdog/{}/wait?maxwait=0 -> 408 [Retry-After: ~60]`},
	{"of a barrier: its waiters are not told that it opened", `
		w1: barrier/{}/wait?size=3
		w2: barrier/{}/wait?size=3
		DELETE barrier/{} -> 204
		w1 -> 409 barrier/{} was deleted while this request waited
		w2 -> 409
		w3: barrier/{}/wait?size=2
		barrier/{}/wait -> 204
		w3 -> 204`},
	{"leaves other names alone", `
		counter/{}-a/count -> 200 1
		counter/{}-b/count -> 200 1
		w1: event/{}-a/wait
		w2: event/{}-b/wait
		DELETE counter/{}-a -> 204
		DELETE event/{}-a -> 204
		w1 -> 409
		counter/{}-b/value -> 200 1
		event/{}-b/send -> 204
		w2 -> 204`},
}

func TestDelete(t *testing.T) {
	t.Parallel()
	play(t, deletes)
}
