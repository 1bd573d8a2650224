package lease

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UnaryInterceptor returns an interceptor for clients that waits for capacity before each call.
func UnaryInterceptor(limiter Waiter) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoker grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		if err := limiter.Wait(ctx); err != nil {
			return statusOf(err)
		}
		return invoker(ctx, method, request, reply, conn, options...)
	}
}

// StreamInterceptor returns an interceptor for clients that waits for capacity before each stream. Messages
// on a stream are not counted.
func StreamInterceptor(limiter Waiter) grpc.StreamClientInterceptor {
	return func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		streamer grpc.Streamer, options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if err := limiter.Wait(ctx); err != nil {
			return nil, statusOf(err)
		}
		return streamer(ctx, description, conn, method, options...)
	}
}

// statusOf returns the error as callers of gRPC expect it.
func statusOf(err error) error {
	// ErrClosed, since nothing can be had any more, and errors of Waiters of other packages.
	code := codes.Unavailable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, err.Error())
}
