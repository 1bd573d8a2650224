package limiter_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/gatehousehq/gatehouse/limiter"
)

// Five at once, then one a second.
func ExampleLimiter_Allow() {
	l, err := limiter.New(limiter.Rate{Size: 1, Interval: time.Second, Burst: 4})
	if err != nil {
		panic(err)
	}
	for range 7 {
		fmt.Print(l.Allow(), " ")
	}
	// Output: true true true true true false false
}

// Time as a parameter: for a log of yesterday, a simulation, a test.
func ExampleLimiter_AllowAt() {
	l, err := limiter.New(limiter.Rate{Size: 2, Interval: time.Second})
	if err != nil {
		panic(err)
	}
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, ms := range []int{0, 499, 500, 501, 1000} {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		fmt.Println(now.Format("05.000"), l.AllowAt(now, 1))
	}
	// Output:
	// 00.000 true
	// 00.499 false
	// 00.500 true
	// 00.501 false
	// 01.000 true
}

func ExampleLimiter_Decide() {
	l, err := limiter.New(limiter.Rate{Size: 30, Interval: time.Minute, Burst: 15})
	if err != nil {
		panic(err)
	}
	l.AllowN(16)
	d := l.Decide(1)
	fmt.Println(d.Allowed, "remaining", d.Remaining, "of", d.Limit)
	fmt.Println("retry after", d.RetryAfter.Round(time.Second))
	fmt.Println("reset after", d.ResetAfter.Round(time.Second))
	// Output:
	// false remaining 0 of 16
	// retry after 2s
	// reset after 32s
}

// One call every 10 ms, whoever makes it.
func ExampleLimiter_Wait() {
	l, err := limiter.New(limiter.Rate{Size: 100, Interval: time.Second})
	if err != nil {
		panic(err)
	}
	start := time.Now()
	for range 4 {
		if err := l.Wait(context.Background(), 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(start) >= 30*time.Millisecond)

	soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(l.Wait(soon, 100) != nil) // at once: it would take a second
	// Output:
	// true
	// true
}

// A job says when it will run, and may think better of it.
func ExampleLimiter_Reserve() {
	l, err := limiter.New(limiter.Rate{Size: 1, Interval: time.Minute})
	if err != nil {
		panic(err)
	}
	l.Allow()
	r, ok := l.Reserve(1)
	fmt.Println(ok, "in", r.Delay().Round(time.Minute))
	fmt.Println("the next in", l.Delay(1).Round(time.Minute))
	r.Cancel()
	fmt.Println("the next in", l.Delay(1).Round(time.Minute))
	// Output:
	// true in 1m0s
	// the next in 2m0s
	// the next in 1m0s
}

// Every address has a limit of its own.
func ExampleKeyed() {
	addresses, err := limiter.NewKeyed(limiter.Rate{Size: 10, Interval: time.Second, Burst: 20}, 100_000)
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		if d := addresses.Decide(address, 1); !d.Allowed {
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(d.RetryAfter.Seconds())))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	_ = handler

	fmt.Println(addresses.AllowN("192.0.2.1", 21), addresses.Allow("192.0.2.1"), addresses.Allow("192.0.2.2"))
	// Output: true false true
}
