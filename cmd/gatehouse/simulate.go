package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/gatehousehq/gatehouse/internal/simulate"
	"github.com/gatehousehq/gatehouse/internal/smallfile"
	"github.com/spf13/cobra"
)

// maxSeeds is the most runs of one command.
const maxSeeds = 100_000

// A simulation has the values of the command's flags.
type simulation struct {
	seed, seeds       uint64
	asJSON, list, raw bool
	svg               string
	out               io.Writer
}

func newSimulate() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO...",
		Short: "Run servers and clients of capacity leases in virtual time",
		Long: "Run servers and clients of capacity leases in virtual time. The scenario is a file, or one\n" +
			"that is built in. The command fails if an expectation of the scenario is not met.",
		Example: "  gatehouse simulate --list\n" +
			"  gatehouse simulate seven --svg seven.svg\n" +
			"  gatehouse simulate --print seven > mine.yaml\n" +
			"  gatehouse simulate mine.yaml --seeds 100",
		// Only --list needs no scenario.
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !s.list {
				return usageError{errors.New("no scenario, want a file, or a name that --list shows")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s.out = cmd.OutOrStdout()
			return s.runScenarios(args)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the first run; the same seed gives the same report")
	flags.Uint64Var(&s.seeds, "seeds", 1, "number of runs, each with the next seed")
	flags.BoolVar(&s.asJSON, "json", false, "print JSON, for programs, one object for each run")
	flags.StringVar(&s.svg, "svg", "", "draw the first run into this file")
	flags.BoolVar(&s.list, "list", false, "list the built-in scenarios")
	flags.BoolVar(&s.raw, "print", false, "print the scenario's file, as a start for your own")
	return cmd
}

func (s *simulation) runScenarios(args []string) error {
	switch {
	case s.list:
		return s.listAll()
	case s.seeds < 1 || s.seeds > maxSeeds:
		return usageError{fmt.Errorf("--seeds is %d, want 1 to %d", s.seeds, maxSeeds)}
	}
	// A missed expectation does not end the command: a later seed may show more. An error in a scenario does.
	missed := 0
	for i, arg := range args {
		name, text, err := scenarioText(arg)
		if err != nil {
			return err
		}
		if s.raw {
			s.print("%s", text)
			continue
		}
		scenario, err := simulate.Read(name, text)
		if err != nil {
			return err
		}
		n, err := s.runSeeds(scenario, i == 0)
		if err != nil {
			return err
		}
		missed += n
	}
	if missed > 0 {
		return fmt.Errorf("simulate: %d of %d runs missed an expectation", missed, uint64(len(args))*s.seeds)
	}
	return nil
}

// scenarioText returns the scenario of that name, or else the content of that file.
func scenarioText(arg string) (name string, text []byte, err error) {
	if text, ok := simulate.File(arg); ok {
		return arg + ".yaml", text, nil
	}
	// The scenarios of the program come first. A file of the same name can be given as ./NAME.
	text, err = smallfile.Read(arg, smallfile.Wanted{What: "a scenario", Size: simulate.MaxSize, Piped: true})
	if err != nil {
		return "", nil, fmt.Errorf("simulate: %w; --list shows the scenarios that need no file", err)
	}
	return arg, text, nil
}

// runSeeds runs one scenario with all seeds, and returns how many of the runs missed an expectation. If draw
// is set, the first run is drawn.
func (s *simulation) runSeeds(scenario *simulate.Scenario, draw bool) (missed int, err error) {
	for i := range s.seeds {
		begin := time.Now()
		report := simulate.Run(scenario, s.seed+i)
		if !report.Holds() {
			missed++
		}
		// One run is shown in full, many with a line each. JSON has no time of running in it, so that the
		// same seed gives the same bytes.
		switch {
		case s.asJSON:
			s.print("%s", report.JSON())
		case s.seeds == 1:
			s.print("%s\nran in %v\n", report.Text(), time.Since(begin).Round(time.Millisecond))
		default:
			s.print("%s\n", report.Line())
		}
		if !draw || i > 0 || s.svg == "" {
			continue
		}
		if err := os.WriteFile(s.svg, report.SVG(), 0o644); err != nil { // a picture
			return missed, fmt.Errorf("simulate: %w", err)
		}
	}
	return missed, nil
}

// listAll prints the names and titles of the scenarios that are part of the program.
func (s *simulation) listAll() error {
	// All of them are parsed, for their titles. That one cannot be is a bug of the program.
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, name := range simulate.Shipped() {
		text, _ := simulate.File(name)
		scenario, err := simulate.Read(name+".yaml", text)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\n", name, scenario.Title)
	}
	return table.Flush()
}

// print writes to standard output. An error is ignored: there is no other place to report it to.
func (s *simulation) print(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format, args...) }
