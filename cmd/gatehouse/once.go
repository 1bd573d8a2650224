package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/supervisor"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// onceOptions are the options of once. A firing is one time at which a job is due. It has three names:
//
//	lock  once/JOB/AT/running   held while the command runs, and renewed: the host that gets it next
//	                            knows that the command has ended, or that its host has died
//	lock  once/JOB/AT           the claim, held for as long as it is kept, by the host that ran the command
//	event once/JOB/AT           how the command ended: the status, and with --share the output
//
// If there is a claim and no event, and the command does not run, its host died or lost the lock.
type onceOptions struct {
	runOptions
	job, at, expect string
	keep            time.Duration
	share, retry    bool

	patience time.Duration // of the watchdog, by expect; 0 if nothing is expected
	claimed  bool          // this host runs the command
	output   *lastOutput
}

func newOnce() *cobra.Command {
	o := &onceOptions{}
	cmd := &cobra.Command{
		Use:   "once --job NAME --at TIME [flags] -- COMMAND [ARGUMENT]...",
		Short: "Run a command once on one of many hosts, each time it is due",
		Long: "Run a command on one of the hosts that start it for the same job and time, and end on the\n" +
			"others with its status. However their clocks and the lengths of runs differ, one firing is\n" +
			"run at most once: if its host dies the others learn that it was lost, and with --retry one\n" +
			"of them runs it.",
		Example: "  gatehouse once --job digest --at 2026-10-01T03:00Z -- ./send-digest\n" +
			"  gatehouse once --job digest --at $(date -u +%FT03:00Z) --expect every=24h,grace=20m -- ./send",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.runFiring(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	// What follows the command is its own, also if it looks like a flag of this program.
	f.SetInterspersed(false)
	f.StringVar(&o.job, "job", "", "the name of the job")
	f.StringVar(&o.at, "at", "",
		"when this firing was due, such as 2026-10-01T03:00Z: the same on every host")
	f.DurationVar(&o.keep, "keep", gatehouse.DefaultKeep, "how long it is known that the firing was run")
	f.BoolVar(&o.share, "share", false,
		"keep the last 4,000 bytes of its output, and print them on the others")
	f.BoolVar(&o.retry, "retry", false, "run it again on another host if the first one died")
	f.StringVar(&o.expect, "expect", "",
		"every=24h,grace=20m has the watchdog once/JOB fire when a firing was missed, or failed")
	o.addRunFlags(f)
	return cmd
}

// sharedOutput is how many bytes of the output the others are shown.
const sharedOutput = 4000

// firing is the name of the firing.
func (o *onceOptions) firing() string { return "once/" + o.job + "/" + o.at }

// errRanElsewhere ends a once whose firing another host has run.
type errRanElsewhere struct {
	status int
	output string
}

// Error implements error.
func (e *errRanElsewhere) Error() string { return fmt.Sprintf("it ran elsewhere, status %d", e.status) }

// runFiring runs the command, or learns how another host has.
func (o *onceOptions) runFiring(ctx context.Context, args []string) error {
	// RFC 3339 wants seconds, which a line of cron has no use for.
	at, err := time.Parse("2006-01-02T15:04Z07:00", o.at)
	if err != nil {
		at, err = time.Parse(time.RFC3339, o.at)
	}
	switch {
	case o.job == "" || strings.Contains(o.job, "/"):
		return usageError{fmt.Errorf("--job is %q, want a name without /", o.job)}
	case err != nil:
		return usageError{fmt.Errorf("--at is %q, want a time such as 2026-10-01T03:00Z", o.at)}
	case o.keep < time.Second:
		return usageError{fmt.Errorf("--keep is %s, want at least 1s", o.keep)}
	}
	o.patience, err = readExpect(o.expect)
	if err != nil {
		return usageError{err}
	}
	// Every way to write an instant is the same firing.
	o.at = at.UTC().Format(time.RFC3339)
	if err := o.addMember(gatehouse.Lock, o.firing()+"/running"); err != nil {
		return usageError{err}
	}
	o.before, o.after = o.claimFiring, o.tellOthers
	if o.share {
		o.output, err = newLastOutput()
		if err != nil {
			return err
		}
		o.commandOutput = o.output.write
		defer o.output.close()
	}
	err = o.run(ctx, args)
	// The command ran on another host. This one ends as if it had run here.
	if ran, ok := errors.AsType[*errRanElsewhere](err); ok {
		_, _ = io.WriteString(printTo(os.Stdout), ran.output)
		if ran.status == 0 {
			return nil
		}
		return &statusError{status: ran.status}
	}
	return err
}

// claimFiring claims the firing while its lock is held, or returns how it has ended elsewhere.
func (o *onceOptions) claimFiring(ctx context.Context, c *client.Client) error {
	// Without waiting: this host has the lock, so that a run which has ended has sent its event before.
	d, err := c.Do(ctx, o.event(), gatehouse.Command{Op: gatehouse.OpWait})
	switch {
	case err != nil:
		return err
	case d.Outcome == gatehouse.Granted:
		return readResult(d.Message)
	}
	claim := gatehouse.Key{Kind: gatehouse.Lock, Name: o.firing()}
	if err := o.expectNext(ctx, c, claim); err != nil {
		return err
	}
	// It is held for much longer than the command runs, since hosts that come late learn from it.
	d, err = c.Do(ctx, claim, gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: uuid.NewString(), Cost: 1, Expires: o.keep, Owner: o.owner("once"),
	})
	switch {
	case err != nil:
		return err
	case d.Outcome == gatehouse.Granted || o.retry:
		o.claimed = true
		return nil
	}
	return &statusError{statusLost, fmt.Errorf(
		"%s was begun elsewhere, and that host died or lost it; --retry runs it again", o.firing())}
}

// readResult is how the firing ended elsewhere, by the message of its event: "STATUS\nOUTPUT".
func readResult(message string) error {
	first, output, _ := strings.Cut(message, "\n")
	status, err := strconv.ParseUint(first, 10, 8) // a larger one would end this program with another
	if err != nil {
		return fmt.Errorf("the event of the firing says %q, want a status: somebody else has sent it", first)
	}
	return &errRanElsewhere{int(status), output}
}

// tellOthers sends the event of the firing, while the lock is still held: the next holder finds it.
func (o *onceOptions) tellOthers(c *client.Client, exit *supervisor.Exit, lost bool) {
	if !o.claimed || lost {
		return // another may have begun: that this one failed to end it is all there is to know
	}
	message := strconv.Itoa(exit.Status) + "\n"
	if o.output != nil {
		message += o.output.last()
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.expires/6)
	defer cancel()
	_, err := c.Do(ctx, o.event(), gatehouse.Command{Op: gatehouse.OpSend, Message: message})
	if err == nil && o.patience > 0 && exit.Status != 0 {
		// A kick without patience has the watchdog fire at once.
		_, err = c.Do(ctx, o.watchdog(), gatehouse.Command{Op: gatehouse.OpKick})
	}
	if err != nil {
		printNote("others will think that this firing was lost: %v", err)
	}
}

// event is the one that says how the firing ended.
func (o *onceOptions) event() gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Event, Name: o.firing()}
}

// watchdog is the one that fires when a firing was missed.
func (o *onceOptions) watchdog() gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Watchdog, Name: "once/" + o.job}
}

// expectNext has the watchdog fire unless the next firing begins in time. It does so before the firing is
// claimed: if it fails, another host can still run it. One that was lost has no part in this.
func (o *onceOptions) expectNext(ctx context.Context, c *client.Client, claim gatehouse.Key) error {
	if o.patience == 0 {
		return nil
	}
	d, err := c.Do(ctx, claim, gatehouse.Command{Op: gatehouse.OpHolders, Amount: 1})
	if err != nil {
		return err
	}
	// There is a claim and no event, so that its host has died. Without --retry this one will run nothing.
	lost := d.Report != nil && len(d.Report.Holders) > 0 && !o.retry
	if lost {
		return nil
	}
	_, err = c.Do(ctx, o.watchdog(), gatehouse.Command{Op: gatehouse.OpKick, Expires: o.patience})
	return err
}

// readExpect reads how long after a firing the next one must have begun; 0 if nothing is expected.
func readExpect(text string) (patience time.Duration, err error) {
	if text == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, length, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(length)
		if err != nil || d <= 0 || name != "every" && name != "grace" {
			return 0, fmt.Errorf("--expect is %q, want every=DURATION,grace=DURATION", text)
		}
		// Both together: the next firing begins a period later, and may be late by the grace.
		patience += d
	}
	return patience, nil
}
