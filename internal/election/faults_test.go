package election

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The calls that faults are about.
const (
	grantCall   = "/etcdserverpb.Lease/LeaseGrant"
	revokeCall  = "/etcdserverpb.Lease/LeaseRevoke"
	renewalCall = "/etcdserverpb.Lease/LeaseKeepAlive"
	txnCall     = "/etcdserverpb.KV/Txn"
)

// lost is what a client sees when the connection breaks after its request was sent.
func lost() error { return status.Error(codes.Unavailable, "the connection broke") }

// onCall stands between a client and one of its calls, which it may make or not.
func onCall(method string, do func(ctx context.Context, call func() error) error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, called string, req, reply any, conn *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		call := func() error { return invoker(ctx, called, req, reply, conn, opts...) }
		if called != method {
			return call()
		}
		return do(ctx, call)
	})
}

// An opener opens the stream of one renewal.
type opener func() (grpc.ClientStream, error)

// onRenewal stands between a client and the renewals of leases.
func onRenewal(do func(open opener) (grpc.ClientStream, error)) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, called string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		open := func() (grpc.ClientStream, error) { return streamer(ctx, desc, conn, called, opts...) }
		if called != renewalCall {
			return open()
		}
		return do(open)
	})
}

// loses lets the answers to the first calls of a method get lost: etcd has done what it was asked, and the
// client does not know. Each time, instead is called before the client hears of the loss.
func loses(method string, calls int64, instead func()) grpc.DialOption {
	var done atomic.Int64
	return onCall(method, func(_ context.Context, call func() error) error {
		err := call()
		if err == nil && done.Add(1) <= calls {
			instead()
			return lost()
		}
		return err
	})
}

// answersLate holds the answers to renewals back for a while.
func answersLate(tb testing.TB, late time.Duration) grpc.DialOption {
	tb.Helper()
	return onRenewal(func(open opener) (grpc.ClientStream, error) {
		stream, err := open()
		return lateStream{stream, tb.Context().Done(), late}, err
	})
}

type lateStream struct {
	grpc.ClientStream
	ended <-chan struct{} // the test
	late  time.Duration
}

// RecvMsg waits for the answer, and then for the rest of the while.
func (s lateStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	select {
	case <-time.After(s.late):
	case <-s.ended:
	}
	if s.Context().Err() != nil {
		return status.FromContextError(s.Context().Err()).Err()
	}
	return err
}

// onlyFirst lets the first renewal through. All that are sent later get lost.
func onlyFirst() grpc.DialOption {
	var sent atomic.Int64
	return onRenewal(func(open opener) (grpc.ClientStream, error) {
		stream, err := open()
		return lossyStream{stream, &sent}, err
	})
}

// A lossyStream sends one message, together with all others that count by the same.
type lossyStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

// SendMsg says that it sent it.
func (s lossyStream) SendMsg(m any) error {
	if s.sent.Add(1) > 1 {
		return nil
	}
	return s.ClientStream.SendMsg(m)
}
