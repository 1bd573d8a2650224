package e2e

import (
	"fmt"
	"sync"
	"testing"
)

// The dangerous instant for Redis clients: the lock is released when the client is gone already, but the
// server has not looked yet. What was granted to it is taken back, and the next in line gets it.
func TestGrantToARedisClientThatJustLeft(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.redisAddress(t)
	keeper := dialRedis(t, address)
	stayOnOneProcessor(t)
	for round := range 300 {
		place := fmt.Sprintf("lock/%d", round)
		keeper.want("GH.ACQUIRE "+place+" KEY a EXPIRES 0", "a")
		gone := dialRedis(t, address)
		gone.send("GH.ACQUIRE " + place + " KEY b EXPIRES 0")
		s.inLine(t, place, 1)
		_ = gone.CloseWrite()
		_ = gone.Close()
		keeper.send("GH.RELEASE "+place+" KEY a", "GH.ACQUIRE "+place+" KEY c MAXWAIT 10000")
		if got := keeper.answer() + " " + keeper.answer(); got != "OK c" {
			t.Fatalf("round %d: next in line behind a client that left = %s, want OK c", round, got)
		}
		keeper.want("GH.RELEASE "+place+" KEY b", "-CONFLICT…")
	}
}

// Many clients come and go at one lock, each as it likes. In the end nobody holds it.
func TestRedisClientsComeAndGo(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.redisAddress(t)
	var all sync.WaitGroup
	for worker := range 20 {
		all.Go(func() {
			for round := range 100 {
				c := dialRedis(t, address)
				key := fmt.Sprintf("%d-%d", worker, round)
				acquire := "GH.ACQUIRE lock/busy MAXWAIT 60000 KEY " + key
				if (worker+round)%3 == 0 {
					c.send(acquire + " EXPIRES 20")
					_ = c.Close() // it may have been granted, and then expires
					continue
				}
				c.send(acquire)
				if got := c.answer(); got != key {
					t.Errorf("GH.ACQUIRE = %s, want %s", got, key)
					return
				}
				c.want("GH.RELEASE lock/busy KEY "+key, "OK")
				_ = c.Close()
			}
		})
	}
	all.Wait()
	dialRedis(t, address).want("GH.ACQUIRE lock/busy KEY last MAXWAIT 60000", "last")
}
