package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/spf13/cobra"
)

func newData() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Inspect the directory of --store disk:DIR while no server uses it",
	}
	cmd.AddCommand(newDataCheck(), newDataDump())
	return cmd
}

// errDamaged is the error of a check that found damage, which it has printed.
var errDamaged = errors.New("the data is damaged")

func newDataCheck() *cobra.Command {
	asJSON, drop := false, false
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "List what a directory holds, and which parts are damaged",
		Long: "List what a directory holds, and which parts are damaged. The status is 0 if none is.\n" +
			"--drop copies everything that is not damaged to a new file, and keeps the old one beside it.",
		Example: "  gatehouse data check /var/lib/gatehouse\n" +
			"  gatehouse data check --drop /var/lib/gatehouse",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Both look for damage. Drop makes a new file without it besides.
			check := disk.Check
			if drop {
				check = disk.Drop
			}
			r, err := check(args[0])
			if err != nil {
				return err
			}
			write := printReport
			if asJSON {
				write = printReportJSON
			}
			if err := write(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			// Old is the name of the file before Drop. With it the damage is gone, and the status 0.
			if len(r.Faults) > 0 && r.Old == "" {
				return fmt.Errorf("%s: %w; a copy from before, or \"gatehouse data check --drop %s\", helps",
					r.File, errDamaged, args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().BoolVar(&drop, "drop", false, "copy everything that is not damaged to a new file")
	return cmd
}

// printReport prints a report for people.
func printReport(out io.Writer, r *disk.CheckReport) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %d bytes, last written %s\n", r.File, r.Bytes, r.Last.UTC().Format(time.RFC3339))
	// The first kind is 1, since 0 is no kind. Kinds without names are left out.
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if n := r.Names[kind]; n > 0 {
			fmt.Fprintf(&text, "%10d  %s\n", n, kind)
		}
	}
	fmt.Fprintf(&text, "%10d  holds of semaphores\n", r.Holds)
	for _, fault := range r.Faults {
		fmt.Fprintf(&text, "damaged: %s\n", fault)
	}
	switch {
	case r.More > 0:
		fmt.Fprintf(&text, "and %d more\n", r.More)
	case len(r.Faults) == 0:
		text.WriteString("nothing is damaged\n")
	}
	// Last, because it tells where everything above can still be found.
	if r.Old != "" {
		fmt.Fprintf(&text, "a new file was made without it; as it was it is %s\n", r.Old)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// printReportJSON prints a report as one line of JSON.
func printReportJSON(out io.Writer, r *disk.CheckReport) error {
	names := make(map[string]int)
	for kind, n := range r.Names {
		names[kind.String()] = n
	}
	// Without faults the list is empty and not null, so that a program can count it.
	return json.NewEncoder(out).Encode(map[string]any{
		"file": r.File, "bytes": r.Bytes, "last": r.Last.UTC(), "names": names, "holds": r.Holds,
		"faults": append([]string{}, r.Faults...), "more_faults": r.More, "old": r.Old,
	})
}

func newDataDump() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print all names in a directory, one JSON object per line",
		Example: "  gatehouse data dump /var/lib/gatehouse\n" +
			"  gatehouse data dump --kind lock,semaphore /var/lib/gatehouse | jq .holds",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range only {
				if _, ok := gatehouse.ParseKind(name); !ok {
					return usageError{fmt.Errorf("--kind is %q, want one such as lock or counter", name)}
				}
			}
			// Each name is printed when it is read: a directory may have more names than fit into memory
			// twice.
			lines := json.NewEncoder(cmd.OutOrStdout())
			visit := func(now time.Time, key gatehouse.Key, state control.State) error {
				if len(only) > 0 && !slices.Contains(only, key.Kind.String()) {
					return nil
				}
				return lines.Encode(dumpState(now, key, state))
			}
			// What is not damaged is printed even if something is; then the status says so.
			r, err := disk.Dump(args[0], visit)
			if err == nil && len(r.Faults) > 0 {
				err = fmt.Errorf("%s: %w, and not all was printed; \"gatehouse data check %s\" says why",
					r.File, errDamaged, args[0])
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&only, "kind", nil, "print only these kinds")
	return cmd
}

// A dumpedHold is a hold as it is printed.
type dumpedHold struct {
	Holder  string    `json:"holder"`
	Fence   uint64    `json:"fence"`
	Cost    int64     `json:"cost"`
	Expires int64     `json:"expires"` // in milliseconds
	Until   time.Time `json:"until,omitzero"`
}

// A dumpedName is a name and its state, as they are printed.
type dumpedName struct {
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Expiry  time.Time      `json:"expiry,omitzero"` // when the state may be forgotten; zero for never
	Figures map[string]any `json:"figures"`
	Holds   []dumpedHold   `json:"holds,omitempty"`
	Message string         `json:"message,omitempty"`
}

// neverExpires is the time from now from which on an expiry means that a state never expires.
const neverExpires = 200 * 365 * 24 * time.Hour

// dumpState returns what is printed of a state. It may change the state, which must not be used again.
func dumpState(now time.Time, key gatehouse.Key, state control.State) dumpedName {
	d := dumpedName{Kind: key.Kind.String(), Name: key.Name, Figures: make(map[string]any)}
	if expiry := state.Expiry().UTC(); expiry.Sub(now) < neverExpires {
		d.Expiry = expiry
	}
	// A command for statistics has no effect on the state, and gives the same values as over the protocols.
	// Durations become milliseconds here, as in all of the API.
	stats := control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}}
	state.Step(now, &stats)
	for _, stat := range stats.Decision.Stats {
		if length, ok := stat.Value.(time.Duration); ok {
			stat.Value = length.Milliseconds()
		}
		if at, ok := stat.Value.(time.Time); ok {
			stat.Value = at.UTC()
		}
		d.Figures[stat.Name] = stat.Value
	}
	// The statistics of these kinds leave out what makes them up: their holders, and the message.
	switch s := state.(type) {
	case *control.Semaphore:
		for _, h := range s.Holds() {
			d.Holds = append(d.Holds,
				dumpedHold{h.Holder, h.Fence, h.Cost, h.Expires.Milliseconds(), h.Until.UTC()})
		}
	// The wait does not block here: Step decides at one instant, and a sent event grants it.
	case *control.Event:
		wait := control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpWait}}
		s.Step(now, &wait)
		d.Message = wait.Decision.Message
	}
	return d
}
