package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A crowd comes and goes at a few locks, through both doors and in all ways at once. A client that has read a
// token holds the lock until it releases it, and no other reads one meanwhile. In the end all is free.

// crowdLocks are what the crowd wants, and crowdRounds how often each of its members comes.
const (
	crowdLocks   = 3
	crowdMembers = 12
	crowdRounds  = 15
)

// A crowdLock is a lock as its clients see it.
type crowdLock struct {
	place  string
	holder atomic.Pointer[string] // the key of the client that has read a token; nil for none
	last   atomic.Uint64          // the token that was read last
}

func TestCrowdThatLeaves(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		locks := make([]*crowdLock, crowdLocks)
		for i := range locks {
			locks[i] = &crowdLock{place: fmt.Sprintf("lock/%s-%d", fresh(t), i)}
		}
		doors := []matrixDoor{httpDoor{}, respDoor{}}
		ways := []way{halfClosed, halfClosed, hungUp, wasReset}
		var all sync.WaitGroup
		for member := range crowdMembers {
			all.Go(func() {
				for round := range crowdRounds {
					door, lock := doors[rand.IntN(len(doors))], locks[rand.IntN(len(locks))]
					c := &cell{t, s, door, ways[rand.IntN(len(ways))], door.address(t, s)}
					lock.visit(c, fmt.Sprintf("m%d-%d", member, round))
				}
			})
		}
		all.Wait()
		for _, lock := range locks {
			path := fmt.Sprintf("/v1/%s/acquire?key=last&maxwait=%d", lock.place, patience.Milliseconds())
			s.want(t, path, "200 last")
		}
	})
}

// visit is one client that wants a lock, and leaves before it has it or keeps it for a moment.
func (lock *crowdLock) visit(c *cell, key string) {
	l := c.dial()
	defer func() { _ = l.Close() }()
	a := ask{key: key, most: time.Minute}
	stays := rand.IntN(2) == 0
	if !stays && c.way != halfClosed { // it may be gone before the server can see that
		a.expires = 100 * time.Millisecond
	}
	if !stays && rand.IntN(2) == 0 {
		l.cork()
	}
	l.request(lock.place, a)
	if !stays {
		if rand.IntN(2) == 0 {
			_ = l.SetReadDeadline(time.Now().Add(rand.N(storeDelays[1])))
			if a.expires == 0 {
				l.read()
			}
		}
		l.leave()
	} else {
		_ = l.SetReadDeadline(time.Now().Add(patience))
		l.read()
	}
	if l.token == 0 {
		return
	}
	lock.hold(c, &key, l.token)
}

// hold is what a client does that has read that it holds the lock.
func (lock *crowdLock) hold(c *cell, key *string, token uint64) {
	if other := lock.holder.Swap(key); other != nil {
		c.t.Errorf("%s: %s has read the token %d while %s held it", lock.place, *key, token, *other)
	}
	if last := lock.last.Swap(token); last >= token {
		c.t.Errorf("%s: %s has read the token %d after %d, want a higher one", lock.place, *key, token, last)
	}
	query := fmt.Sprintf("?key=%s&fence=%d", *key, token)
	c.want("/v1/"+lock.place+"/renew"+query, "204")
	lock.holder.CompareAndSwap(key, nil)
	c.want("/v1/"+lock.place+"/release"+query, "204")
}
