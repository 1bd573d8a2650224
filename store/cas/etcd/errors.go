package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/gatehousehq/gatehouse/store/cas"
)

// sentTracker notes of a call whether any of it was handed to a connection. One of which nothing was has done
// nothing, whatever its error.
type sentTracker struct{}

// withSentFlag has it noted in sent when a call made with this context goes out.
func withSentFlag(ctx context.Context, sent *atomic.Bool) context.Context {
	return context.WithValue(ctx, sentTracker{}, sent)
}

// TagRPC implements stats.Handler.
func (sentTracker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (sentTracker) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentTracker{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagConn implements stats.Handler.
func (sentTracker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sentTracker) HandleConn(context.Context, stats.ConnStats) {}

var (
	// lastingErrors are answers of etcd that do not change soon. It has done nothing, except for what
	// readAfterNoSpace is about.
	lastingErrors = []error{
		rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrCorrupt,
		rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound,
		rpctypes.ErrLeaseTTLTooLarge,
	}
	// passingErrors are answers that come before etcd does anything, and are others soon.
	passingErrors = []error{
		rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseExist,
		rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	}
)

// classifyError says what is known of a call that failed: whether it may have had an effect.
func classifyError(err error, sent bool) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc(lastingErrors, is), tooLarge(err):
		return fmt.Errorf("%w: %w", cas.ErrRefused, err)
	// Nothing left this process, or etcd refused it before it did anything.
	case !sent, slices.ContainsFunc(passingErrors, is), proposalDropped(err):
		return fmt.Errorf("%w: %w", cas.ErrNotSent, err)
	}
	return err
}

// tooLarge reports whether gRPC did not take a request because of its size. Answers have no bound.
func tooLarge(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max")
}

// proposalDropped reports whether the member had no leader to give a proposal to. etcd has no code for this.
func proposalDropped(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unknown && s.Message() == "raft proposal dropped"
}

// mayBeDone reports whether a call that failed so may have had an effect.
func mayBeDone(err error) bool {
	return !errors.Is(err, cas.ErrRefused) && !errors.Is(err, cas.ErrNotSent)
}
