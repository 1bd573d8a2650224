package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
)

// capacityOptions are the options of all commands of capacity.
type capacityOptions struct {
	tlsOptions
	dial    []grpc.DialOption // as these say
	token   string            // of tokenFile, or of the environment
	servers []string
	client  string
	timeout time.Duration

	tokenFile string
	json      bool
}

// serverVariable is the environment variable with the servers, for use instead of --server.
const serverVariable = "GATEHOUSE_CAPACITY_SERVER"

func newCapacity() *cobra.Command {
	var o capacityOptions
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Request and inspect leases on capacity",
		Long: "Request and inspect leases on capacity, from Gatehouse or from doorman. The status is 0 on\n" +
			"success, 1 on failure, and 2 if the command line is wrong.",
		Example: "  gatehouse capacity get database 10\n" +
			"  gatehouse capacity watch database 10 --server a:5506,b:5506\n" +
			"  gatehouse capacity check capacity.yaml",
		// It runs before each of the commands below, when their flags are known. A flag wins over the
		// variable.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if servers := os.Getenv(serverVariable); servers != "" && !cmd.Flags().Changed("server") {
				o.servers = strings.Split(servers, ",")
			}
			secure, err := o.tlsConfig()
			if err != nil {
				return err
			}
			o.token, err = readToken(o.tokenFile)
			if err != nil {
				return usageError{err}
			}
			o.dial = []grpc.DialOption{doormanpb.Credentials(secure)}
			if o.token != "" {
				o.dial = append(o.dial, grpc.WithPerRPCCredentials(doormanpb.BearerToken(o.token)))
			}
			return o.checkOptions()
		},
	}
	f := cmd.PersistentFlags()
	f.StringSliceVar(&o.servers, "server", []string{"localhost:5506"},
		"addresses of servers, tried in turn; also "+serverVariable)
	o.addTLSFlags(f)
	addTokenFile(f, &o.tokenFile)
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest time to wait for a response")
	f.BoolVar(&o.json, "json", false, "print JSON, for programs")
	cmd.AddCommand(newCapacityGet(&o), newCapacityRelease(&o), newCapacityWatch(&o), newCapacityShell(&o),
		newCapacityCheck(&o))
	return cmd
}

// checkOptions returns a usage error if an option of all commands cannot work.
func (o *capacityOptions) checkOptions() error {
	if o.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout is %s, want it above 0", o.timeout)}
	}
	for _, server := range o.servers {
		// gRPC would add the port 443, and its error would be about a port that the user has not given.
		if !strings.Contains(server, ":") {
			return usageError{fmt.Errorf("--server has %q, want an address such as localhost:5506", server)}
		}
	}
	if len(o.servers) == 0 {
		return usageError{errors.New("--server is empty, want an address such as localhost:5506")}
	}
	return nil
}

// addClient adds the option --client.
func (o *capacityOptions) addClient(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&o.client, "client", "", usage)
}

// clientName returns the name under which to ask. Without --client it is the same in each run by one user on
// one machine, so that a release finds the lease of a get.
func (o *capacityOptions) clientName() string {
	if o.client != "" {
		return o.client
	}
	// A user or host that cannot be found out is no error: the name only has to be the same next time.
	owner := localOwner()
	return cmp.Or(owner.Name, "somebody") + "@" + cmp.Or(owner.Host, "localhost")
}

// exactArgs returns a check for exactly these arguments, whose error names them.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageError{fmt.Errorf("%s has %d arguments, want %s", cmd.CommandPath(), len(args),
			cmp.Or(strings.Join(names, " "), "none"))}
	}
}

// readAmount parses an amount of capacity, which is 0 or more and finite.
func readAmount(text string) (float64, error) {
	amount, err := strconv.ParseFloat(text, 64)
	// ParseFloat takes NaN and Inf, too.
	if err != nil || math.IsNaN(amount) || math.IsInf(amount, 0) || amount < 0 {
		return 0, fmt.Errorf("%q is no amount, want a number from 0 on", text)
	}
	return amount, nil
}

// writeJSON writes a value as one line of JSON.
func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // names stay as they are: nothing here is put into a page
	return encoder.Encode(value)
}

func newCapacityCheck(o *capacityOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "check SOURCE",
		Short: "Check a capacity configuration, and list its faults",
		Long: "Check a capacity configuration, doorman's or ours, as the server would; list its faults.\n" +
			"SOURCE is a file, etcd://HOST:PORT/KEY, or - for standard input.",
		Example: "  gatehouse capacity check capacity.yaml",
		Args:    exactArgs("SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			// Loading is the check: it refuses whatever the server would refuse.
			templates, version, err := loadCapacity(ctx, args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(cmd.OutOrStdout(), struct {
					Version   string `json:"version"`
					Templates int    `json:"templates"`
				}{version, len(templates)})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid and has %d templates\n",
				version, len(templates))
			return err
		},
	}
}

// loadCapacity reads templates from a source, or from standard input.
func loadCapacity(ctx context.Context, source string, in io.Reader) (capacity.Templates, string, error) {
	if source != "-" {
		return config.LoadCapacity(ctx, source)
	}
	// One byte more than is allowed, for ParseCapacity to see that it is too much.
	text, err := io.ReadAll(io.LimitReader(in, config.MaxSize+1))
	if err != nil {
		return nil, "", fmt.Errorf("standard input: %w", err)
	}
	templates, err := config.ParseCapacity(text)
	return templates, "standard input", err
}
