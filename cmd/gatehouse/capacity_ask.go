package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// A masterCall calls one server. It returns nil if that server is the master and has answered, or else what
// the server knows about the master.
type masterCall func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error)

const (
	// maxRedirects is how often one server may name another as the master. After more, the servers disagree.
	maxRedirects = 5
	// electionPause is the time between two rounds while no server knows a master.
	electionPause = 500 * time.Millisecond
)

// callMaster makes a call to the master. It tries the servers in turn until one answers, and follows its
// answer to the master. While there is no master it tries again, until the timeout.
//
//	callMaster      rounds, until there is a master
//	callServers     a round: each server in turn
//	callFollowing   one server, and the masters that it names
//	callServer      one call
func (o *capacityOptions) callMaster(ctx context.Context, call masterCall) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for round := 1; ; round++ {
		known, err := o.callServers(ctx, call)
		// The timeout cuts the last round off, which then looks as if no server was there. But there is a
		// second round only after servers have answered, and the user should learn that.
		deadline, _ := ctx.Deadline()
		if errors.Is(err, errNoAnswer) && round > 1 && time.Until(deadline) <= 0 {
			return o.noMasterError()
		}
		if known || err != nil {
			return err
		}
		select {
		case <-time.After(electionPause):
		case <-ctx.Done():
			return o.noMasterError()
		}
	}
}

// noMasterError returns the error for servers that answered, but knew no master until the timeout.
func (o *capacityOptions) noMasterError() error {
	return fmt.Errorf("%s knows no master after %s; is one of the servers up that can be elected?",
		strings.Join(o.servers, ", "), o.timeout)
}

// errNoAnswer is the error of a round in which no server answered.
var errNoAnswer = errors.New(
	"no server responds; start one with gatehouse serve, or name others with --server")

// callServers tries the servers in turn. known is false if servers answered but none knew a master.
func (o *capacityOptions) callServers(ctx context.Context, call masterCall) (known bool, err error) {
	var failed []string
	for i, server := range o.servers {
		// A server that does not answer must leave the others time. Each gets its share of what is left.
		deadline, _ := ctx.Deadline()
		within := time.Until(deadline) / time.Duration(len(o.servers)-i)
		known, err := callFollowing(ctx, within, server, call)
		if err == nil && known || err != nil && !mayTryNext(err) {
			return known, err
		}
		if err != nil {
			failed = append(failed, server+": "+err.Error())
		}
	}
	if len(failed) < len(o.servers) {
		return false, nil // at least one is up: an election may be on
	}
	return false, fmt.Errorf("%w: %s", errNoAnswer, strings.Join(failed, "; "))
}

// callFollowing calls one server, and then the master that it names.
func callFollowing(
	ctx context.Context, within time.Duration, server string, call masterCall,
) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for range maxRedirects + 1 {
		master, err := callServer(ctx, server, call)
		if err != nil || master == nil {
			return err == nil, err
		}
		if master.GetMasterAddress() == "" {
			return false, nil
		}
		server = master.GetMasterAddress() // which may have lost the election since, and name another
	}
	return false, fmt.Errorf("servers lead to each other, the last time to %s", showName(server))
}

// callServer calls one server, over a connection of its own.
func callServer(ctx context.Context, server string, call masterCall) (*doormanpb.Mastership, error) {
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", showName(server), err)
	}
	defer func() { _ = conn.Close() }()
	master, err := call(ctx, doormanpb.NewCapacityClient(conn))
	if err != nil {
		// The errors of gRPC print codes and its own name around the message. Users get the message only.
		state := status.Convert(err)
		return nil, &serverError{state.Code(), state.Message()}
	}
	return master, nil
}

// A serverError is an error from a server or from the connection to it.
type serverError struct {
	code codes.Code
	text string
}

// Error implements error. The text comes from another machine, and is quoted if it could harm a terminal.
func (e *serverError) Error() string { return showName(stripDialWrapping(e.text)) }

// stripDialWrapping returns gRPC's error about a connection without the words that gRPC puts around it.
func stripDialWrapping(text string) string {
	before, inside, wrapped := strings.Cut(text, `connection error: desc = "transport: Error while dialing: `)
	if !wrapped {
		return text
	}
	before = strings.TrimSuffix(before, "rpc error: code = Unavailable desc = ")
	return before + strings.TrimSuffix(inside, `"`)
}

// mayTryNext reports whether another server may succeed: this one is not there. Any other error is the
// answer.
func mayTryNext(err error) bool {
	e, ok := errors.AsType[*serverError](err)
	return ok && (e.code == codes.Unavailable || e.code == codes.DeadlineExceeded)
}
