package access

import "time"

// This file is how quotas count names and holds. Holds and the records of grants count from when a request
// asks for them, as many may be asked for at the same time, until their time is over; a plain name counts
// from its first command on, for nameAtLeast.
//
//	            ask               grant, to its end
//	  (none) ---------> pending ---------------------> begun
//	    ^                  |  ^                          |
//	    |                  |  '--------------------------|
//	    |     endAsking,   |    drop, while others ask   |
//	    |  by the last one |                             | drop, sweep
//	    '------------------'-----------------------------'

// Instants that do not come: of what does not end, and of what is only asked for.
const (
	forever = 1<<63 - 1
	pending = forever - 1
)

// endOf is the instant after a time from now on.
func endOf(now int64, after time.Duration) int64 {
	// gatehouse.Forever is negative, and a sum beyond 64 bits would lie in the past.
	if after < 0 || int64(after) > forever-now {
		return forever
	}
	return now + int64(after)
}

// A begun is one name or hold that a user has begun, or asks for.
type begun struct {
	until int64  // by elapsed; pending if it is only asked for
	fence uint64 // of a hold, or of a grant
	asked int32  // requests under way that ask for it: it counts while there are any
	again bool   // more than one request was granted it
}

// A begunSet is what counts until it ends. Make one with newBegunSet.
type begunSet[K comparable] struct {
	all map[K]begun
	due int64 // nothing ends before, by elapsed
}

func newBegunSet[K comparable]() begunSet[K] { return begunSet[K]{make(map[K]begun), forever} }

func (t *begunSet[K]) set(key K, c begun) {
	t.all[key] = c
	// due never lies too late. It lies too early after an extension, which costs one sweep for nothing.
	t.due = min(t.due, c.until)
}

// sweep drops what has ended.
func (t *begunSet[K]) sweep(now int64) {
	// A user at its quota may go on asking often. All of it is looked at only when something may have ended.
	if now < t.due {
		return
	}
	t.due = forever
	for key, c := range t.all {
		switch {
		case c.until > now:
			t.due = min(t.due, c.until)
		// What has ended but is asked for stays. endAsking sets it again, and with that makes it due.
		case c.asked == 0:
			delete(t.all, key)
		}
	}
}

// hasRoom reports whether there are fewer than most, once what has ended is dropped.
func (t *begunSet[K]) hasRoom(most, now int64) bool {
	// A user below its quota pays for no sweep.
	if int64(len(t.all)) >= most {
		t.sweep(now)
	}
	return int64(len(t.all)) < most
}

// ask notes that a request asks for it, which endAsking ends. It reports false, and notes nothing, if there
// are that many others.
func (t *begunSet[K]) ask(key K, most, now int64) bool {
	c, known := t.all[key]
	// One that counts already takes no further room, so that a retry is let in at the quota.
	if !known {
		if !t.hasRoom(most, now) {
			return false
		}
		c.until = pending
	}
	c.asked++
	t.set(key, c)
	return true
}

// endAsking notes that a request that asked for it is answered, or given up. What was not granted, and no
// other request asks for, counts no more.
func (t *begunSet[K]) endAsking(key K) {
	// It is there: neither sweep nor drop nor a recount removes what is asked for.
	c := t.all[key]
	c.asked--
	if c.asked == 0 && c.until == pending {
		delete(t.all, key)
		return
	}
	t.set(key, c)
}

// grant notes that a request was granted it.
func (t *begunSet[K]) grant(key K, until int64, fence uint64) {
	c := t.all[key]
	// The same fence again: another request has this hold too, and one that is taken back must not end it.
	c.again = c.until != pending && c.fence == fence
	c.until, c.fence = until, fence
	t.set(key, c)
}

// extend notes that it has begun, and lasts at least that long.
func (t *begunSet[K]) extend(key K, until int64) {
	c := t.all[key]
	// What is pending ends with those that ask for it, however late that instant is.
	if c.until == pending {
		c.until = 0
	}
	c.until = max(c.until, until)
	t.set(key, c)
}

// renew notes that it ends then. It may have been begun at another server.
func (t *begunSet[K]) renew(key K, until int64, fence uint64) {
	c := t.all[key]
	c.until = until
	// Without one the fence stays, so that a request that began the hold can still take it back.
	if fence != 0 {
		c.fence = fence
	}
	t.set(key, c)
}

// shorten notes that it ends then at the latest.
func (t *begunSet[K]) shorten(key K, until int64) {
	c, known := t.all[key]
	// What is pending has not begun, so that there is nothing that could end earlier.
	if known && c.until != pending {
		c.until = min(c.until, until)
		t.set(key, c)
	}
}

// drop ends it. Requests that ask for it go on.
func (t *begunSet[K]) drop(key K) {
	asked := t.all[key].asked
	if asked == 0 {
		delete(t.all, key)
		return
	}
	// The fence goes too, so that a late takeBack finds nothing of what has ended.
	t.all[key] = begun{until: pending, asked: asked}
}

// takeBack ends what one request alone was granted under a fence.
func (t *begunSet[K]) takeBack(key K, fence uint64) {
	if c := t.all[key]; c.fence == fence && !c.again {
		t.drop(key)
	}
}
