package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A leaseReport is a lease as it is printed.
type leaseReport struct {
	Client   string  `json:"client_id"`
	Resource string  `json:"resource_id"`
	Wants    float64 `json:"wants"`
	Capacity float64 `json:"capacity"`
	Expiry   int64   `json:"expiry_time"`
	Refresh  int64   `json:"refresh_interval"`
	Safe     float64 `json:"safe_capacity"`
	Learning int64   `json:"learning_seconds,omitempty"` // of the server, at most
}

func newCapacityGet(o *capacityOptions) *cobra.Command {
	var priority int64
	var release bool
	cmd := &cobra.Command{
		Use:   "get RESOURCE WANTS",
		Short: "Get a lease, and print it",
		Long: "Get a lease, and print it. The client holds it until it expires or the client releases it.\n" +
			"Getting it again renews it, and may change the amount.",
		Example: "  gatehouse capacity get database 10\n" +
			"  gatehouse capacity get database 10 --release --json",
		Args: exactArgs("RESOURCE", "WANTS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wants, err := readAmount(args[1])
			if err != nil {
				return usageError{err}
			}
			report := leaseReport{Client: o.clientName(), Resource: args[0], Wants: wants}
			if err := o.callMaster(cmd.Context(), report.getCall(priority)); err != nil {
				return err
			}
			// Printed first: if giving it back fails, the user still knows what is held, and until when.
			if err := o.printLease(cmd.OutOrStdout(), &report); err != nil || !release {
				return err
			}
			return o.callMaster(cmd.Context(), releaseCall(report.Client, report.Resource))
		},
	}
	o.addClient(cmd, "name of the client (default your user name on this machine)")
	addPriority(cmd, &priority)
	cmd.Flags().BoolVar(&release, "release", false, "give the lease back at once")
	return cmd
}

// addPriority adds the option --priority.
func addPriority(cmd *cobra.Command, priority *int64) {
	cmd.Flags().Int64Var(priority, "priority", 0,
		"priority of the request; the highest is served first, if the resource uses priorities")
}

func newCapacityRelease(o *capacityOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release RESOURCE...",
		Short:   "Give leases back",
		Long:    "Give back leases that get has taken. Releasing a lease that is not held is no error.",
		Example: "  gatehouse capacity release database",
		// One or more: exactArgs is only for the text of the error.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactArgs("RESOURCE")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.callMaster(cmd.Context(), releaseCall(o.clientName(), args...))
		},
	}
	o.addClient(cmd, "name of the client that holds them (default your user name on this machine)")
	return cmd
}

// getCall returns the call that requests the lease and fills in the report.
func (r *leaseReport) getCall(priority int64) masterCall {
	return func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
		answer, err := to.GetCapacity(ctx, &doormanpb.GetCapacityRequest{
			ClientId: &r.Client,
			Resource: []*doormanpb.ResourceRequest{
				{ResourceId: &r.Resource, Priority: &priority, Wants: &r.Wants},
			},
		})
		if err != nil || answer.GetMastership() != nil {
			return answer.GetMastership(), err
		}
		// One resource was asked for, but the protocol does not exclude that others come with it.
		for _, got := range answer.GetResponse() {
			if got.GetResourceId() != r.Resource {
				continue
			}
			lease := got.GetGets()
			r.Capacity, r.Safe = lease.GetCapacity(), got.GetSafeCapacity()
			r.Expiry, r.Refresh = lease.GetExpiryTime(), lease.GetRefreshInterval()
			r.Learning = doormanpb.LearningSeconds(got)
			return nil, nil
		}
		return nil, fmt.Errorf("the response has no resource %q", r.Resource)
	}
}

// releaseCall returns the call that gives leases back.
func releaseCall(client string, resources ...string) masterCall {
	return func(ctx context.Context, to doormanpb.CapacityClient) (*doormanpb.Mastership, error) {
		answer, err := to.ReleaseCapacity(ctx, &doormanpb.ReleaseCapacityRequest{
			ClientId: &client, ResourceId: resources,
		})
		// The answer of a master has no mastership. Nothing else in it matters.
		return answer.GetMastership(), err
	}
}

// printLease prints a lease as a table with one row, or as JSON.
func (o *capacityOptions) printLease(out io.Writer, r *leaseReport) error {
	if o.json {
		return writeJSON(out, r)
	}
	expiry := time.Unix(r.Expiry, 0)
	err := printTable(out, []string{"CLIENT", "RESOURCE", "CAPACITY", "WANTS", "EXPIRES", "REFRESH", "SAFE"},
		[][]string{{
			doormanpb.ShowName(r.Client), doormanpb.ShowName(r.Resource),
			doormanpb.ShowAmount(r.Capacity), doormanpb.ShowAmount(r.Wants),
			expiry.Format(time.TimeOnly), (time.Duration(r.Refresh) * time.Second).String(),
			doormanpb.ShowAmount(r.Safe),
		}})
	// Below the table: an amount of 0 during that time looks like a refusal and is none.
	if err == nil && r.Learning > 0 {
		_, err = fmt.Fprintf(out, "The server started lately and is learning the leases of its clients, "+
			"for %s at most. Until then clients get what they had before, and nothing more.\n",
			time.Duration(r.Learning)*time.Second)
	}
	return err
}

// printTable prints rows in aligned columns.
func printTable(out io.Writer, head []string, rows [][]string) error {
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		_, _ = fmt.Fprintln(columns, strings.Join(row, "\t")) // an error comes back from Flush
	}
	return columns.Flush()
}

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
		known, err := o.callFollowing(ctx, within, server, call)
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
func (o *capacityOptions) callFollowing(
	ctx context.Context, within time.Duration, server string, call masterCall,
) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for range maxRedirects + 1 {
		master, err := o.callServer(ctx, server, call)
		if err != nil || master == nil {
			return err == nil, err
		}
		// There is no master during an election. The caller waits, and starts again with the first server.
		if master.GetMasterAddress() == "" {
			return false, nil
		}
		server = master.GetMasterAddress() // which may have lost the election since, and name another
	}
	return false, fmt.Errorf("servers lead to each other, the last time to %s", doormanpb.ShowName(server))
}

// callServer calls one server, over a connection of its own.
func (o *capacityOptions) callServer(
	ctx context.Context, server string, call masterCall,
) (*doormanpb.Mastership, error) {
	conn, err := grpc.NewClient(server, o.dial...)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", doormanpb.ShowName(server), err)
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
func (e *serverError) Error() string { return doormanpb.ShowName(stripDialWrapping(e.text)) }

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
