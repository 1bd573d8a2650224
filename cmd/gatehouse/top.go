package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// topOptions are the options of top.
type topOptions struct {
	remoteOptions
	every time.Duration
	once  bool
}

// newTop returns top.
func newTop() *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use:   "top [KIND[/PREFIX]]",
		Short: "Show the busiest names, again and again",
		Long: "Show the busiest names, again and again: those at which most wait come first, then\n" +
			"those that are asked most. ^C ends it.",
		Example: "  gatehouse top\n" +
			"  gatehouse top semaphore/ci-",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// ^C is how it is meant to end, and no failure.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return o.showNames(ctx, cmd, append(args, "")[0])
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.every, "every", 2*time.Second, "the time between two looks")
	f.BoolVar(&o.once, "once", false, "look twice, print the table once, and end")
	o.addFlags(f)
	return cmd
}

// A rate is how often a name was asked in the last while.
type rate struct {
	nameRow
	grantedRate, refusedRate float64 // a second
}

// topNames is how many names of each kind are looked at.
const topNames = 1000

// showNames shows the names until ctx ends.
func (o *topOptions) showNames(ctx context.Context, cmd *cobra.Command, which string) error {
	if o.every < 100*time.Millisecond {
		return usageError{fmt.Errorf("--every is %s, want at least 100ms", o.every)}
	}
	names, err := listed(which)
	if err != nil {
		return usageError{err}
	}
	c, err := o.newClient()
	if err != nil {
		return err
	}
	defer c.Close()
	look := func() ([]nameRow, error) { return names.readNames(ctx, c, topNames) }
	before, err := look()
	// Rates are the difference of two looks, so that the first shows nothing.
	for ; err == nil; before, err = o.showChange(cmd, before, look) {
		if !backoff.Sleep(ctx, o.every) {
			return nil
		}
	}
	// A look that was cut off by the signal has an error, too.
	if ctx.Err() != nil || errors.Is(err, errShown) {
		return nil
	}
	return failure(err)
}

// errShown ends a top that shows its table once.
var errShown = errors.New("shown")

// showChange looks again, and shows what has changed.
func (o *topOptions) showChange(
	cmd *cobra.Command, before []nameRow, look func() ([]nameRow, error),
) ([]nameRow, error) {
	now, err := look()
	if err != nil {
		return nil, err
	}
	rates := ratesOf(before, now, o.every)
	width, height := 80, 24
	live := !o.once && isTerminal(os.Stdout)
	if w, h, err := term.GetSize(int(os.Stdout.Fd())); live && err == nil {
		width, height = w, h
	}
	text := topTable(rates, width, height-1)
	if live {
		// The screen is drawn anew, from its first line.
		_, err = fmt.Fprint(os.Stdout, "\x1b[H\x1b[2J"+showControls(text))
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	}
	if err != nil {
		return nil, err
	}
	if o.once {
		return nil, errShown
	}
	return now, nil
}

// ratesOf compares two looks. Names at which most wait come first, then those that are asked most.
func ratesOf(before, now []nameRow, within time.Duration) []rate {
	old := make(map[[2]string]*nameRow, len(before))
	for i := range before {
		old[[2]string{before[i].Kind, before[i].Name}] = &before[i]
	}
	rates := make([]rate, len(now))
	for i := range now {
		r := rate{nameRow: now[i]}
		if b := old[[2]string{r.Kind, r.Name}]; b != nil {
			// A name that began anew meanwhile has less than before.
			r.grantedRate = max(0, float64(r.Granted-b.Granted)/within.Seconds())
			r.refusedRate = max(0, float64(r.Refused-b.Refused)/within.Seconds())
		}
		rates[i] = r
	}
	slices.SortStableFunc(rates, func(a, b rate) int {
		switch {
		case a.Waiting != b.Waiting:
			return b.Waiting - a.Waiting
		case a.grantedRate+a.refusedRate > b.grantedRate+b.refusedRate:
			return -1
		case a.grantedRate+a.refusedRate < b.grantedRate+b.refusedRate:
			return 1
		}
		return 0
	})
	return rates
}

// figuresWidth is the width of all columns but that of the name.
const figuresWidth = 49

// topTable is the table, as wide and as high as the screen.
func topTable(rates []rate, width, height int) string {
	name := max(20, width-figuresWidth)
	var text strings.Builder
	fmt.Fprintf(&text, "%-*s %8s %8s %7s %7s %6s %6s\n", name, "NAME", "USED", "LIMIT", "HOLDERS", "WAITING",
		"YES/s", "NO/s")
	for i := range rates[:min(len(rates), max(height-1, 1))] {
		r := &rates[i]
		shown := []rune(r.Kind + "/" + doormanpb.ShowName(r.Name))
		// By characters and not by bytes, as Fprintf counts them for the columns.
		if len(shown) > name {
			shown = append(shown[:name-1], '…')
		}
		fmt.Fprintf(&text, "%-*s %8s %8s %7d %7d %6.0f %6.0f\n", name, string(shown), showCount(r.Used),
			showCount(r.Limit), r.Holders, r.Waiting, r.grantedRate, r.refusedRate)
	}
	return text.String()
}

// showCount is a number in at most eight columns.
func showCount(n int64) string {
	switch {
	case n < 10_000_000:
		return fmt.Sprint(n)
	case n < 10_000_000_000:
		return fmt.Sprintf("%dM", n/1_000_000)
	}
	return fmt.Sprintf("%dG", n/1_000_000_000)
}
