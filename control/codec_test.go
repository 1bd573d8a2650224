package control

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// decoded reads back what Encode wrote of a state.
func decoded(t interface{ Fatalf(string, ...any) }, kind gatehouse.Kind, s State) State {
	data := Encode(nil, s)
	read, err := Decode(kind, data)
	if err != nil {
		t.Fatalf("Decode(%s, %x) = %v, of %+v", kind, data, err, s)
	}
	if again := Encode(nil, read); !bytes.Equal(again, data) {
		t.Fatalf("%s: form of what was read is\n%x, want\n%x\nof %+v", kind, again, data, s)
	}
	return read
}

// drawHeld returns a turn of any valid command of a kind that is no limiter, from a few holders and waiters.
func drawHeld(t *rapid.T, kind gatehouse.Kind) (turn *Turn, ok bool) {
	hold := []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew}
	ops := map[gatehouse.Kind][]gatehouse.Op{
		gatehouse.Semaphore: hold, gatehouse.Lock: hold,
		gatehouse.Event:    {gatehouse.OpWait, gatehouse.OpSend},
		gatehouse.Watchdog: {gatehouse.OpWait, gatehouse.OpKick},
		gatehouse.Counter:  {gatehouse.OpCount, gatehouse.OpValue, gatehouse.OpReset},
		gatehouse.Barrier:  {gatehouse.OpWait},
	}[kind]
	lengths := []time.Duration{0, 1, time.Second, time.Minute, gatehouse.MaxDuration}
	cmd := gatehouse.Command{
		Op:     rapid.SampledFrom(append(slices.Clone(ops), gatehouse.OpStats)).Draw(t, "op"),
		Holder: rapid.SampledFrom([]string{"a", "b", "c", "d\xff"}).Draw(t, "key"),
		Rule: gatehouse.Rule{
			Size: rapid.SampledFrom([]int64{0, 1, 3, 7, gatehouse.MaxSize}).Draw(t, "size"),
		},
		Cost:    rapid.SampledFrom([]int64{1, 1, 2, gatehouse.MaxSize}).Draw(t, "cost"),
		Amount:  rapid.Int64().Draw(t, "amount"),
		Expires: rapid.SampledFrom(append(slices.Clone(lengths), gatehouse.AsAcquired)).Draw(t, "expires"),
		Keep:    rapid.SampledFrom(lengths).Draw(t, "keep"),
		MaxWait: rapid.SampledFrom([]time.Duration{0, gatehouse.Forever}).Draw(t, "maxwait"),
		Message: rapid.SampledFrom([]string{"", "hello", "\x00\xff"}).Draw(t, "message"),
	}
	turn = &Turn{
		Command: &cmd, Ticket: Ticket(rapid.Uint64Range(0, 5).Draw(t, "ticket")),
		Leased: rapid.Bool().Draw(t, "leased"),
	}
	if rapid.IntRange(0, 3).Draw(t, "revision") == 0 {
		turn.MinFence, turn.MaxHolders = rapid.Uint64Range(1, 1<<60).Draw(t, "fence"), 2
	}
	return turn, cmd.Check(gatehouse.Key{Kind: kind, Name: "any"}) == nil
}

// drawRecord returns a turn of the record of a grant.
func drawRecord(t *rapid.T) *Turn {
	op := rapid.SampledFrom([]gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpRenew, gatehouse.OpTopUp,
		gatehouse.OpSettle, gatehouse.OpRelease, gatehouse.OpStats,
	}).Draw(t, "op")
	cmd := gatehouse.Command{
		Op: op, Fence: rapid.SampledFrom([]uint64{0, 0, 0, 7}).Draw(t, "fence"),
		Expires: rapid.SampledFrom([]time.Duration{1, time.Minute, gatehouse.MaxDuration}).Draw(t, "expires"),
	}
	key := keyOf(gatehouse.GCRA, rapid.SampledFrom([]string{"a", "b\xff"}).Draw(t, "name"))
	limits := gatehouse.NewLimitList(gatehouse.Limit{Size: 3, Calendar: gatehouse.Day})
	whole := &gatehouse.GrantCommand{
		Op: op, ID: "x", Costs: []gatehouse.MemberCost{{Key: key, Cost: 2}},
		Want: []gatehouse.Member{
			{Key: key, Cost: rapid.Int64Range(1, gatehouse.MaxSize).Draw(t, "cost"), Clip: true},
			{Key: keyOf(gatehouse.Lock, "l"), Cost: 1, Rule: gatehouse.Rule{Size: gatehouse.InForce}},
			{Key: keyOf(gatehouse.Pace, "p"), Cost: 1,
				Rule: gatehouse.Rule{Limits: limits, Zone: "Asia/Tokyo"}},
		},
	}
	return &Turn{Command: &cmd, Grant: &GrantTurn{
		ID: "x", Command: whole, Member: -1,
		Overrun:  rapid.SampledFrom([]gatehouse.Overrun{0, 1}).Draw(t, "overrun"),
		OnExpiry: rapid.SampledFrom([]gatehouse.OnExpiry{0, 1, 2}).Draw(t, "on-expiry"),
	}}
}

// drawAny returns a turn of any valid command of a kind.
func drawAny(t *rapid.T, kind gatehouse.Kind) (turn *Turn, ok bool) {
	if kind == gatehouse.Grant {
		return drawRecord(t), true
	}
	if !kind.Limiter() {
		return drawHeld(t, kind)
	}
	of := slices.DeleteFunc(varieties(), func(v variety) bool { return v.kind != kind })
	return drawExtreme(t, rapid.SampledFrom(of).Draw(t, "variety"))
}

// plainTimes is a decision whose times can be compared as values.
func plainTimes(d gatehouse.Decision) gatehouse.Decision {
	d.At = d.At.Round(0).UTC()
	if d.Grant != nil {
		d.Grant = new(*d.Grant)
		d.Grant.Since, d.Grant.Until = d.Grant.Since.Round(0).UTC(), d.Grant.Until.Round(0).UTC()
	}
	d.Stats = slices.Clone(d.Stats)
	for i, stat := range d.Stats {
		if at, ok := stat.Value.(time.Time); ok {
			d.Stats[i].Value = at.Round(0).UTC()
		}
	}
	return d
}

// TestDecodedDecidesTheSame: whatever was done to a controller, a copy that was read from its form decides
// as the controller itself from then on, and has the same form.
func TestDecodedDecidesTheSame(t *testing.T) {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkDecoded(t, kind) })
		})
	}
}

func checkDecoded(t *rapid.T, kind gatehouse.Kind) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pauses := []time.Duration{0, 0, 0, 1, time.Millisecond, time.Second, time.Second, 3 * time.Hour}
	ours, copied := subject{kind: kind, state: New(kind)}, subject{kind: kind, state: New(kind)}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(rapid.SampledFrom(pauses).Draw(t, "pause"))
		if rapid.IntRange(0, 3).Draw(t, "read") == 0 {
			copied.state = decoded(t, kind, copied.state)
		}
		turn, ok := drawAny(t, kind)
		if !ok {
			continue
		}
		want, got := ours.stepTurn(now, turn), copied.stepTurn(now, turn)
		if rapid.IntRange(0, 5).Draw(t, "undo") == 0 {
			undo := UndoOf(turn, nil)
			if want.Outcome == gatehouse.Granted {
				undo.Granted = &want
			}
			ours.stepTurn(now, &undo)
			copied.stepTurn(now, &undo)
		}
		if want, got = plainTimes(want), plainTimes(got); !reflect.DeepEqual(got, want) {
			t.Fatalf("at %s: %+v = %+v of what was read, want %+v", now, turn.Command, got, want)
		}
		a, b := Encode(nil, ours.state), Encode(nil, copied.state)
		if !bytes.Equal(a, b) || !ours.state.Expiry().Equal(copied.state.Expiry()) {
			t.Fatalf("at %s: after %+v the form is\n%x, of what was read\n%x", now, turn.Command, a, b)
		}
	}
}

// hotStates are states as they stand in the midst of their use.
func hotStates() map[string]State {
	states := map[string]State{}
	for _, v := range varieties() {
		s, turn := hot(v, false)
		for i := range 100 {
			s.Step(epoch().Add(time.Duration(i)*5*time.Microsecond), turn)
		}
		states[v.String()] = s
	}
	for _, n := range []int{1, 1000} {
		s := New(gatehouse.Semaphore)
		for i := range n {
			s.Step(epoch(), &Turn{Command: &gatehouse.Command{
				Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 10_000}, Cost: 1,
				Expires: time.Minute, Holder: fmt.Sprintf("0123456789abcdef%06d", i),
			}})
		}
		states[fmt.Sprint("semaphore", n)] = s
	}
	for kind, op := range map[gatehouse.Kind]gatehouse.Op{
		gatehouse.Event: gatehouse.OpWait, gatehouse.Watchdog: gatehouse.OpKick,
		gatehouse.Counter: gatehouse.OpCount, gatehouse.Barrier: gatehouse.OpWait,
	} {
		states[kind.String()] = New(kind)
		cmd := gatehouse.Command{Op: op, Amount: 1, Rule: gatehouse.Rule{Size: 3}, Expires: time.Minute,
			MaxWait: time.Second}
		states[kind.String()].Step(epoch(), &Turn{Command: &cmd, Ticket: 7})
	}
	return states
}

// kindOf is the kind of a state.
func kindOf(s State) gatehouse.Kind {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if reflect.TypeOf(New(kind)) == reflect.TypeOf(s) {
			return kind
		}
	}
	return 0
}

// TestEncodeAllocates: writing the form of a limiter allocates nothing when there is room for it.
func TestEncodeAllocates(t *testing.T) {
	for name, s := range hotStates() {
		if !kindOf(s).Limiter() {
			continue
		}
		data := make([]byte, 0, 1<<16)
		if n := testing.AllocsPerRun(100, func() { data = Encode(data[:0], s) }); n > 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, s := range hotStates() {
		b.Run(name, func(b *testing.B) {
			data := Encode(nil, s)
			b.ReportAllocs()
			for b.Loop() {
				data = Encode(data[:0], s)
			}
			b.ReportMetric(float64(len(data)), "bytes")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, s := range hotStates() {
		b.Run(name, func(b *testing.B) {
			kind, data := kindOf(s), Encode(nil, s)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(kind, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
