package lease_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// odd is any number a server may send by mistake.
func odd() float64 {
	all := [...]float64{0, 1, 40, 0.001, 1e12, 1e300, -1, -200, math.NaN(), math.Inf(1), math.Inf(-1)}
	return all[rand.IntN(len(all))]
}

// oddSeconds is any time.
func oddSeconds() int64 {
	now := time.Now().Unix()
	const year9999 = 253402300799
	all := [...]int64{
		0, 1, 5, now - 1, now + 1, now + 2, now + 60, year9999, math.MaxInt64, math.MinInt64, -1,
	}
	return all[rand.IntN(len(all))]
}

// A mad server fails, sends elsewhere, takes its time, and answers with leases that make no sense about
// resources that nobody asked for.
func mad(ended <-chan struct{}, others ...string) func(int, *request) (*response, error) {
	slow := make(chan struct{})
	return func(_ int, r *request) (*response, error) {
		switch rand.IntN(10) {
		case 0:
			return nil, status.Error(codes.Code(rand.IntN(17)), "no")
		case 1:
			return redirect(others[rand.IntN(len(others))]), nil
		case 2: // as long as it takes until another is to wait as long, or the test ends
			select {
			case <-slow:
			case slow <- struct{}{}:
			case <-ended:
			}
		}
		answer := &response{}
		other := &doormanpb.ResourceRequest{ResourceId: new("other")}
		for _, resource := range append(r.GetResource(), other) {
			entry := &doormanpb.ResourceResponse{ResourceId: resource.ResourceId, SafeCapacity: new(odd())}
			entry.Gets = &doormanpb.Lease{
				ExpiryTime: new(oddSeconds()), RefreshInterval: new(oddSeconds()), Capacity: new(odd()),
			}
			if rand.IntN(4) == 0 {
				entry.SafeCapacity = nil
			}
			if rand.IntN(4) > 0 {
				answer.Response = append(answer.Response, entry)
			}
		}
		return answer, nil
	}
}

// TestEverythingAtOnce: whatever servers say and users do at the same time, nothing but an amount is ever
// told, no call hangs, and nothing is left behind.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	a, b := &scripted{address: address(t)}, &scripted{address: address(t)}
	nobody := address(t)
	ended := t.Context().Done()
	a.get, b.get = mad(ended, b.address, nobody, ""), mad(ended, a.address, nobody, "")
	a.start(t)
	b.start(t)
	c := newClient(t, lease.Config{
		Servers: []string{nobody, a.address, b.address}, Timeout: 50 * time.Millisecond,
		MinRefresh: time.Millisecond, OnError: func(error) {},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := c.Resource(strconv.Itoa(i), float64(rand.IntN(100)), 0)
				if err != nil {
					t.Errorf("Resource = %v, want nil", err)
					return
				}
				use(ctx, t, r)
			}
		})
	}
	all.Wait()
	begun := time.Now()
	_ = c.Close(context.Background()) // the servers are mad
	if took := time.Since(begun); took > prompt {
		t.Errorf("Close took %s, want at most one Timeout", took)
	}
}

// use does with a resource all that one can, for a moment.
func use(ctx context.Context, t *testing.T, r *lease.Resource) {
	t.Helper()
	moment, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Millisecond)
	defer cancel()
	rate, gauge := lease.NewRateLimiter(r), lease.NewGauge(r)
	adaptive := lease.NewAdaptive(r, lease.AdaptiveConfig{Window: 10 * time.Millisecond})
	defer adaptive.Close()
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { _ = r.Ready(moment) })
		all.Go(func() {
			for moment.Err() == nil && rate.Wait(moment) == nil && adaptive.Wait(moment) == nil {
				if gauge.Acquire(moment) == nil {
					gauge.Release()
				}
				_ = r.Want(float64(rand.IntN(100)))
				runtime.Gosched()
			}
		})
		all.Go(func() {
			for amount := range r.Changes() {
				if !(amount >= 0 && amount <= math.MaxFloat64 || amount == -1) {
					t.Errorf("amount = %g, want a number", amount)
				}
			}
		})
	}
	if rand.IntN(2) == 0 {
		rate.Close()
	}
	_ = r.Release(moment)
	all.Wait()
	if r.Capacity() != 0 || rate.Waiting() != 0 || gauge.Held() != 0 {
		t.Errorf("after Release: capacity %g, %d wait, %d held, want nothing",
			r.Capacity(), rate.Waiting(), gauge.Held())
	}
}
