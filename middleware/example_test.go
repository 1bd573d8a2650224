package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/middleware"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// The examples ask a gate of the process. With client.New in its place they ask a server.
func exampleGate() *gate.Gate { return gate.New(memory.New(memory.Config{}), gate.Config{}) }

// Every user may make two requests an hour, at all instances of a service together.
func ExampleHandler() {
	limited := middleware.Handler(middleware.Config{
		Gate: exampleGate(),
		Rule: gatehouse.Rule{Size: 2, Interval: time.Hour},
		Key: func(r *http.Request) gatehouse.Key {
			user, _, _ := r.BasicAuth()
			return gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "user/" + user}
		},
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))

	server := httptest.NewServer(limited)
	defer server.Close()
	for range 3 {
		request, err := http.NewRequest(http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			panic(err)
		}
		request.SetBasicAuth("ann", "secret")
		response, err := server.Client().Do(request)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, response.Header.Get("RateLimit"))
	}
	// Output:
	// 204 "slidinglog";r=1;t=3600
	// 204 "slidinglog";r=0;t=3600
	// 429 "slidinglog";r=0;t=3600
}

// Requests to a third party's API wait for a limit that all processes share. When one of them is answered
// 429, all of them pause.
func ExampleNewTransport() {
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer partner.Close()

	g := exampleGate()
	key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "partner"}
	browser := &http.Client{Transport: middleware.NewTransport(middleware.Config{
		Gate: g,
		Rule: gatehouse.Rule{Size: 600, Interval: time.Minute, Burst: 10},
		Key:  func(*http.Request) gatehouse.Key { return key },
	}, nil)}
	response, err := browser.Get(partner.URL)
	if err != nil {
		panic(err)
	}
	_ = response.Body.Close()
	fmt.Println(response.StatusCode)

	browser.Timeout = 10 * time.Millisecond
	response, err = browser.Get(partner.URL)
	if err == nil {
		_ = response.Body.Close()
	}
	fmt.Println("another is held back:", err != nil)
	// Output:
	// 429
	// another is held back: true
}

// What a provider of language models says about tokens.
func ExampleReadFeedback() {
	response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{
		"Retry-After": {"20"}, "X-Ratelimit-Remaining-Tokens": {"120"}, "X-Ratelimit-Reset-Tokens": {"1m30s"},
	}}
	f := middleware.ReadFeedback(response, middleware.Tokens, time.Now())
	fmt.Println(f.Status, f.RetryAfter, f.Remaining, f.Reset)
	// Output: 429 20s 120 1m30s
}
