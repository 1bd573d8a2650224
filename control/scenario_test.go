package control

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A scenario is a timed script for one controller:
//
//	semaphore
//	0s    a: acquire size=1 key=k      -> granted remaining=0
//	1s    b: acquire size=1 key=l      -> waits retry=59s
//	2s    release key=k                -> granted; b granted
//
// The first line names the kind; a line of three dashes begins with a new controller. A command's own
// decision comes first; behind semicolons stand those of the waiters that the command or the time let go.
// Only the fields that are written down are compared. "tick" only looks again, "leave NAME" takes a waiter
// out of line, "undo NAME" takes a grant back, "expiry" tells when the state is worth nothing any more. An
// acquire of a limiter with the word "grant" is a part of a grant, and so are "NAME: topup", settle, renew
// and release after it; value is how much counts for the grant. "from TIME" sets the date that times count
// from; it is 12 January 1970, 13:46:40.
type scenario struct {
	kind    gatehouse.Kind
	origin  time.Time
	state   State
	now     time.Time
	tickets Ticket
	waiters []*actor
	granted map[string]*actor
	grants  map[string]*grantActor
}

// An actor is a command with a name.
type actor struct {
	name    string
	kind    gatehouse.Kind
	cmd     gatehouse.Command
	arrived time.Time
	turn    Turn
	grant   *grantActor // nil if it is none
	figure  bool        // a cost was given
}

// epoch is the scenarios' time 0, unless they say another.
func epoch() time.Time { return time.Unix(1_000_000, 0) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range runScenario(string(text)) {
				t.Errorf("%s:%s", file, fault)
			}
		})
	}
}

// runScenario returns what is wrong, line by line.
func runScenario(text string) (faults []string) {
	s := newScenario(0, epoch())
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if fault := s.line(line); fault != "" {
			faults = append(faults, fmt.Sprintf("%d: %s", i+1, fault))
		}
	}
	return faults
}

func newScenario(kind gatehouse.Kind, origin time.Time) *scenario {
	return &scenario{
		kind: kind, origin: origin, now: origin,
		granted: map[string]*actor{}, grants: map[string]*grantActor{},
	}
}

func (s *scenario) line(line string) string {
	if line == "---" {
		*s = *newScenario(s.kind, epoch())
		return ""
	}
	if date, ok := strings.CutPrefix(line, "from "); ok {
		origin, err := time.Parse(time.RFC3339, date)
		if err != nil || origin.Year() < 1970 || origin.Year() > 2050 {
			return fmt.Sprintf("%q is no time such as 2024-03-31T00:30:00+01:00", date)
		}
		*s = *newScenario(s.kind, origin)
		return ""
	}
	if s.kind == 0 {
		kind, ok := gatehouse.ParseKind(line)
		if !ok {
			return fmt.Sprintf("%q is no kind", line)
		}
		s.kind = kind
		return ""
	}
	left, right, _ := strings.Cut(line, "->")
	words := strings.Fields(left)
	if len(words) < 2 {
		return "want TIME [NAME:] OP [FIELD=VALUE]... -> DECISION"
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || s.origin.Add(at).Before(s.now) || at > gatehouse.MaxDuration {
		return fmt.Sprintf("%q is no time, or before the line above", words[0])
	}
	s.now = s.origin.Add(at)
	got, fault := s.do(words[1:])
	if fault != "" {
		return fault
	}
	return compare(line, got, right)
}

// do carries out one line and returns what was decided.
func (s *scenario) do(words []string) (got []event, fault string) {
	name := ""
	if strings.HasSuffix(words[0], ":") && len(words) > 1 {
		name, words = strings.TrimSuffix(words[0], ":"), words[1:]
	}
	switch words[0] {
	case "tick":
		return s.serve(nil), ""
	case "leave", "undo":
		return s.undo(words)
	case "expiry":
		return []event{{outcome: "at", fields: map[string]string{"at": s.expiry()}}}, ""
	}
	a := &actor{name: name, kind: s.kind, arrived: s.now}
	if err := a.parse(s.kind, words); err != nil {
		return nil, err.Error()
	}
	if a.grant != nil || s.isFollowing(a) {
		return s.serveGrant(a)
	}
	if err := a.cmd.Check(gatehouse.Key{Kind: s.kind, Name: "scenario"}); err != nil {
		return []event{{name: name, outcome: "invalid"}}, ""
	}
	return s.serve(a), ""
}

func (s *scenario) expiry() string {
	switch {
	case s.state == nil:
		return "none"
	case s.state.Expiry().Equal(neverExpires()):
		return "never"
	case s.state.Expiry().Before(s.origin):
		return "past"
	}
	return s.state.Expiry().Sub(s.origin).String()
}

func (s *scenario) undo(words []string) (got []event, fault string) {
	if len(words) != 2 {
		return nil, "want leave NAME or undo NAME"
	}
	a := s.granted[words[1]]
	if words[0] == "leave" {
		i := slices.IndexFunc(s.waiters, func(w *actor) bool { return w.name == words[1] })
		if i < 0 {
			return nil, words[1] + " does not wait"
		}
		a = s.waiters[i]
		s.waiters = slices.Delete(s.waiters, i, i+1)
	} else if a == nil {
		return nil, words[1] + " was granted nothing"
	}
	undo := &actor{cmd: a.cmd, turn: a.turn}
	undo.cmd.Op, undo.turn.Granted = gatehouse.OpUndo, nil
	if words[0] == "undo" {
		granted := a.turn.Decision
		undo.turn.Granted = &granted
	}
	return s.serve(undo), ""
}

// serve offers the whole line and the newcomer to the state, the slow and obvious way.
func (s *scenario) serve(newcomer *actor) (got []event) {
	queue := make([]Turn, 0, len(s.waiters)+1)
	for _, w := range s.waiters {
		if w.cmd.MaxWait > 0 && !s.now.Before(w.arrived.Add(w.cmd.MaxWait)) {
			w.cmd.MaxWait = 0
		}
		queue = append(queue, w.turn)
	}
	actors := slices.Clone(s.waiters)
	if newcomer != nil {
		s.tickets++
		newcomer.turn.Command = &newcomer.cmd
		if newcomer.turn.Ticket == 0 {
			newcomer.turn.Ticket = s.tickets
		}
		queue = append(queue, newcomer.turn)
		actors = append(actors, newcomer)
	}
	s.state = Serve(s.now, s.kind, s.state, queue)
	s.waiters = s.waiters[:0]
	for i, a := range actors {
		a.turn = queue[i]
		e := newEvent(a, s.origin)
		if a.turn.keepsWaiting() {
			a.turn.Again = true
			if a.turn.Since.IsZero() {
				a.turn.Since = s.now
			}
			s.waiters = append(s.waiters, a)
			e.outcome = "waits"
		} else if a.turn.Decision.Outcome == gatehouse.Granted {
			s.granted[a.name] = a
		}
		switch {
		case a == newcomer:
			got = slices.Insert(got, 0, e)
		case !a.turn.keepsWaiting():
			got = append(got, e)
		}
	}
	return got
}

// parse reads a command.
func (a *actor) parse(kind gatehouse.Kind, words []string) error {
	op, ok := gatehouse.ParseOp(words[0])
	if !ok || op == gatehouse.OpUndo {
		return fmt.Errorf("%q is no operation", words[0])
	}
	a.cmd = gatehouse.Command{
		Op:   op,
		Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1, Expires: time.Minute,
		MaxWait: gatehouse.Forever,
		Holder:  "holder-" + a.name,
	}
	switch op {
	case gatehouse.OpRenew:
		a.cmd.Expires = gatehouse.AsAcquired
	case gatehouse.OpPeek, gatehouse.OpDelay:
		a.cmd.Size, a.cmd.Interval = 0, 0 // the limit in force
	case gatehouse.OpFeedback:
		a.cmd.Size, a.cmd.Feedback = gatehouse.InForce, new(gatehouse.Feedback)
	}
	if kind.Limiter() {
		a.cmd.Holder = ""
	}
	for _, word := range words[1:] {
		field, value, _ := strings.Cut(word, "=")
		a.figure = a.figure || field == "cost"
		known, err := a.setFeedback(field, value)
		if !known {
			err = a.set(field, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

// setFeedback is set for what only a feedback has.
func (a *actor) setFeedback(field, value string) (known bool, err error) {
	f := a.cmd.Feedback
	switch {
	case f == nil:
		return false, nil
	case field == "status":
		f.Status, err = strconv.Atoi(value)
	case field == "remaining":
		f.Remaining, err = strconv.ParseInt(value, 10, 64)
	case field == "retry-after":
		f.RetryAfter, err = time.ParseDuration(value)
	case field == "reset":
		f.Reset, err = time.ParseDuration(value)
	case field == "max-pause":
		f.MaxPause, err = time.ParseDuration(value)
	default:
		return false, nil
	}
	return true, err
}

func (a *actor) set(field, value string) (err error) {
	known := true
	numbers := map[string]*int64{
		"size": &a.cmd.Size, "cost": &a.cmd.Cost, "amount": &a.cmd.Amount, "burst": &a.cmd.Burst,
	}
	times := map[string]*time.Duration{
		"interval": &a.cmd.Interval, "expires": &a.cmd.Expires, "maxwait": &a.cmd.MaxWait,
		"keep": &a.cmd.Keep, "guard": &a.cmd.Guard, "maxdelay": &a.cmd.MaxDelay,
	}
	switch {
	case field == "expires" && value == "asacquired":
		a.cmd.Expires = gatehouse.AsAcquired
	case numbers[field] != nil:
		*numbers[field], err = strconv.ParseInt(value, 10, 64)
	case times[field] != nil:
		*times[field], err = time.ParseDuration(value)
		if field == "keep" && (a.cmd.Keep < 0 || a.cmd.Keep > gatehouse.MaxDuration) {
			err = fmt.Errorf("%s is out of range", value)
		}
	case field == "forced":
		a.turn.Forced, err = strconv.ParseBool(value)
	case field == "keeplimit":
		a.cmd.KeepLimit, err = strconv.ParseBool(value)
	case field == "extend":
		a.cmd.Extend, err = strconv.ParseBool(value)
	case field == "inforce":
		a.cmd.Size = gatehouse.InForce
	case field == "leased":
		a.turn.Leased, err = strconv.ParseBool(value)
	case field == "maxholders":
		a.turn.MaxHolders, err = strconv.Atoi(value)
	case field == "minfence":
		a.turn.MinFence, err = strconv.ParseUint(value, 10, 62)
	case field == "fence":
		a.cmd.Fence, err = strconv.ParseUint(value, 10, 64)
	case field == "key":
		a.cmd.Holder = value
	case field == "message":
		a.cmd.Message = value
	case field == "limits":
		a.cmd.Limits, err = gatehouse.ParseLimits(value)
	case field == "zone":
		a.cmd.Zone = value
	case field == "calendar":
		a.cmd.Calendar, known = gatehouse.ParseCalendar(value)
	case field == "mode":
		a.cmd.Mode, known = a.kind.ParseMode(value)
	case slices.Contains([]string{"grant", "clip", "overrun", "onexpiry", "want"}, field):
		err = a.setGrant(field, value)
	default:
		err = fmt.Errorf("no such field")
	}
	if !known {
		err = fmt.Errorf("no such %s", field)
	}
	return err
}
