package openapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// values are what is tried for each parameter. One that has none acts outside of the controllers: those who
// wait are the gate's, and nothing acts on an id.
var values = map[string][]string{
	"size": {"3", "0"}, "cost": {"2", "3"}, "interval": {"7000"}, "expires": {"7000", "0"}, "key": {"other"},
	"message": {"hello"}, "amount": {"7"}, "value": {"7"}, "burst": {"7"}, "guard": {"70"}, "fence": {"7"},
	"mode": {"estimate", "fine", "strict", "reserve", "paced", "classic"}, "limits": {"7/7s"},
	"zone": {"Asia/Tokyo"}, "maxwait": nil, "id": nil, "extend": {"true"},
	"owner": nil, "host": nil, "purpose": nil, "reason": nil, "now": nil, "after": nil, "limit": nil,
	"status": {"429"}, "retry-after": {"7000"}, "remaining": {"0"}, "reset": {"7000"},
	"parents": nil,
}

// shown are the parameters that change what people are shown, and no decision; and of those operations that
// Step does not know, all of them.
func shown(op gatehouse.Op) (names []string, all bool) {
	switch op {
	case gatehouse.OpAcquire, gatehouse.OpWait:
		return []string{"owner", "host", "purpose"}, false
	case gatehouse.OpFeedback:
		return []string{"owner"}, false
	case gatehouse.OpEvict:
		return []string{"id", "now", "owner", "reason"}, true
	case gatehouse.OpClose:
		return []string{"owner", "reason"}, true
	case gatehouse.OpBump:
		return []string{"id"}, true
	case gatehouse.OpHolders, gatehouse.OpWaiters:
		return []string{"after", "limit"}, true
	}
	return nil, false
}

// before is what happened at a name, one history for each line.
var before = map[bool][]string{
	true: { // limiters
		"", "acquire size=5&interval=1000&cost=4", "acquire size=1&interval=1000",
		"reserve size=1&key=k reserve size=1&key=k2 reserve size=1&key=other",
	},
	false: {
		"", "acquire size=4&key=k acquire size=4&key=other", "send message=x", "kick expires=100",
		"count amount=3", "wait size=3",
	},
}

// around are the parameters that stand beside the one that is tried. They say the limit, because any of a
// limit's parameters without the others means a limit of defaults; limits stands alone.
func around(parameter string) []string {
	if parameter == "limits" {
		return []string{"status=200", "zone=UTC&status=200"}
	}
	switch parameter {
	case "extend":
		return []string{"key=k&expires=5000"}
	case "status", "retry-after":
		return []string{"size=2&interval=5000&status=503"}
	case "remaining", "reset":
		return []string{"size=2&interval=5000&status=200&remaining=0&reset=1000"}
	}
	return []string{
		"size=2&interval=5000&status=200", "size=3&interval=day&status=200",
		"size=2&interval=5000&key=k&status=200",
	}
}

// noDifference are parameters that are listed though they make no difference, and why.
var noDifference = map[string]string{
	"pace acquire mode": "it is part of the limit that is in force from now on",

	"pace feedback mode": "it is part of the limit that is in force from now on",

	"pace peek mode":  "it is part of the limit, and asks about no reservation",
	"pace delay mode": "it is part of the limit, and asks about no reservation",
}

// A trial is one controller, and what it has answered.
type trial struct {
	key   gatehouse.Key
	state control.State
	now   time.Time
	told  strings.Builder
}

// apply puts one operation to the controller. ok is false where its parameters are refused.
func (s *trial) apply(op gatehouse.Op, query string) (ok bool) {
	cmd := gatehouse.Command{Op: op}
	var f params.Values
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if part != "" && f.Set([]byte(name), []byte(value)) != nil {
			return false
		}
	}
	if f.Read(s.key.Kind, &cmd) != nil || cmd.Check(s.key) != nil {
		return false
	}
	turn := control.Turn{Command: &cmd}
	s.state.Step(s.now, &turn)
	fmt.Fprintf(&s.told, "%s %+v\n", op, turn.Decision)
	return true
}

// outcome is what an operation leads to after a history: its answer, and what is answered later.
func outcome(kind gatehouse.Kind, history string, op gatehouse.Op, query string) (string, bool) {
	key := gatehouse.Key{Kind: kind, Name: "n"}
	s := trial{key: key, state: control.New(kind), now: time.Unix(1_000_000, 0)}
	s.history(history)
	if !s.apply(op, query) {
		return "", false
	}
	for range 3 {
		for _, op := range []string{"stats", "peek", "value"} {
			s.history(op + " cost=1")
		}
		s.now = s.now.Add(3 * time.Second)
	}
	s.history("reserve size=2&interval=5000&key=last wait maxwait=0")
	s.history("release key=other acquire size=9&key=last")
	return s.told.String(), true
}

// history applies operations, each a word with its parameters behind it. Those that the kind does not have
// are left out.
func (s *trial) history(text string) {
	words := strings.Fields(text)
	for i := 0; i < len(words); i += 2 {
		if op, _ := gatehouse.ParseOp(words[i]); s.key.Kind.Has(op) {
			s.apply(op, words[i+1])
		}
	}
}

// acts is whether an operation does anything else with the parameter than without it.
func acts(kind gatehouse.Kind, op gatehouse.Op, parameter string) bool {
	for _, history := range before[kind.Limiter()] {
		for _, beside := range around(parameter) {
			if differs(kind, history, op, [2]string{beside, parameter}) {
				return true
			}
		}
	}
	return false
}

// differs tries all values of a parameter beside others, after one history.
func differs(kind gatehouse.Kind, history string, op gatehouse.Op, query [2]string) bool {
	beside, parameter := query[0], query[1]
	if params.HasHolders(kind) || op == gatehouse.OpCancel {
		beside += "&key=k" // an acquire without a key gets a random one
	}
	if len(values[parameter]) == 0 {
		return false
	}
	without, ok := outcome(kind, history, op, beside)
	for _, value := range values[parameter] {
		with, also := outcome(kind, history, op, beside+"&"+parameter+"="+value)
		if ok && also && with != without {
			return true
		}
	}
	return false
}

// shouldList are the parameters that make a difference to an operation.
func shouldList(t *testing.T, kind gatehouse.Kind, op gatehouse.Op) (names []string) {
	t.Helper()
	names, all := shown(op)
	if all {
		return names
	}
	for _, name := range params.Names() {
		tried, known := values[name]
		if !known {
			t.Fatalf("there is no value to try parameter %s with", name)
		}
		inGate := tried == nil && name == "maxwait" && op.Waits() || name == "parents" && kind.Limiter() &&
			(op == gatehouse.OpAcquire || op == gatehouse.OpPeek || op == gatehouse.OpDelay)
		if inGate || acts(kind, op, name) || noDifference[fmt.Sprint(kind, " ", op, " ", name)] != "" {
			names = append(names, name)
		}
	}
	return names
}

// The parameters that are listed with an operation are those that make a difference to it, and no others.
func TestParametersAreThoseThatAct(t *testing.T) {
	texts, err := readOperations()
	if err != nil {
		t.Fatal(err)
	}
	for kind := gatehouse.TokenBucket; kind < gatehouse.Grant; kind++ { // which has paths of its own
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			if !kind.Has(op) {
				continue
			}
			want := shouldList(t, kind, op)
			var got []string
			for name := range strings.FieldsSeq(texts.operationParameters(kind, op)) {
				name, _, _ = strings.Cut(name, "Of") // modeOfPace
				got = append(got, name)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s %s lists %v, but %v make a difference", kind, op, got, want)
			}
		}
	}
}
