package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/supervisor"
	"github.com/gatehousehq/gatehouse/internal/supervisor/guard"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runOptions are the options of run.
type runOptions struct {
	remoteOptions
	ownerOptions
	runNames
	wait, expires time.Duration
	offline       string
	supersede     string
	quiet         bool

	// What once adds: before is called when all is held, and its error ends the run; after is called when
	// the command has ended and all is still held, unless it was lost. The output goes to a file, if any.
	before        func(ctx context.Context, c *client.Client) error
	after         func(c *client.Client, exit *supervisor.Exit, lost bool)
	commandOutput *os.File
}

// minRunExpires is the shortest term: below it a busy machine alone ends a command.
const minRunExpires = 200 * time.Millisecond

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT]...",
		Short: "Run a command while it holds locks, slots and shares of limits",
		Long: "Run a command while it holds locks, slots and shares of limits: all of them, by one grant.\n" +
			"It waits for them, renews them while the command runs, and gives them back after it. If they\n" +
			"are lost, the command gets SIGTERM and then SIGKILL before anybody else can be granted\n" +
			"them. GATEHOUSE_FENCE has the fencing token.\n\n" +
			"The status is the command's; 128 and the signal that ended it; 75 if the names were not\n" +
			"granted, 79 if they were lost, 69 if no server answers, 126 and 127 if the command cannot run.",
		Example: "  gatehouse run --semaphore gpu:1 -- python train.py\n" +
			"  gatehouse run --lock deploy --limit gcra/api=5/1s --wait 10m -- ./deploy.sh",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.SetInterspersed(false) // what follows the command belongs to it
	f.Var(&nameFlag{"NAME[:SIZE[:COST]]", readSemaphore, &o.runNames}, "semaphore",
		"hold slots of a semaphore")
	f.Var(&nameFlag{"NAME", readLock, &o.runNames}, "lock", "hold a lock")
	f.Var(&nameFlag{"KIND/NAME=LIMITS", readLimit, &o.runNames}, "limit",
		"take one of a limiter, such as gcra/api=5/1s")
	f.Var(&nameFlag{"NAME[:DURATION]", readWatchdog, &o.runNames}, "watchdog",
		"kick a watchdog while the command runs")
	f.StringVar(&o.supersede, "supersede", supersedeNone,
		"waiting has older runs of the same names with this flag give up; holding ends theirs too")
	o.addRunFlags(f)
	return cmd
}

// commandArgs refuses a command line without a command to run.
func commandArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s has no command, want one behind --, such as: run --lock a -- ls", cmd.Name())
	}
	return nil
}

// addRunFlags adds the options that run and once share.
func (o *runOptions) addRunFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.wait, "wait", gatehouse.Forever,
		"how long to wait for all of them; 0 not at all, below 0 forever")
	f.DurationVar(&o.expires, "expires", gatehouse.DefaultExpires,
		"the term after which others are granted them if this machine dies")
	f.StringVar(&o.offline, "offline", "fail",
		"if no server answers at the start: fail, skip the command with status 0, or run it without")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say who holds and how long it takes")
	o.ownerOptions.addFlags(f)
	o.remoteOptions.addFlags(f)
}

// releaseAtStop is how long a run that is stopped tries to give back what it may just have been granted.
const releaseAtStop = 500 * time.Millisecond

// newRunGuard is what is left to do for the process between a run and its command, for run alone: its work is
// done before main. It gives back what a run that has died still holds.
func newRunGuard() *cobra.Command {
	return &cobra.Command{
		Use: guard.Command, Hidden: true, Args: refuseWords,
		Run: func(*cobra.Command, []string) { releaseOrphan(guard.Orphan()) },
	}
}

// An orphanedGrant is what the guard gives back if the run has died.
type orphanedGrant struct {
	Servers []string          `json:"servers"`
	TLS     certs.ClientFiles `json:"tls"`
	// TokenFile has the token, unless the environment has, which the guard shares.
	TokenFile string `json:"token_file"`
	ID        string `json:"id"`
	Fence     uint64 `json:"fence"`
}

// releaseOrphan gives back the grant of a run that has died. If it fails, the grant ends by itself.
func releaseOrphan(text json.RawMessage) {
	var o orphanedGrant
	// The terminal belongs to other programs by now, so that all errors stay silent.
	if json.Unmarshal(text, &o) != nil || o.ID == "" {
		return
	}
	files := tlsOptions{o.TLS}
	secure, err := files.tlsConfig()
	if err != nil {
		return
	}
	token, err := readToken(o.TokenFile)
	if err != nil {
		return
	}
	c, err := client.New(client.Config{Addresses: o.Servers, TLS: secure, Token: token})
	if err != nil {
		return
	}
	l := runLease{client: c, id: o.ID, fence: o.Fence}
	_ = l.release()
}

// check returns a usage error if the options make no sense.
func (o *runOptions) check() error {
	switch {
	case len(o.want) == 0 && len(o.watchdogs) == 0:
		return usageError{errors.New(
			"run has nothing to hold, want --semaphore, --lock, --limit or --watchdog")}
	case o.expires < minRunExpires:
		return usageError{fmt.Errorf("--expires is %s, want at least %s", o.expires, minRunExpires)}
	case o.offline != "fail" && o.offline != "skip" && o.offline != "run":
		return usageError{fmt.Errorf("--offline is %q, want fail, skip or run", o.offline)}
	// Empty is that of once, which has no such flag.
	case !slices.Contains([]string{"", supersedeNone, supersedeWaiting, supersedeHolding}, o.supersede):
		return usageError{fmt.Errorf("--supersede is %q, want waiting, holding or none", o.supersede)}
	}
	return nil
}

// run runs the command.
func (o *runOptions) run(ctx context.Context, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.newClient()
	if err != nil {
		return err
	}
	defer c.Close()
	signals := make(chan os.Signal, 8)
	for _, s := range stopSignals() { // of none at all, Notify would have all
		signal.Notify(signals, s)
	}
	// While it waits a signal ends it. The context tells which.
	waiting, stopWaiting := context.WithCancelCause(ctx)
	forwarded := newSignalForwarder(signals, stopWaiting)
	defer forwarded.close()

	lease, err := o.acquire(waiting, stopWaiting, c, args)
	if err == nil && o.before != nil {
		// What before does may take much of the term, which the command needs.
		err = cmp.Or(o.before(waiting, c), lease.refresh(waiting))
		if err != nil {
			o.giveBack(lease)
		}
	}
	if err == nil {
		return o.runHolding(waiting, lease, args, forwarded)
	}
	// Before all other errors: that of a context which has ended tells less.
	if stopped := stoppedError(waiting); stopped != nil {
		return stopped
	}
	err = failure(err)
	away, ok := errors.AsType[*statusError](err)
	// --offline is about a server that is away. One that refuses has answered.
	if !ok || away.status != statusAway || o.offline == "fail" {
		return err
	}
	printNote("%v; --offline is %s", err, o.offline)
	if o.offline == "skip" {
		return nil
	}
	return o.runHolding(waiting, &runLease{client: c}, args, forwarded)
}

// acquire waits for all names, and returns a lease on them that was counted from just now. stop ends ctx when
// a newer run supersedes this one.
func (o *runOptions) acquire(
	ctx context.Context, stop context.CancelCauseFunc, c *client.Client, args []string,
) (*runLease, error) {
	lease := &runLease{client: c, term: o.expires}
	if len(o.want) == 0 {
		return lease, nil
	}
	if o.supersede == supersedeWaiting || o.supersede == supersedeHolding {
		// One that holds is not superseded any more: it is evicted.
		while, granted := context.WithCancel(ctx)
		defer granted()
		if err := o.supersedeOthers(while, c, stop); err != nil {
			return nil, err
		}
	}
	w := &waitingRun{client: c, inline: isTerminal(os.Stderr)}
	if !o.quiet {
		w.screen = os.Stderr
	}
	lease.id = uuid.NewString()
	// The term is counted from here. The server counts it from when it grants, which is later.
	sent := supervisor.Now()
	d, err := w.acquire(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: lease.id, Want: o.want, Expires: o.expires, MaxWait: o.wait,
		Owner: o.owner(filepath.Base(args[0])), Explain: true,
	})
	if ctx.Err() != nil {
		// The grant may have been on its way when the wait ended.
		within, cancel := context.WithTimeout(context.Background(), releaseAtStop)
		defer cancel()
		_, _ = c.DoGrant(within, gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: lease.id})
		return nil, context.Cause(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case d.Outcome != gatehouse.Granted:
		return nil, notGranted(&d)
	}
	lease.fence = d.Fence
	lease.begin(sent)
	// What was taken from limiters cannot be lost, and is not renewed.
	lease.held = o.hold()
	if err := lease.refresh(ctx); err != nil {
		_ = lease.release()
		return nil, err
	}
	return lease, nil
}

// runHolding runs the command while it holds the names, and gives them back.
func (o *runOptions) runHolding(
	ctx context.Context, lease *runLease, args []string, signals *signalForwarder,
) error {
	// Told to the guard beforehand, as this process may be killed at any time.
	orphan, err := json.Marshal(orphanedGrant{o.servers, o.ClientFiles, o.tokenFile, lease.id, lease.fence})
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	env := os.Environ()
	if lease.id != "" {
		env = append(env, "GATEHOUSE_FENCE="+strconv.FormatUint(lease.fence, 10), "GATEHOUSE_GRANT="+lease.id)
	}
	until := lease.until
	// Without anything that can be lost, no deadline ends the command.
	if !lease.held {
		until = supervisor.Never()
	}
	// Looked up here, and not by the guard, so that the status is the one that a shell has.
	path, err := exec.LookPath(args[0])
	if err != nil {
		return o.end(lease, notFound(err), "")
	}
	child, err := supervisor.Start(ctx, []string{program, guard.Command}, supervisor.Program{
		Path: path, Args: args, Env: env, Release: orphan, Output: o.commandOutput}, until)
	if err != nil {
		o.giveBack(lease)
		return cmp.Or(stoppedError(ctx), err)
	}
	signals.passTo(child)
	lost := o.beside(child, lease)
	exit := child.Wait()
	return o.end(lease, &exit, lost())
}

// end gives everything back after the command, and returns how the run ends. lost says why the grant was
// lost, or "".
func (o *runOptions) end(lease *runLease, exit *supervisor.Exit, lost string) error {
	if o.after != nil {
		o.after(lease.client, exit, lost != "" || exit.Overdue)
	}
	o.giveBack(lease)
	return exitError(exit, lost)
}

// beside renews the grant and kicks the watchdogs beside the command. The function it returns ends that, and
// returns why the grant was lost, or "".
func (o *runOptions) beside(child *supervisor.Child, lease *runLease) (end func() string) {
	ctx, cancel := context.WithCancel(context.Background())
	lost := make(chan string, 1)
	go func() {
		reason := ""
		if lease.held {
			reason = lease.keep(ctx, child.MoveDeadline)
		}
		// At once, since the command must end before others are granted the names.
		if reason != "" {
			printNote("lost: %s", reason)
			child.Stop()
		}
		lost <- reason
	}()
	var kicks sync.WaitGroup
	for _, w := range o.watchdogs {
		kicks.Go(func() { kickWatchdog(ctx, lease.client, w) })
	}
	return func() string {
		cancel()
		kicks.Wait()
		return <-lost
	}
}

// kickWatchdog kicks a watchdog until ctx ends, three times in its patience.
func kickWatchdog(ctx context.Context, c *client.Client, w kickedWatchdog) {
	key := gatehouse.Key{Kind: gatehouse.Watchdog, Name: w.name}
	for goOn := true; goOn; goOn = backoff.Sleep(ctx, w.expires/3) {
		// The next kick makes up for one that fails.
		_, _ = c.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpKick, Expires: w.expires})
	}
}

// giveBack releases the grant. A failure is no failure of the command: the grant ends by itself.
func (o *runOptions) giveBack(lease *runLease) {
	if lease.id == "" {
		return
	}
	if err := lease.release(); err != nil {
		printNote("not given back, it ends within %s: %v", lease.term, err)
	}
}
