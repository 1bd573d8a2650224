// Package grpcmiddleware limits calls of gRPC: what a server lets in, and what a program calls. It does for
// gRPC what package middleware does for HTTP, with the same rules for a gate that does not answer.
//
// A server refuses with RESOURCE_EXHAUSTED and says in the trailer grpc-retry-pushback-ms when to try again,
// which clients of gRPC heed in their retries. A client reports a RESOURCE_EXHAUSTED, and an UNAVAILABLE with
// that trailer or with google.rpc.RetryInfo, to the limiter, so that all processes pause; and the first
// success after one. A RESOURCE_EXHAUSTED about the size of a message pauses nothing.
package grpcmiddleware

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/asking"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A Config says what is limited, and how.
type Config struct {
	Gate gatehouse.Gate

	// Key says which limiter a call is counted by. method is as gRPC has it, "/package.Service/Method"; what
	// a client has sent besides is in ctx. The zero Key is none.
	Key func(ctx context.Context, method string) gatehouse.Key

	// Rule is the limit; the zero Rule is the limit in force under the name.
	Rule gatehouse.Rule

	// MaxWait is how long a call may wait in line. 0 means not at all in a server, and as long as the context
	// of the call lasts in a client.
	MaxWait time.Duration

	// Within is how long the gate may take to answer, beside MaxWait; 0 means 100 ms.
	Within time.Duration

	// FailClosed has calls refused with UNAVAILABLE, and not let through, while the gate does not answer.
	FailClosed bool
}

// pushback is the trailer that says how many milliseconds later a call may be tried again.
const pushback = "grpc-retry-pushback-ms"

// newAsker returns what asks for calls of the Config.
func (c *Config) newAsker() *asking.Asker {
	return &asking.Asker{
		Gate: c.Gate, Rule: c.Rule, MaxWait: c.MaxWait, Within: c.Within, FailClosed: c.FailClosed,
	}
}

// admitCall returns nil if a call may be served.
func (c *Config) admitCall(ctx context.Context, asker *asking.Asker, method string) error {
	key := c.Key(ctx, method)
	if key == (gatehouse.Key{}) {
		return nil
	}
	v := asker.AskOnce(ctx, key, 1)
	switch {
	case v.Pass:
		return nil
	case v.Err != nil:
		return statusOf(ctx, v.Err)
	}
	text := key.String() + " allows no more"
	if d := v.Decision.RetryAfter; d != gatehouse.Forever {
		ms := strconv.FormatInt(int64(max(1, (d+time.Millisecond-1)/time.Millisecond)), 10)
		text += "; try again in " + ms + " ms"
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, ms)) // it is only a hint
	}
	return status.Error(codes.ResourceExhausted, text)
}

// statusOf is an error as gRPC has it.
func statusOf(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case gatehouse.CodeOf(err) == gatehouse.CodeInvalid:
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// UnaryServer returns an interceptor for a server's calls.
func UnaryServer(config Config) grpc.UnaryServerInterceptor {
	asker := config.newAsker()
	return func(
		ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (any, error) {
		if err := config.admitCall(ctx, asker, info.FullMethod); err != nil {
			return nil, err
		}
		return handle(ctx, request)
	}
}

// StreamServer returns an interceptor for a server's streams. Each counts once, when it begins.
func StreamServer(config Config) grpc.StreamServerInterceptor {
	asker := config.newAsker()
	return func(
		server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
	) error {
		if err := config.admitCall(stream.Context(), asker, info.FullMethod); err != nil {
			return err
		}
		return handle(server, stream)
	}
}

// awaitTurn returns nil when a call may be made.
func (c *Config) awaitTurn(ctx context.Context, asker *asking.Asker, key gatehouse.Key) error {
	if key == (gatehouse.Key{}) {
		return nil
	}
	v := asker.AskInLine(ctx, key, 1)
	switch {
	case v.Pass:
		return nil
	case v.Err != nil:
		return statusOf(ctx, v.Err)
	}
	return status.Errorf(codes.ResourceExhausted, "%s allows no more within %s", key, c.MaxWait)
}

// UnaryClient returns an interceptor for a client's calls.
func UnaryClient(config Config) grpc.UnaryClientInterceptor {
	asker := config.newAsker()
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		key := config.Key(ctx, method)
		if err := config.awaitTurn(ctx, asker, key); err != nil {
			return err
		}
		var trailer metadata.MD
		err := call(ctx, method, request, reply, conn, append(options, grpc.Trailer(&trailer))...)
		reportStatus(ctx, asker, key, err, trailer)
		return err
	}
}

// StreamClient returns an interceptor for a client's streams. Each counts once, when it begins.
func StreamClient(config Config) grpc.StreamClientInterceptor {
	asker := config.newAsker()
	return func(
		ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		key := config.Key(ctx, method)
		if err := config.awaitTurn(ctx, asker, key); err != nil {
			return nil, err
		}
		stream, err := open(ctx, description, conn, method, options...)
		if err != nil {
			reportStatus(ctx, asker, key, err, nil)
			return nil, err
		}
		return &reportedStream{ClientStream: stream, asker: asker, key: key}, nil
	}
}

// A reportedStream reports that it was let through, and how it ends.
type reportedStream struct {
	grpc.ClientStream
	asker        *asking.Asker
	key          gatehouse.Key
	passed, over sync.Once
}

// RecvMsg implements [grpc.ClientStream]. The error that it ends with is that of the call.
func (s *reportedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil || err == io.EOF { //nolint:errorlint // gRPC returns it bare
		s.passed.Do(func() { reportStatus(s.Context(), s.asker, s.key, nil, nil) })
	} else {
		s.over.Do(func() { reportStatus(s.Context(), s.asker, s.key, err, s.Trailer()) })
	}
	return err
}

// reportStatus tells the limiter that a call was let through, or of an answer that says to come back later.
func reportStatus(
	ctx context.Context, asker *asking.Asker, key gatehouse.Key, err error, trailer metadata.MD,
) {
	if key == (gatehouse.Key{}) {
		return
	}
	f := gatehouse.Feedback{Status: http.StatusOK}
	switch s := status.Convert(err); s.Code() {
	case codes.OK:
	case codes.ResourceExhausted:
		// gRPC says so of messages that are too large, too, and no pause would make them smaller.
		if isAboutSize(s.Message()) {
			return
		}
		f.Status, f.RetryAfter = gatehouse.StatusTooMany, retryAfter(s, trailer)
	case codes.Unavailable:
		f.Status, f.RetryAfter = gatehouse.StatusUnavailable, retryAfter(s, trailer)
	default:
		return
	}
	asker.ReportAnswer(ctx, key, f)
}

// isAboutSize reports whether the message of a RESOURCE_EXHAUSTED is about the size of a message, as gRPC for
// Go words it at both ends.
func isAboutSize(text string) bool {
	return strings.Contains(text, "message") &&
		(strings.Contains(text, "larger than max") || strings.Contains(text, "too large"))
}

// retryAfter is how long a third party wants no call, by its trailer or by google.rpc.RetryInfo; 0 if it does
// not say.
func retryAfter(s *status.Status, trailer metadata.MD) time.Duration {
	if values := trailer.Get(pushback); len(values) > 0 {
		// A negative one says not to try again, and when is not known.
		ms, err := strconv.ParseInt(values[0], 10, 32)
		if err == nil && ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return min(max(0, info.GetRetryDelay().AsDuration()), gatehouse.MaxDuration)
		}
	}
	return 0
}
