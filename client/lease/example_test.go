package lease_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	server "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/client/lease"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"google.golang.org/grpc"
)

// serving starts a server with 100 per second of everything, which takes the place of a real one here.
func serving() (address string, stop func()) {
	s, err := grpcfront.New(grpcfront.Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		panic(err)
	}
	s.Configure(server.Templates{{Glob: "*", Capacity: 100, Algorithm: server.Algorithm{
		Kind: server.FairShare, LeaseLength: time.Minute, RefreshInterval: 5 * time.Second,
		Learning: new(time.Duration),
	}}}, "example")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		_ = s.Shutdown(context.Background())
		<-ended
	}
}

// Two processes share 100 calls per second to a database. Each knows its share, and keeps to it without
// asking anybody for each call.
func Example() {
	address, stop := serving()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	// In each process: one client.
	client, err := lease.New(lease.Config{Servers: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close(ctx) }() // gives its share to the others at once

	database, err := client.Resource("database", 80, 0)
	if err != nil {
		panic(err)
	}
	if err := database.Ready(ctx); err != nil {
		panic(err)
	}
	fmt.Println(database.Capacity(), "per second")

	// Before each call:
	limiter := lease.NewRateLimiter(database)
	for range 3 {
		if err := limiter.Wait(ctx); err != nil {
			panic(err)
		}
	}

	// Needs more from now on.
	if err := database.Want(500); err != nil {
		panic(err)
	}
	<-database.Changes() // the 80, which nobody read
	fmt.Println(<-database.Changes(), "per second")
	// Output:
	// 80 per second
	// 100 per second
}

// A gauge limits what is held at once: no more than 100 jobs in all processes.
func ExampleGauge() {
	address, stop := serving()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := lease.New(lease.Config{Servers: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close(ctx) }()
	jobs, err := client.Resource("jobs", 2, 0)
	if err != nil {
		panic(err)
	}
	if err := jobs.Ready(ctx); err != nil {
		panic(err)
	}

	gauge := lease.NewGauge(jobs)
	if err := gauge.Acquire(ctx); err != nil {
		panic(err)
	}
	fmt.Println(gauge.TryAcquire(), gauge.TryAcquire())
	gauge.Release()
	gauge.Release()
	fmt.Println(gauge.Held())
	// Output:
	// true false
	// 0
}

// An http.Client keeps to the limit, and asks for as much as is used; who uses it need not know.
func ExampleTransport() {
	address, stop := serving()
	defer stop()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer site.Close()

	client, err := lease.New(lease.Config{Servers: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	calls, err := client.Resource("calls to the site", 10, 0)
	if err != nil {
		panic(err)
	}
	limiter := lease.NewAdaptive(calls, lease.AdaptiveConfig{})
	defer limiter.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	browser := &http.Client{Transport: &lease.Transport{Limiter: limiter, Base: base}}

	response, err := browser.Get(site.URL)
	if err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	fmt.Println(string(text))
	// Output: hello
}

// A gRPC client does the same by its interceptors.
func ExampleUnaryInterceptor() {
	var limiter *lease.RateLimiter // by NewRateLimiter

	options := []grpc.DialOption{
		grpc.WithUnaryInterceptor(lease.UnaryInterceptor(limiter)),
		grpc.WithStreamInterceptor(lease.StreamInterceptor(limiter)),
	}
	fmt.Println(len(options))
	// Output: 2
}
