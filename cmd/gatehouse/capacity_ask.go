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

// A question is one call to a server. It returns who the master is if the server is not.
type question func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error)

const (
	// mostRedirects is how often one server may send us to the next. More are servers that do not agree.
	mostRedirects = 5
	// electionPause is between two rounds while no server knows a master.
	electionPause = 500 * time.Millisecond
)

// ask puts a question to the master: to each of the servers until one of them answers, and then wherever that
// one leads. While there is no master it asks again, until the timeout.
func (o *capacityOptions) ask(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for round := 1; ; round++ {
		known, err := o.askAround(ctx, q)
		deadline, _ := ctx.Deadline()
		if errors.Is(err, errNoAnswer) && round > 1 && time.Until(deadline) <= 0 {
			return o.masterless() // in the rounds before somebody answered
		}
		if known || err != nil {
			return err
		}
		select {
		case <-time.After(electionPause):
		case <-ctx.Done():
			return o.masterless()
		}
	}
}

// masterless is the error when servers answered, but none of them knew a master until the timeout.
func (o *capacityOptions) masterless() error {
	return fmt.Errorf("%s knows no master after %s; is one of the servers up that can be elected?",
		strings.Join(o.servers, ", "), o.timeout)
}

// errNoAnswer is the error of a round in which no server answers.
var errNoAnswer = errors.New("no server answers; start one by gatehouse serve, or name others by --server")

// askAround asks the servers in turn. known is false if those who answer do not know a master.
func (o *capacityOptions) askAround(ctx context.Context, q question) (known bool, err error) {
	var failed []string
	for i, server := range o.servers {
		// One that does not answer leaves the others their share of the time.
		deadline, _ := ctx.Deadline()
		within := time.Until(deadline) / time.Duration(len(o.servers)-i)
		known, err := askFrom(ctx, within, server, q)
		if err == nil && known || err != nil && !elsewhere(err) {
			return known, err
		}
		if err != nil {
			failed = append(failed, server+": "+err.Error())
		}
	}
	if len(failed) < len(o.servers) {
		return false, nil
	}
	return false, fmt.Errorf("%w: %s", errNoAnswer, strings.Join(failed, "; "))
}

// askFrom asks one server and whoever it leads to.
func askFrom(ctx context.Context, within time.Duration, server string, q question) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for range mostRedirects + 1 {
		master, err := askOne(ctx, server, q)
		if err != nil || master == nil {
			return err == nil, err
		}
		if master.GetMasterAddress() == "" {
			return false, nil
		}
		server = master.GetMasterAddress()
	}
	return false, fmt.Errorf("servers lead to each other, the last time to %s", showName(server))
}

// askOne asks one server.
func askOne(ctx context.Context, server string, q question) (*doormanpb.Mastership, error) {
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", showName(server), err)
	}
	defer func() { _ = conn.Close() }()
	master, err := q(ctx, doormanpb.NewCapacityClient(conn))
	if err != nil {
		state := status.Convert(err)
		return nil, &serverError{state.Code(), state.Message()}
	}
	return master, nil
}

// A serverError is what a server, or the way to it, answers.
type serverError struct {
	code codes.Code
	text string
}

// Error implements error. What comes from elsewhere does not get to the terminal as it is.
func (e *serverError) Error() string { return showName(plainly(e.text)) }

// plainly is what gRPC says of a connection, without all that it puts around it.
func plainly(text string) string {
	before, inside, wrapped := strings.Cut(text, `connection error: desc = "transport: Error while dialing: `)
	if !wrapped {
		return text
	}
	before = strings.TrimSuffix(before, "rpc error: code = Unavailable desc = ")
	return before + strings.TrimSuffix(inside, `"`)
}

// elsewhere reports whether another server may do better.
func elsewhere(err error) bool {
	e, ok := errors.AsType[*serverError](err)
	return ok && (e.code == codes.Unavailable || e.code == codes.DeadlineExceeded)
}
