package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/spf13/cobra"
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
			showName(r.Client), showName(r.Resource), showAmount(r.Capacity), showAmount(r.Wants),
			expiry.Format(time.TimeOnly), (time.Duration(r.Refresh) * time.Second).String(),
			showAmount(r.Safe),
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
		for i, cell := range row {
			if i > 0 {
				_, _ = io.WriteString(columns, "\t") // an error comes back from Flush
			}
			_, _ = io.WriteString(columns, cell)
		}
		_, _ = io.WriteString(columns, "\n")
	}
	return columns.Flush()
}
