package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/gate"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// exampleServer starts what `gatehouse serve` is for an example, and returns its address.
func exampleServer() (address string, stop func()) {
	server, err := httpfront.New(httpfront.Config{
		Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "localhost:0")
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		_ = server.Shutdown(context.Background())
		<-ended
	}
}

// Two at once, and then one every two minutes, for all programs that ask this server.
func ExampleNew() {
	address, stop := exampleServer()
	defer stop()

	g, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	mail := gatehouse.Key{Kind: gatehouse.GCRA, Name: "mail"}
	for range 3 {
		d, err := g.Do(context.Background(), mail, gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1,
			Rule: gatehouse.Rule{Size: 30, Interval: time.Hour, Burst: 1},
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Outcome, d.Remaining, "left, again in", d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// granted 1 left, again in 0s
	// granted 0 left, again in 0s
	// refused 0 left, again in 2m0s
}

// A limiter that is asked by a grant with an id can be asked again when the connection breaks.
func ExampleClient_DoGrant() {
	address, stop := exampleServer()
	defer stop()
	g, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	tokens := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "tokens"}
	ask := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "call-17", Expires: time.Minute,
		Want: []gatehouse.Member{{
			Key: tokens, Rule: gatehouse.Rule{Size: 1000, Calendar: gatehouse.Day}, Cost: 600,
		}},
	}
	for range 2 {
		d, err := g.DoGrant(context.Background(), ask)
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Outcome, d.Want[0].Remaining, "left")
	}
	d, err := g.DoGrant(context.Background(), gatehouse.GrantCommand{
		Op: gatehouse.OpRelease, ID: "call-17", Costs: []gatehouse.MemberCost{{Key: tokens, Cost: 250}},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Outcome, d.Want[0].Remaining, "left")
	// Output:
	// granted 400 left
	// granted 400 left
	// granted 750 left
}
