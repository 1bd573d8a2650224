package params

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// memberOf reads a member from words: a name, then parameters and values.
func memberOf(words string) (gatehouse.Member, error) {
	fields := strings.Fields(words)
	kind, name, _ := strings.Cut(fields[0], "/")
	k, _ := gatehouse.ParseKind(kind)
	var values MemberValues
	for i := 1; i+1 < len(fields); i += 2 {
		if err := values.Set([]byte(fields[i]), []byte(fields[i+1])); err != nil {
			return gatehouse.Member{}, err
		}
	}
	m := gatehouse.Member{Key: gatehouse.Key{Kind: k, Name: name}}
	err := values.Read(&m)
	return m, err
}

// A member means what an acquire of its name with the same parameters means.
func TestMembers(t *testing.T) {
	for words, want := range map[string]gatehouse.Member{
		"gcra/a":                 {Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1},
		"gcra/a COST 5 fit CLIP": {Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 5, Clip: true},
		"gcra/a size 5": {
			Rule: gatehouse.Rule{Size: 5, Interval: time.Second, Burst: 4}, Cost: 1,
		},
		"pace/a interval 60000 guard 5 mode paced": {Cost: 1, Rule: gatehouse.Rule{
			Size: 1, Interval: time.Minute, Guard: 5 * time.Millisecond, Mode: gatehouse.ModePaced,
		}},
		"semaphore/a":        {Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1},
		"semaphore/a size 0": {Rule: gatehouse.Rule{}, Cost: 1},
		"semaphore/a size 4": {Rule: gatehouse.Rule{Size: 4}, Cost: 1},
		"lock/a cost 1":      {Cost: 1},
	} {
		got, err := memberOf(words)
		want.Key = got.Key
		if err != nil || got != want {
			t.Errorf("%s = %+v, %v, want %+v", words, got, err, want)
		}
	}
	for words, want := range map[string]string{
		"counter/a":                 "counter cannot be part of a grant",
		"grant/a":                   "grant cannot be part of a grant",
		"gcra/a key me":             `parameter "key" is unknown, want one of size cost`,
		"gcra/a fit cut":            `fit is "cut", want clip`,
		"gcra/a cost 0":             `cost is "0", want a whole number from 1`,
		"gcra/a limits 5":           "want limits such as",
		"gcra/a limits 5/1s size 1": "want it instead of size",
		"semaphore/a fit clip":      "fit is a parameter of limiters, want only size and cost for",
		"semaphore/a zone UTC":      "zone is a parameter of limiters",
		"lock/a size 1":             "size is a parameter of limiters, want only cost for a lock",
		"fixedwindow/a zone " + strings.Repeat("z", 65): "zone has 65 bytes, want at most 64",
	} {
		if _, err := memberOf(words); err == nil || !strings.Contains(err.Error(), want) ||
			gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("%s: error is %v, want %s", words, err, want)
		}
	}
}

// What a grant is given as a whole has its defaults, which follow from what it wants.
func TestGrantValues(t *testing.T) {
	limiter := []gatehouse.Member{{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}, Cost: 1}}
	held := []gatehouse.Member{{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}, Cost: 1}}
	for _, test := range []struct {
		op      gatehouse.Op
		want    []gatehouse.Member
		words   string
		length  time.Duration
		maxWait time.Duration
		id      int // its length
	}{
		{gatehouse.OpAcquire, limiter, "", 0, gatehouse.Forever, 0},
		{gatehouse.OpAcquire, limiter, "maxwait 0", 0, 0, 0},
		{gatehouse.OpAcquire, limiter, "expires 5", 5 * time.Millisecond, gatehouse.Forever, 36},
		{gatehouse.OpAcquire, limiter, "ID x", time.Minute, gatehouse.Forever, 1},
		{gatehouse.OpAcquire, held, "maxwait -1", time.Minute, gatehouse.Forever, 36},
		{gatehouse.OpAcquire, held, "ID abc EXPIRES 1", time.Millisecond, gatehouse.Forever, 3},
		{gatehouse.OpRenew, nil, "", gatehouse.AsAcquired, 0, 0},
		{gatehouse.OpRenew, nil, "expires 7", 7 * time.Millisecond, 0, 0},
		{gatehouse.OpTopUp, nil, "", 0, 0, 0},
		{gatehouse.OpTopUp, nil, "maxwait 7", 0, 7 * time.Millisecond, 0},
		{gatehouse.OpSettle, nil, "fence 7", 0, 0, 0},
	} {
		cmd := gatehouse.GrantCommand{Op: test.op, Want: test.want}
		err := readGrantWords(test.words, &cmd)
		if err != nil || cmd.Expires != test.length || cmd.MaxWait != test.maxWait || len(cmd.ID) != test.id {
			t.Errorf("%s with %q = %+v, %v", test.op, test.words, cmd, err)
		}
	}
	for _, test := range []struct {
		op          gatehouse.Op
		words, want string
	}{
		{gatehouse.OpAcquire, "fence 5", `parameter "fence" is unknown, want one of id maxwait`},
		{gatehouse.OpAcquire, "expires 0", `expires is "0", want a whole number of milliseconds from 1`},
		{gatehouse.OpAcquire, "overrun no", `overrun is "no", want debt or cap`},
		{gatehouse.OpAcquire, "on-expiry no", `on-expiry is "no", want estimate, zero or last`},
		{gatehouse.OpAcquire, "id " + strings.Repeat("i", 129), "id has 129 bytes, want 1 to 128"},
		{gatehouse.OpRenew, "maxwait 5", `parameter "maxwait" is unknown, want one of expires fence`},
		{gatehouse.OpSettle, "fence x", `fence is "x", want a whole number from 0`},
		{gatehouse.OpPeek, "fence 1", `parameter "fence" is unknown, want none of a peek`},
	} {
		cmd := gatehouse.GrantCommand{Op: test.op}
		if err := readGrantWords(test.words, &cmd); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %q: error is %v, want %s", test.op, test.words, err, test.want)
		}
	}
}

// readGrantWords reads parameters and values.
func readGrantWords(words string, cmd *gatehouse.GrantCommand) error {
	var values GrantValues
	fields := strings.Fields(words)
	for i := 0; i+1 < len(fields); i += 2 {
		if err := values.Set(cmd.Op, []byte(fields[i]), []byte(fields[i+1])); err != nil {
			return err
		}
	}
	return values.Read(cmd)
}

func TestCosts(t *testing.T) {
	got, err := ReadCost(gatehouse.OpSettle, []byte("GCRA/a/b"), []byte("0"))
	want := gatehouse.MemberCost{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "a/b"}}
	if err != nil || got != want {
		t.Errorf("a cost = %+v, %v, want %+v", got, err, want)
	}
	for place, value := range map[string]string{"lock/a": "1", "a": "1", "gcra/a": "-1", "pace/a": "1.5"} {
		if got, err := ReadCost(gatehouse.OpSettle, []byte(place), []byte(value)); err == nil {
			t.Errorf("%s of %s = %+v, want an error", value, place, got)
		}
	}
	if got, err := ReadCost(gatehouse.OpTopUp, []byte("gcra/a"), []byte("0")); err == nil {
		t.Errorf("a topup of 0 = %+v, want an error", got)
	}
}

// The keys that holds of grants have are nobody else's.
func TestKeysOfGrants(t *testing.T) {
	var values Values
	_ = values.Set([]byte("key"), []byte("\x00grant/a"))
	cmd := gatehouse.Command{Op: gatehouse.OpRelease}
	err := values.Read(gatehouse.Lock, &cmd)
	if err == nil || !strings.Contains(err.Error(), "another first byte") {
		t.Errorf("a key that begins with a zero byte: error is %v, want one", err)
	}
}
