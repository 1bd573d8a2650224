package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
		err = cmp.Or(o.before(waiting, c), lease.refresh(waiting))
		if err != nil {
			o.giveBack(lease)
		}
	}
	if err == nil {
		return o.runHolding(waiting, lease, args, forwarded)
	}
	if stopped := stoppedError(waiting); stopped != nil {
		return stopped
	}
	err = failure(err)
	away, ok := errors.AsType[*statusError](err)
	if !ok || away.status != statusAway || o.offline == "fail" {
		return err
	}
	printNote("%v; --offline is %s", err, o.offline)
	if o.offline == "skip" {
		return nil
	}
	return o.runHolding(waiting, &runLease{client: c}, args, forwarded)
}

// stoppedError is how a run ends whose wait was ended by a signal or a newer run; nil if it was by neither.
func stoppedError(waiting context.Context) error {
	if stopped, ok := errors.AsType[*signalError](context.Cause(waiting)); ok {
		return &statusError{status: 128 + int(stopped.signal)}
	}
	if errors.Is(context.Cause(waiting), errSuperseded) {
		return &statusError{statusNotGranted, errSuperseded}
	}
	return nil
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
	lease.held = o.hold()
	if err := lease.refresh(ctx); err != nil {
		_ = lease.release()
		return nil, err
	}
	return lease, nil
}

// notGranted is the error about a grant that was decided against.
func notGranted(d *gatehouse.GrantDecision) error {
	text := d.Message
	if d.Binding >= 0 && d.Binding < len(d.Want) {
		text = cmp.Or(d.Want[d.Binding].Message, d.Want[d.Binding].Key.String()+" allows no more")
	}
	err := fmt.Errorf("not granted: %s", text)
	if d.Outcome != gatehouse.Refused {
		return err
	}
	if d.RetryAfter > 0 {
		err = fmt.Errorf("%w; try again in %s", err, showDuration(d.RetryAfter))
	}
	return &statusError{statusNotGranted, err}
}

// runHolding runs the command while it holds the names, and gives them back.
func (o *runOptions) runHolding(
	ctx context.Context, lease *runLease, args []string, signals *signalForwarder,
) error {
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
	if !lease.held {
		until = supervisor.Never()
	}
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

// notFound is how a command ends for which there is no program, with the status that a shell has for it.
func notFound(err error) *supervisor.Exit {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &supervisor.Exit{Status: 127, Err: err.Error()}
	}
	return &supervisor.Exit{Status: 126, Err: err.Error()}
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

// exitError is how the run ends, after how its command ended.
func exitError(exit *supervisor.Exit, lost string) error {
	switch {
	case lost != "":
		return &statusError{status: statusLost} // it was said when it was found
	case exit.Overdue:
		return &statusError{statusLost, errors.New("lost: no server has renewed the grant in time")}
	case exit.Err != "":
		return &statusError{exit.Status, errors.New(exit.Err)}
	case exit.Status != 0:
		return &statusError{status: exit.Status}
	}
	return nil
}
