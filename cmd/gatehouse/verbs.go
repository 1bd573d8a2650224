package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// A verb is a command that asks a server about one name. It is called as the operation is, and its flags as
// the parameters are in every protocol.
type verb struct {
	op         gatehouse.Op
	short      string
	example    string
	parameters string // the names of its flags, as in every protocol
}

// limitParameters are those that say how much there is.
const limitParameters = "size interval burst limits zone mode guard"

// ownerParameters are those that say for whom a command is.
const ownerParameters = "owner host purpose"

// verbs are the commands, in the order of the help.
var verbs = []verb{
	{gatehouse.OpAcquire, "Take tokens, slots or a lock, and wait for them", "acquire gcra/api --limits 5/1s",
		limitParameters + " cost maxwait key expires extend parents " + ownerParameters},
	{gatehouse.OpRelease, "Give back a hold of a semaphore or a lock", "release lock/deploy --key 7f3a",
		"key fence"},
	{gatehouse.OpRenew, "Move the end of a hold", "renew lock/deploy --key 7f3a --expires 1m",
		"key fence expires"},
	{gatehouse.OpWait, "Wait for an event, a watchdog or a barrier", "wait event/migrated --maxwait 10m",
		"size maxwait " + ownerParameters},
	{gatehouse.OpSend, "Send an event", "send event/migrated --message done", "message"},
	{gatehouse.OpKick, "Tell a watchdog that all is well", "kick watchdog/nightly --expires 25h", "expires"},
	{gatehouse.OpCount, "Add to a counter", "count counter/visits --amount 5", "amount"},
	{gatehouse.OpValue, "Read a counter", "value counter/visits", ""},
	{gatehouse.OpPeek, "See what an acquire would be answered", "peek gcra/api",
		limitParameters + " cost parents"},
	{gatehouse.OpDelay, "See how long an acquire would wait", "delay gcra/api",
		limitParameters + " cost parents"},
	{gatehouse.OpCharge, "Charge a limiter what was spent already", "charge tokenbucket/tokens --cost 4100",
		limitParameters + " cost " + ownerParameters},
	{gatehouse.OpRefund, "Give back to a limiter what was not used", "refund tokenbucket/tokens --cost 900",
		"cost"},
	{gatehouse.OpFeedback, "Tell a limiter what a third party has answered",
		"feedback gcra/api --status 429 --retry-after 30s", "status retry-after remaining reset"},
	{gatehouse.OpReset, "Set a counter, or make a limiter forget what was taken", "reset counter/visits",
		"value"},
	{gatehouse.OpEvict, "End a hold that is another's", "evict lock/deploy --id hhoj1fvhbpf --reason stuck",
		"id now owner reason"},
	{gatehouse.OpBump, "Put a waiter in front of the others", "bump lock/deploy --id w3", "id"},
	{gatehouse.OpClose, "Grant nothing under a name until it is opened",
		"close gcra/api --reason maintenance", "owner reason"},
	{gatehouse.OpOpen, "Open a name that was closed", "open gcra/api", "owner reason"},
	{gatehouse.OpStats, "Show the statistics of a name", "stats gcra/api", ""},
	{gatehouse.OpDelete, "Forget a name", "delete gcra/api", ""},
}

// newVerbs returns the commands.
func newVerbs() []*cobra.Command {
	all := make([]*cobra.Command, 0, len(verbs))
	for i := range verbs {
		all = append(all, newVerb(&verbs[i]))
	}
	return all
}

// verbOptions are the options of one of them.
type verbOptions struct {
	remoteOptions
	asJSON bool
	force  bool
	texts  map[string]*string
}

func newVerb(v *verb) *cobra.Command {
	o := &verbOptions{texts: make(map[string]*string)}
	cmd := &cobra.Command{
		Use:     v.op.String() + " KIND/NAME",
		Short:   v.short,
		Example: "  gatehouse " + v.example,
		Args:    exactArgs("KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.ask(cmd, o, args[0])
		},
		ValidArgsFunction: completeNames(&o.remoteOptions, v.op),
	}
	f := cmd.Flags()
	f.SortFlags = false
	// All of them are texts, which params reads: a flag takes what the parameter takes in every protocol.
	for name := range strings.FieldsSeq(v.parameters) {
		o.texts[name] = f.String(name, "", flagUsages[name])
	}
	if v.op == gatehouse.OpRelease {
		f.BoolVar(&o.force, "force", false, "end all holds of the name, whoever has them")
	}
	f.BoolVar(&o.asJSON, "json", false, "print JSON, for programs")
	o.addFlags(f)
	return cmd
}

// flagUsages say what a parameter is. Times may be written as 500ms, 10s or 24h, or in milliseconds.
var flagUsages = map[string]string{
	"size":        "how many: slots, or tokens per interval",
	"interval":    "the length of the window, or day, week, month",
	"burst":       "how many at once beyond the first",
	"limits":      "limits and windows, such as 10/1s,200/1m",
	"zone":        "the time zone of a window of the calendar",
	"mode":        "the variety of the kind",
	"guard":       "how much earlier than it needs to be a pace expects a window to end",
	"cost":        "how many at once",
	"maxwait":     "how long to wait; 0 not at all, -1 or nothing forever",
	"key":         "whose hold it is; one is made and printed by an acquire without it",
	"expires":     "after what time it ends by itself",
	"extend":      "true has an acquire by a key that holds already move the end",
	"parents":     "limiters that are charged too, such as gcra/org-7:2000/1m",
	"fence":       "the fencing token of the hold that is meant",
	"message":     "what all waiters are told",
	"amount":      "how much to add",
	"value":       "what to set it to",
	"id":          "the public id of a hold or a waiter, as ps shows it",
	"now":         "true frees its slots at once, and not at the end of its term",
	"reason":      "why, to be shown",
	"owner":       "who, to be shown",
	"host":        "where that runs, to be shown",
	"purpose":     "what for, to be shown",
	"status":      "the status of the answer",
	"retry-after": "how long the third party wants no call",
	"remaining":   "how many calls it lets through until the reset",
	"reset":       "in what time it counts anew",
}

// timeParameters are those that are told in milliseconds.
var timeParameters = []string{"interval", "guard", "maxwait", "expires", "retry-after", "reset"}

// paramText is a parameter as protocols have it: a time with a unit becomes milliseconds.
func paramText(name, text string) string {
	if !slices.Contains(timeParameters, name) {
		return text
	}
	// A number without a unit is one of milliseconds already.
	if d, err := time.ParseDuration(text); err == nil {
		return strconv.FormatInt(params.CeilMillis(d), 10)
	}
	return text
}

// readCommand returns the command that the flags make.
func (v *verb) readCommand(cmd *cobra.Command, o *verbOptions, key gatehouse.Key) (gatehouse.Command, error) {
	c := gatehouse.Command{Op: v.op}
	if !key.Kind.Has(v.op) {
		return c, fmt.Errorf("%s has no %s; see gatehouse --help", key, v.op)
	}
	var values params.Values
	for name := range strings.FieldsSeq(v.parameters) {
		// What was not given has the default of the protocols.
		if !cmd.Flags().Changed(name) {
			continue
		}
		if err := values.Set([]byte(name), []byte(paramText(name, *o.texts[name]))); err != nil {
			return c, err
		}
	}
	// A hold needs a key. One that is made here is printed, as the release has to name it.
	if v.op == gatehouse.OpAcquire && params.HasHolders(key.Kind) && *o.texts["key"] == "" {
		_ = values.Set([]byte("key"), []byte(uuid.NewString()))
	}
	if err := values.Read(key.Kind, &c); err != nil {
		return c, err
	}
	// A person reads the answer, and wants to know what was full.
	c.Explain = true
	if _, shown := o.texts["owner"]; shown && c.Owner == nil {
		c.Owner = localOwner()
	}
	return c, nil
}

// ask asks the server, and prints the answer.
func (v *verb) ask(cmd *cobra.Command, o *verbOptions, path string) error {
	key, err := readKey(path)
	if err != nil {
		return usageError{err}
	}
	server, err := o.newClient()
	if err != nil {
		return err
	}
	defer server.Close()
	if o.force {
		return o.forceRelease(cmd, server, key)
	}
	c, err := v.readCommand(cmd, o, key)
	if err != nil {
		return usageError{err}
	}
	d, err := server.Do(cmd.Context(), key, c)
	if err != nil {
		return failure(err)
	}
	out := cmd.OutOrStdout()
	// Programs are told of refusals, too. People read them on the standard error.
	if o.asJSON {
		err = writeJSON(out, decisionFigures(key, &c, &d))
	} else if d.Outcome == gatehouse.Granted {
		err = printDecision(out, key, &c, &d)
	}
	return cmp.Or(err, outcomeError(key, &c, &d))
}

// outcomeError is how a command ends that was not granted.
func outcomeError(key gatehouse.Key, c *gatehouse.Command, d *gatehouse.Decision) error {
	switch d.Outcome {
	case gatehouse.Granted:
		return nil
	case gatehouse.Refused:
		err := fmt.Errorf("%s: %s not granted", key, c.Op)
		if d.Message != "" {
			err = fmt.Errorf("%w: %s", err, d.Message)
		}
		if d.RetryAfter > 0 {
			err = fmt.Errorf("%w; try again in %s", err, showDuration(d.RetryAfter))
		}
		// So a script can tell "not now" from a failure.
		return &statusError{statusNotGranted, err}
	case gatehouse.Missing:
		return fmt.Errorf("%s does not exist", key)
	}
	return fmt.Errorf("%s: %s: %s", key, c.Op, cmp.Or(d.Message, d.Outcome.String()))
}

// decisionFigures are what --json prints of an answer: the members of details over HTTP that mean something.
func decisionFigures(key gatehouse.Key, c *gatehouse.Command, d *gatehouse.Decision) map[string]any {
	figures := map[string]any{
		"kind": key.Kind.String(), "name": key.Name, "op": c.Op.String(),
		"outcome": d.Outcome.String(), "granted": d.Outcome == gatehouse.Granted,
	}
	if d.Limit > 0 {
		figures["limit"], figures["remaining"] = d.Limit, d.Remaining
	}
	// Below 0 it is not known, and no number could say so.
	if d.Outcome == gatehouse.Refused && d.RetryAfter >= 0 {
		figures["retry_after"] = params.CeilMillis(d.RetryAfter)
	}
	// It may have been made by this program, and is needed for the release.
	if c.Op == gatehouse.OpAcquire && params.HasHolders(key.Kind) {
		figures["key"] = c.Holder
	}
	if d.Fence != 0 {
		figures["fence"], figures["expires_after"] = d.Fence, params.FloorMillis(d.ExpiresAfter)
	}
	switch c.Op {
	case gatehouse.OpCount, gatehouse.OpValue, gatehouse.OpReset:
		figures["value"] = d.Value
	case gatehouse.OpDelay, gatehouse.OpCharge:
		figures["delay"] = params.CeilMillis(d.Delay)
	}
	if d.Message != "" {
		figures["message"] = d.Message
	}
	for _, stat := range d.Stats {
		figures[stat.Name] = stat.Value
	}
	return figures
}

// printDecision prints what was granted, for people.
func printDecision(out io.Writer, key gatehouse.Key, c *gatehouse.Command, d *gatehouse.Decision) error {
	var text string
	switch c.Op {
	case gatehouse.OpStats:
		width := 0
		for _, stat := range d.Stats {
			width = max(width, len(stat.Name))
		}
		for _, stat := range d.Stats {
			text += fmt.Sprintf("%-*s  %v\n", width, stat.Name, stat.Value)
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		text = fmt.Sprintln(d.Value)
	case gatehouse.OpDelay:
		text = fmt.Sprintln(showDuration(d.Delay))
	case gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpRenew:
		text = fmt.Sprintf("%s: granted", key)
		if d.Limit > 0 {
			text += fmt.Sprintf(", %d of %d left", d.Remaining, d.Limit)
		}
		if d.Fence != 0 {
			text += fmt.Sprintf(", for %s, fence %d", showDuration(d.ExpiresAfter), d.Fence)
		}
		if d.Fence != 0 && c.Op == gatehouse.OpAcquire {
			text += fmt.Sprintf("\ngive it back: gatehouse release %s --key %s", key, c.Holder)
		}
		text += "\n"
	// Without a delay there is nothing to tell, and nothing is printed.
	case gatehouse.OpCharge:
		if d.Delay > 0 {
			text = fmt.Sprintf("%s: charged, the last of it in %s\n", key, showDuration(d.Delay))
		}
	case gatehouse.OpWait:
		if d.Message != "" {
			text = d.Message + "\n"
		}
	}
	_, err := io.WriteString(out, text)
	return err
}
