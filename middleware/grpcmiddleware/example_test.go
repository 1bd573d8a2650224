package grpcmiddleware_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/middleware/grpcmiddleware"
	"google.golang.org/grpc"
)

// A server lets in a hundred calls a second of each method, at all its instances together.
func ExampleUnaryServer() {
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcmiddleware.UnaryServer(grpcmiddleware.Config{
		Gate: newGate(),
		Rule: gatehouse.Rule{Size: 100, Interval: time.Second, Burst: 99},
		Key: func(_ context.Context, method string) gatehouse.Key {
			return gatehouse.Key{Kind: gatehouse.GCRA, Name: method}
		},
	})))
	fmt.Println(len(server.GetServiceInfo()), "services yet")
	// Output: 0 services yet
}
