package params

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gatehousehq/gatehouse"
)

// read reads parameters that are written as in a query, but not encoded.
func read(kind gatehouse.Kind, op gatehouse.Op, query string) (cmd gatehouse.Command, err error) {
	var f Values
	cmd.Op = op
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); pair != "" {
			if err := f.Set([]byte(name), []byte(value)); err != nil {
				return cmd, err
			}
		}
	}
	err = f.Read(kind, &cmd)
	return cmd, err
}

func mustRead(t *testing.T, kind gatehouse.Kind, op gatehouse.Op, query string) gatehouse.Command {
	t.Helper()
	cmd, err := read(kind, op, query)
	if err != nil {
		t.Fatalf("%s %s %s: %v", kind, op, query, err)
	}
	return cmd
}

func TestDefaults(t *testing.T) {
	want := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1, Amount: 1, Expires: time.Minute,
		MaxWait: gatehouse.Forever,
	}
	if got := mustRead(t, gatehouse.TokenBucket, gatehouse.OpAcquire, ""); !reflect.DeepEqual(got, want) {
		t.Errorf("acquire without parameters = %+v, want %+v", got, want)
	}
}

// changes are the fields in which a command differs from one without parameters, as "Cost=2 Size=5": sorted.
func changes(t *testing.T, kind gatehouse.Kind, cmd gatehouse.Command) string {
	t.Helper()
	base, _ := read(kind, cmd.Op, "")
	got, before := reflect.ValueOf(cmd), reflect.ValueOf(base)
	var fields []string
	for _, field := range reflect.VisibleFields(got.Type()) {
		value := got.FieldByIndex(field.Index)
		if !field.Anonymous && !value.Equal(before.FieldByIndex(field.Index)) {
			fields = append(fields, fmt.Sprintf("%s=%v", field.Name, value))
		}
	}
	return sortWords(strings.Join(fields, " "))
}

func sortWords(text string) string { return strings.Join(slices.Sorted(strings.FieldsSeq(text)), " ") }

// readings are what a request without parameters becomes another one by.
var readings = []struct {
	kind        gatehouse.Kind
	op          gatehouse.Op
	query, want string
}{
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "size=5&cost=2&interval=60000&maxwait=0",
		"Size=5 Cost=2 Interval=1m0s Burst=4 MaxWait=0s"},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "SIZE=3&maxWait=1&CoSt=2",
		"Size=3 Cost=2 Interval=1s Burst=2 MaxWait=1ms"},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "size=3&size=7", "Size=7 Interval=1s Burst=6"},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "size=3&size=&key=a&key=", ""},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "size=0", "Size=0 Interval=1s"},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "interval=+5&maxwait=+7",
		"Size=1 Interval=5ms MaxWait=7ms"},
	{gatehouse.TokenBucket, gatehouse.OpAcquire, "mode=classic&guard=3", "Size=1 Interval=1s Guard=3ms"},
	{gatehouse.GCRA, gatehouse.OpAcquire, "size=30&interval=60000&burst=15",
		"Size=30 Interval=1m0s Burst=15"},
	{gatehouse.GCRA, gatehouse.OpAcquire, "size=30&burst=0", "Size=30 Interval=1s"},
	{gatehouse.GCRA, gatehouse.OpReserve, "key=me&cost=3&size=3",
		"Holder=me Size=3 Cost=3 Interval=1s Burst=2"},
	{gatehouse.GCRA, gatehouse.OpAcquire, "limits=200/1m,10/1s,5000/day&size=",
		"Size=1 Interval=1s Limits=10/1s,200/1m,5000/day"},
	{gatehouse.FixedWindow, gatehouse.OpAcquire, "size=9&interval=week&zone=Europe/Berlin",
		"Calendar=week Size=9 Zone=Europe/Berlin Burst=8"},
	{gatehouse.SlidingWindow, gatehouse.OpAcquire, "mode=strict", "Mode=strict Size=1 Interval=1s"},
	{gatehouse.SlidingWindow, gatehouse.OpAcquire, "mode=fine&mode=estimate", "Size=1 Interval=1s"},
	{gatehouse.Pace, gatehouse.OpReserve, "size=2&mode=paced&guard=250",
		"Mode=paced Size=2 Interval=1s Burst=1 Guard=250ms"},

	// A peek or a delay that names no limit asks about the one in force.
	{gatehouse.GCRA, gatehouse.OpPeek, "cost=0", "Cost=0"},
	{gatehouse.GCRA, gatehouse.OpPeek, "size=2", "Size=2 Interval=1s Burst=1"},
	{gatehouse.GCRA, gatehouse.OpPeek, "burst=2", "Size=1 Interval=1s Burst=2"},
	{gatehouse.GCRA, gatehouse.OpDelay, "interval=day", "Calendar=day Size=1"},
	{gatehouse.GCRA, gatehouse.OpDelay, "limits=2/1s", "Size=1 Interval=1s Limits=2/1s"},

	// So do an acquire, a reserve and a charge, unless they give any part of a limit.
	{gatehouse.GCRA, gatehouse.OpReserve, "key=me&cost=3&maxwait=0&size=", "Holder=me Cost=3 MaxWait=0s"},
	{gatehouse.GCRA, gatehouse.OpCharge, "cost=3", "Cost=3"},
	{gatehouse.Pace, gatehouse.OpCharge, "guard=0", "Size=1 Interval=1s"},
	{gatehouse.GCRA, gatehouse.OpCharge, "zone=UTC", "Size=1 Interval=1s Zone=UTC"},

	{gatehouse.Semaphore, gatehouse.OpAcquire, "key=k&size=3", "Holder=k Size=3"},
	{gatehouse.Semaphore, gatehouse.OpAcquire, "key=k&extend=true", "Holder=k Expires=-1ns Extend=true"},
	{gatehouse.Lock, gatehouse.OpAcquire, "key=k&extend=True&expires=5",
		"Holder=k Expires=5ms Extend=true"},
	{gatehouse.Lock, gatehouse.OpAcquire, "key=k&extend=false", "Holder=k"},
	{gatehouse.Lock, gatehouse.OpRenew, "key=k&extend=true", "Holder=k"},
	{gatehouse.GCRA, gatehouse.OpAcquire, "extend=true", ""},

	// What only limiters have does nothing elsewhere.
	{gatehouse.Semaphore, gatehouse.OpRelease, "key=k&interval=week&burst=7&guard=1&mode=fine&zone=x",
		"Holder=k Interval=0s"},
	{gatehouse.Semaphore, gatehouse.OpRenew, "key=k&expires=0", "Holder=k Expires=0s"},
	{gatehouse.Counter, gatehouse.OpCount, "amount=-4&key=k&id=anything&message=m&value=9", "Amount=-4"},

	// A message is kept by what sends it alone: a request that waits would keep it for as long.
	{gatehouse.Event, gatehouse.OpSend, "message=m", "Message=m"},
	{gatehouse.Event, gatehouse.OpWait, "message=m", ""},
	{gatehouse.Lock, gatehouse.OpAcquire, "key=k&message=m", "Holder=k"},

	{gatehouse.Counter, gatehouse.OpReset, "amount=4&value=-9223372036854775808",
		"Amount=-9223372036854775808"},
	{gatehouse.Barrier, gatehouse.OpWait, "limits=1/1s&zone=UTC", ""},
}

func TestParameters(t *testing.T) {
	for _, c := range readings {
		if got := changes(t, c.kind, mustRead(t, c.kind, c.op, c.query)); got != sortWords(c.want) {
			t.Errorf("%s %s %s = %s, want %s", c.kind, c.op, c.query, got, c.want)
		}
	}
}

// An acquire of what is held gets a key of its own when it brings none.
func TestKeys(t *testing.T) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		one, _ := read(kind, gatehouse.OpAcquire, "")
		two, _ := read(kind, gatehouse.OpAcquire, "key=")
		if HasHolders(kind) != (one.Holder != "") || one.Holder != "" && one.Holder == two.Holder {
			t.Errorf("%s: keys %q and %q, want two random ones for a semaphore or a lock alone",
				kind, one.Holder, two.Holder)
		}
	}
}

func TestTextsAreCopied(t *testing.T) {
	var f Values
	buffer := []byte("keymine")
	if err := f.Set(buffer[:3], buffer[3:]); err != nil {
		t.Fatal(err)
	}
	var cmd gatehouse.Command
	if err := f.Read(gatehouse.Lock, &cmd); err != nil {
		t.Fatal(err)
	}
	copy(buffer, "xxxxxxx")
	if cmd.Holder != "mine" {
		t.Errorf("holder = %q after the buffer was used again, want mine", cmd.Holder)
	}
}

// refusals are what one parameter may be refused with; every kind says the same.
var refusals = []struct{ query, want string }{
	{"size=-1", `size is "-1", want a whole number from 0 to 999999999999999`},
	{"size=+1", `size is "+1", want a whole number from 0 to 999999999999999`},
	{"size=1.0", `size is "1.0", want a whole number from 0 to 999999999999999`},
	{"size=1000000000000000", `size is "1000000000000000", want a whole number from 0 to 999999999999999`},
	{"cost=0", `cost is "0", want a whole number from 1 to 999999999999999`},
	{"cost=", `cost is "", want a whole number from 1 to 999999999999999`},
	{"interval=0", `interval is "0", want a whole number of milliseconds from 1 to 3153600000000`},
	{"interval=-5", `interval is "-5", want a whole number of milliseconds from 1 to 3153600000000`},
	{"interval=1s", `interval is "1s", want a whole number of milliseconds from 1 to 3153600000000: ` +
		`write interval=1000 for 1s`},
	{"interval=", `interval is "", want a whole number of milliseconds from 1 to 3153600000000`},
	{"interval=year", `interval is "year", want milliseconds, or day, week or month`},
	{"interval=Day", `interval is "Day", want milliseconds, or day, week or month`},
	{"expires=-1", `expires is "-1", want a whole number of milliseconds from 0 to 3153600000000`},
	{"maxwait=-2", `maxwait is "-2", want a whole number of milliseconds from -1 to 3153600000000`},
	{"amount=9223372036854775808",
		`amount is "9223372036854775808", want a whole number from -92233720368547`},
	{"value=x",
		`value is "x", want a whole number from -9223372036854775808 to 9223372036854775807`},
	{"burst=-1", `burst is "-1", want a whole number from 0 to 999999999999998`},
	{"burst=999999999999999", `burst is "999999999999999", want a whole number from 0 to 999999999999998`},
	{"burst=", `burst is "", want a whole number from 0 to 999999999999998`},
	{"guard=-1", `guard is "-1", want a whole number of milliseconds from 0 to 3153600000000`},
	{"guard=3153600000001",
		`guard is "3153600000001", want a whole number of milliseconds from 0 to 3153600000000`},
	{"limits=", `limits has "", want limits such as 10/1s,200/1m,5000/day`},
	{"limits=10", `limits has "10", want limits such as 10/1s,200/1m,5000/day`},
	{"limits=10/1s,", `limits has "", want limits such as 10/1s,200/1m,5000/day`},
	{"limits=1/1s&size=2", `limits is "1/1s", want it instead of size, interval and burst, not besides`},
	{"limits=1/1s&interval=2", `limits is "1/1s", want it instead of size, interval and burst, not besides`},
	{"burst=2&limits=1/1s", `limits is "1/1s", want it instead of size, interval and burst, not besides`},
	{"mode=", `mode is "", want one of `},
	{"mode=Strict", `mode is "Strict", want one of `},
	{"zone=" + strings.Repeat("z", 65), "zone has 65 bytes, want at most 64"},
	{"key=" + strings.Repeat("k", 513), "key has 513 bytes, want at most 512"},
	{"message=" + strings.Repeat("m", 4097), "message has 4097 bytes, want at most 4096"},
	{"id=" + strings.Repeat("i", 4097), "id has 4097 bytes, want at most 4096"},
	{"step=1", `parameter "step" is unknown, want one of size cost interval expires maxwait key message ` +
		`amount value id burst mode guard limits zone fence extend`},
	{"extend=1", `extend is "1", want true or false`},
	{"fence=-1&key=k", `fence is "-1", want a whole number from 0 to 18446744073709551615`},
	{"fence=18446744073709551616&key=k", `fence is "18446744073709551616", want a whole number from 0 to`},
	{"fence=x&key=k", `fence is "x", want a whole number from 0 to 18446744073709551615`},
	{"fence=7", `fence is 7 without a key, want the key of that hold with it`},
	{"fence=0", ""}, {"fence=", ""}, {"fence=18446744073709551615&key=k", ""},
	{"=1", `parameter "" is unknown, want one of `},
	{"size", ""}, {"key", ""}, {"zone=" + strings.Repeat("z", 64), ""}, // these are not refused
}

func TestRefusals(t *testing.T) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		for _, c := range refusals {
			_, err := read(kind, gatehouse.OpStats, c.query)
			if got := fmt.Sprint(err); err == nil && c.want != "" || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %.80s = %s, want %s", kind, c.query, got, c.want)
			}
			if err != nil && gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
				t.Errorf("%s: %.80s has code %s, want invalid", kind, c.query, gatehouse.CodeOf(err))
			}
		}
	}
}

func TestModesOfOtherKinds(t *testing.T) {
	for _, c := range []struct {
		kind        gatehouse.Kind
		query, want string
	}{
		{gatehouse.SlidingWindow, "mode=paced", `mode is "paced", want one of estimate fine strict`},
		{gatehouse.Pace, "mode=fine", `mode is "fine", want one of reserve paced classic`},
		{gatehouse.GCRA, "mode=fast",
			`mode is "fast", want one of estimate fine strict reserve paced classic`},
	} {
		if _, err := read(c.kind, gatehouse.OpAcquire, c.query); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %s = %v, want %s", c.kind, c.query, err, c.want)
		}
	}
}

func TestMissingKeys(t *testing.T) {
	for _, c := range []struct {
		kind gatehouse.Kind
		op   gatehouse.Op
		want string
	}{
		{gatehouse.Semaphore, gatehouse.OpRelease, "key is missing, want the key that acquire answered with"},
		{gatehouse.Lock, gatehouse.OpRenew, "key is missing, want the key that acquire answered with"},
		{gatehouse.Pace, gatehouse.OpCancel, "key is missing, want the key that reserve was given"},
	} {
		for _, query := range []string{"", "key=", "key=a&key="} {
			if _, err := read(c.kind, c.op, query); fmt.Sprint(err) != c.want {
				t.Errorf("%s %s %s = %v, want %s", c.kind, c.op, query, err, c.want)
			}
		}
	}
}

// FuzzRead reads whatever may come. What it accepts, the core accepts too, but for what it alone can see.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"size=5&cost=2&interval=60000&maxwait=-1", "limits=10/1s,200/1m&zone=Europe/Berlin", "interval=month",
		"mode=strict&guard=250&burst=9", "key=&size=&Amount=+7&value=-1&id=\x00", "limits=1/1ns,2/23h,3/day",
		"size=999999999999999&interval=1&burst=999999999999998", "=&a&;", "limits=0/1h&cost=3",
	} {
		for kind := range uint8(gatehouse.Kinds) {
			f.Add(kind, kind%uint8(gatehouse.OpUndo), seed)
		}
	}
	f.Fuzz(func(t *testing.T, k, o uint8, query string) {
		kind := gatehouse.Kind(k%uint8(gatehouse.Kinds-1) + 1)
		op := gatehouse.Op(o%uint8(gatehouse.OpDelete) + 1)
		if !kind.Has(op) {
			return
		}
		cmd, err := read(kind, op, query)
		if err != nil {
			code := gatehouse.CodeOf(err)
			if code != gatehouse.CodeInvalid || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("%q: code %s, %q", query, code, err)
			}
			return
		}
		err = cmd.Check(gatehouse.Key{Kind: kind, Name: "n"})
		if err != nil && !strings.Contains(err.Error(), "can never fit") &&
			!strings.Contains(err.Error(), "want a lower") {
			t.Errorf("%s %s %q was read as %+v, but: %v", kind, op, query, cmd, err)
		}
		if cmd.Limits.Len() == 0 {
			return
		}
		again, err := gatehouse.ParseLimits(cmd.Limits.String())
		if err != nil || again != cmd.Limits {
			t.Errorf("limits of %q are %s, which is read as %s, %v", query, cmd.Limits, again, err)
		}
	})
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"a\x00\n\"b\"":                   `"a\x00\n\"b\""`,
		"\xff":                           `"\xff"`,
		strings.Repeat("x", maxQuoted):   `"` + strings.Repeat("x", maxQuoted) + `"`,
		strings.Repeat("x", maxQuoted+1): `"` + strings.Repeat("x", maxQuoted) + `"…`,
		strings.Repeat("€", maxQuoted):   `"` + strings.Repeat("€", maxQuoted/3) + `\xe2\x82"…`,
	} {
		if got := Quote([]byte(text)); got != want {
			t.Errorf("Quote(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestNamesAreACopy(t *testing.T) {
	all := Names()
	all[0] = "changed"
	if got := Names(); len(got) != numParameters || got[0] != "size" {
		t.Errorf("Names() = %q, want all %d, size first", got, numParameters)
	}
}

// TestTakesForClient: what is taken back of a client that is gone is a hold, and what it has waited for, but
// for events and watchdogs, which all can have.
func TestTakesForClient(t *testing.T) {
	for kind := gatehouse.Kind(1); kind <= gatehouse.Grant; kind++ {
		hold := kind == gatehouse.Semaphore || kind == gatehouse.Lock
		for op := gatehouse.OpAcquire; op <= gatehouse.OpUndo; op++ {
			atOnce, waited := TakesForClient(op, kind, false), TakesForClient(op, kind, true)
			wantAtOnce := op == gatehouse.OpAcquire && hold
			wantWaited := op == gatehouse.OpAcquire || op == gatehouse.OpWait && kind == gatehouse.Barrier
			if atOnce != wantAtOnce || waited != wantWaited {
				t.Errorf("%s of %s takes %t, and %t if it has waited, want %t and %t",
					op, kind, atOnce, waited, wantAtOnce, wantWaited)
			}
		}
	}
}
