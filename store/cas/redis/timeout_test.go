package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// startAll makes many records whose names begin alike, and returns what came of each and how long that took.
func startAll(
	b *redis.Backend, prefix string, many int, budget time.Duration,
) (errs []error, took []time.Duration) {
	errs, took = make([]error, many), make([]time.Duration, many)
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	var answers sync.WaitGroup
	answers.Add(many) // and no more: an answer that is told twice panics
	began := time.Now()
	for i := range many {
		change := &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute}
		b.Start(ctx, key(fmt.Sprint(prefix, i)), change, func(reply cas.Reply, err error) {
			took[i], errs[i] = time.Since(began), err
			if err == nil && !reply.Swapped {
				errs[i] = fmt.Errorf("it is %+v, want it swapped", reply)
			}
			answers.Done()
		})
	}
	answers.Wait()
	return errs, took
}

// What nobody waits for is answered all the same, once each and in time, whatever Redis does.
func TestStart(t *testing.T) {
	t.Parallel()
	const many, budget = 1000, 300 * time.Millisecond
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	check := func(when string, wrong func(err error) bool) (unknown int) {
		t.Helper()
		errs, took := startAll(b, when+"/", many, budget)
		for i, err := range errs {
			if wrong(err) {
				t.Errorf("%s, change %d: %v", when, i, err)
			}
			if took[i] > 10*budget { // the machine is busy
				t.Errorf("%s, change %d took %s, want about %s", when, i, took[i], budget)
			}
			if err != nil && !errors.Is(err, cas.ErrNotSent) {
				unknown++
			}
		}
		return unknown
	}
	well := func(err error) bool { return err != nil && !errors.Is(err, context.DeadlineExceeded) }
	if err := b.Ping(soonest(t)); err != nil { // without a connection each would wait in a goroutine
		t.Fatal(err)
	}
	check("connected", well)
	server.Freeze()
	replaced := false
	late := func(err error) bool {
		// On a busy machine the connection may be silent for so long that it is given up before.
		lost := errors.Is(err, cas.ErrNotSent) && !errors.Is(err, context.DeadlineExceeded)
		replaced = replaced || lost
		return !lost && !errors.Is(err, context.DeadlineExceeded)
	}
	if unknown := check("frozen", late); unknown == 0 && !replaced || unknown > 512 {
		t.Errorf("frozen: %d changes may have been made, want some, those that were sent", unknown)
	}
	if unknown := check("frozen for longer", func(err error) bool { return err == nil }); unknown > 4 {
		t.Errorf("frozen for longer: %d changes were risked, want two at a time", unknown)
	}
	server.Thaw()
	redistest.Until(t, func() bool { return b.Ping(soonest(t)) == nil })
	check("thawed", well)
	server.Kill()
	check("gone", func(err error) bool { return err == nil })
	server.Restart(t)
	redistest.Until(t, func() bool { return b.Ping(soonest(t)) == nil })
	check("back", well)
}
