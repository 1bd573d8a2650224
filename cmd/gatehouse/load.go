package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// loadOptions are the options of load.
type loadOptions struct {
	remoteOptions
	callers  int
	names    int
	duration time.Duration
	limits   string
	size     string
	asJSON   bool
}

// The bounds of a load.
const (
	maxCallers = 10_000
	maxNames   = 1_000_000
)

func newLoad() *cobra.Command {
	o := &loadOptions{}
	cmd := &cobra.Command{
		Use:   "load KIND/NAME",
		Short: "Put a load on a server, and measure how long answers take",
		Long: "Put a load on a server, and measure how long answers take: callers that acquire one after\n" +
			"the other, without waiting in line, and give back what they hold. It uses up what it\n" +
			"acquires: choose a name that nobody else uses.",
		Example: "  gatehouse load gcra/load --limits 1000000/1s\n" +
			"  gatehouse load semaphore/load --size 20 --callers 50 --names 1000 --duration 30s",
		Args: exactArgs("KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.callers, "callers", 16, "how many ask at a time")
	f.IntVar(&o.names, "names", 1, "how many names: NAME-1, NAME-2 and so on, if more than one")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "for how long")
	// Both are texts, which prepare reads as parameters, so that they are checked as over HTTP.
	f.StringVar(&o.limits, "limits", "", "the limits of a limiter, such as 1000/1s")
	f.StringVar(&o.size, "size", "", "the size of a semaphore, or of a limiter")
	f.BoolVar(&o.asJSON, "json", false, "print JSON, for programs")
	o.addFlags(f)
	return cmd
}

// A loadRun is what all callers of a load share.
type loadRun struct {
	client  *client.Client
	keys    []gatehouse.Key
	command gatehouse.Command
	asked   atomic.Int64

	mu       sync.Mutex
	times    *hdrhistogram.Histogram // of answers, in microseconds
	granted  int64
	refused  int64
	failures map[string]int64 // by what is wrong
}

// longestAnswer is what the histogram can tell apart. Anything longer is counted as that long.
const longestAnswer = time.Minute

// run puts the load on the server and prints what was measured.
func (o *loadOptions) run(cmd *cobra.Command, path string) error {
	r, err := o.prepare(path)
	if err != nil {
		return usageError{err}
	}
	r.client, err = o.newClient()
	if err != nil {
		return err
	}
	defer r.client.Close()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	// One request first: a mistake is told once, and not by each caller.
	if _, err := r.client.Do(ctx, r.keys[0], gatehouse.Command{Op: gatehouse.OpStats}); err != nil {
		return failure(err)
	}
	var work sync.WaitGroup
	began := time.Now()
	for i := range o.callers {
		work.Go(func() { r.call(ctx, i) })
	}
	done := make(chan struct{})
	// Ends with the last caller. A WaitGroup has no channel for the bar to wait for.
	go func() {
		work.Wait()
		close(done)
	}()
	r.showProgress(began, o.duration, done)
	return o.print(cmd.OutOrStdout(), r, time.Since(began))
}

// prepare checks the options.
func (o *loadOptions) prepare(path string) (*loadRun, error) {
	key, err := readKey(path)
	switch {
	case err != nil:
		return nil, err
	case !key.Kind.Limiter() && !params.HasHolders(key.Kind):
		return nil, fmt.Errorf("%s cannot be loaded, want a limiter, a semaphore or a lock", key)
	case o.callers < 1 || o.callers > maxCallers:
		return nil, fmt.Errorf("--callers is %d, want 1 to %d", o.callers, maxCallers)
	case o.names < 1 || o.names > maxNames:
		return nil, fmt.Errorf("--names is %d, want 1 to %d", o.names, maxNames)
	case o.duration <= 0:
		return nil, fmt.Errorf("--duration is %s, want it above 0", o.duration)
	}
	r := &loadRun{
		keys: []gatehouse.Key{key}, failures: make(map[string]int64),
		times: hdrhistogram.New(1, longestAnswer.Microseconds(), 3),
	}
	if o.names > 1 {
		r.keys = r.keys[:0]
		for i := range o.names {
			r.keys = append(r.keys, gatehouse.Key{Kind: key.Kind, Name: fmt.Sprintf("%s-%d", key.Name, i+1)})
		}
	}
	var values params.Values
	// Without waiting, since the time in line is not the server's. The key says only that a hold has one:
	// each caller gets its own.
	given := map[string]string{"limits": o.limits, "size": o.size, "maxwait": "0", "key": "load"}
	for name, text := range given {
		if text == "" {
			continue
		}
		if err := values.Set([]byte(name), []byte(text)); err != nil {
			return nil, err
		}
	}
	r.command.Op = gatehouse.OpAcquire
	return r, values.Read(key.Kind, &r.command)
}

// call asks again and again until ctx ends, about one name after the other.
func (r *loadRun) call(ctx context.Context, caller int) {
	command := r.command
	if command.Holder != "" {
		command.Holder = uuid.NewString()
	}
	for i := caller; ctx.Err() == nil; i++ {
		key := r.keys[i%len(r.keys)]
		began := time.Now()
		d, err := r.client.Do(ctx, key, command)
		if ctx.Err() != nil {
			return // it was cut off
		}
		r.note(time.Since(began), &d, err)
		if err == nil && d.Outcome == gatehouse.Granted && params.HasHolders(key.Kind) {
			// Also when the time is over: another load would find the slot taken until it expires.
			release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: command.Holder}
			_, _ = r.client.Do(context.WithoutCancel(ctx), key, release)
		}
	}
}

// note counts one answer.
func (r *loadRun) note(took time.Duration, d *gatehouse.Decision, err error) {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	// A failure has no time: a server that refuses connections would look fast.
	case err != nil:
		r.failures[gatehouse.CodeOf(err).String()]++
		return
	case d.Outcome == gatehouse.Granted:
		r.granted++
	default:
		r.refused++
	}
	_ = r.times.RecordValue(min(max(took, time.Microsecond), longestAnswer).Microseconds()) // it is in range
}

// barWidth is how many columns the bar of progress has.
const barWidth = 30

// showProgress shows a bar on a terminal until the load is done.
func (r *loadRun) showProgress(began time.Time, duration time.Duration, done <-chan struct{}) {
	// In a file each step of the bar would be one more line.
	if !isTerminal(os.Stderr) {
		<-done
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			_, _ = fmt.Fprint(os.Stderr, "\r\x1b[K")
			return
		case <-tick.C:
			part := min(float64(time.Since(began))/float64(duration), 1)
			full := int(part * barWidth)
			_, _ = fmt.Fprintf(os.Stderr, "\r\x1b[K[%s%s] %3.0f%%  %d answers",
				strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), part*100, r.asked.Load())
		}
	}
}

// percentiles are those that are shown.
var percentiles = []float64{50, 90, 99, 99.9, 99.99, 100}

// print prints what was measured.
func (o *loadOptions) print(out io.Writer, r *loadRun, took time.Duration) error {
	answers := r.granted + r.refused
	failures := r.listFailures()
	switch {
	case answers == 0 && len(failures) > 0:
		return fmt.Errorf("no request was decided: %s", strings.Join(failures, ", "))
	case answers == 0:
		return errors.New("no answer came in time")
	}
	rate := float64(answers) / took.Seconds()
	if o.asJSON {
		micros := map[string]int64{}
		for _, p := range percentiles {
			micros[fmt.Sprintf("p%g", p)] = r.times.ValueAtPercentile(p)
		}
		return writeJSON(out, map[string]any{
			"answers": answers, "granted": r.granted, "refused": r.refused, "failures": r.failures,
			"seconds": took.Seconds(), "per_second": rate, "microseconds": micros,
		})
	}
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%d answers in %s, %.0f a second: %d granted, %d refused\n", answers,
		showDuration(took), rate, r.granted, r.refused)
	for _, failure := range failures {
		_, _ = fmt.Fprintln(&text, failure)
	}
	for _, p := range percentiles {
		at := time.Duration(r.times.ValueAtPercentile(p)) * time.Microsecond
		_, _ = fmt.Fprintf(&text, "%6g%%  within %s\n", p, at)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// listFailures says how often requests have failed by what, in the order of the codes.
func (r *loadRun) listFailures() (all []string) {
	for _, code := range slices.Sorted(maps.Keys(r.failures)) {
		all = append(all, fmt.Sprintf("%d failures: %s", r.failures[code], code))
	}
	return all
}
