package control

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A golden is a form as it was once written: of what some lines of a scenario lead to.
type golden struct {
	name, lines string
	form        []byte
}

const goldenFile = "testdata/forms.golden"

// goldens are the forms that are written today.
func goldens(tb testing.TB) []golden {
	tb.Helper()
	return readGoldens(tb, goldenFile)
}

// readGoldens reads a file of them: each has its name in one line, then its scenario and its form.
func readGoldens(tb testing.TB, goldenFile string) (all []golden) {
	tb.Helper()
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		tb.Fatal(err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(part, "\n\t")
		if len(lines) != 3 {
			tb.Fatalf("%s: %q, want a name, a scenario and a form", goldenFile, part)
		}
		form, err := hex.DecodeString(lines[2])
		if err != nil {
			tb.Fatalf("%s: %s: %v", goldenFile, lines[0], err)
		}
		all = append(all, golden{lines[0], lines[1], form})
	}
	return all
}

// state runs the lines.
func (g golden) state(tb testing.TB) (gatehouse.Kind, State) {
	tb.Helper()
	kind, rest, _ := strings.Cut(g.lines, ";")
	s := newScenario(0, epoch())
	s.line(kind)
	for line := range strings.SplitSeq(rest, ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if at, err := time.ParseDuration(words[0]); err == nil {
			s.now, words = s.origin.Add(at), words[1:]
		}
		if got, fault := s.do(words); fault != "" || got[0].outcome == "invalid" {
			tb.Fatalf("%s: %s %v", line, fault, got)
		}
	}
	if s.state == nil {
		s.state = New(s.kind)
	}
	return s.kind, s.state
}

// TestGoldenForms: the form of each kind is as it was. Who changes one gives it a new version, reads the old
// one too, and adds the new one to the file.
func TestGoldenForms(t *testing.T) {
	var kinds [gatehouse.Kinds]bool
	for _, g := range goldens(t) {
		kind, s := g.state(t)
		kinds[kind] = true
		if got := Encode(nil, s); !bytes.Equal(got, g.form) {
			t.Errorf("%s: the form is\n%x, want\n%x", g.name, got, g.form)
		}
		read, err := Decode(kind, g.form)
		if err != nil || !bytes.Equal(Encode(nil, read), g.form) {
			t.Errorf("%s: Decode = %v, want the same form again", g.name, err)
		}
	}
	for kind := 1; kind < gatehouse.Kinds; kind++ {
		if !kinds[kind] {
			t.Errorf("%s has no %s", goldenFile, gatehouse.Kind(kind))
		}
	}
}

// TestFormsOfOld: what earlier versions wrote is read, stands as it stood, and is written in today's form.
func TestFormsOfOld(t *testing.T) {
	var earlier []golden
	for _, version := range []string{"v1", "v2", "v3"} {
		earlier = append(earlier, readGoldens(t, "testdata/forms."+version+".golden")...)
	}
	for _, g := range earlier {
		kind, want := g.state(t)
		old, err := Decode(kind, g.form)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		again, err := Decode(kind, Encode(nil, old))
		if err != nil {
			t.Errorf("%s: in today's form: %v", g.name, err)
			continue
		}
		stands := standing(kind, want)
		for _, s := range []State{old, again} {
			if got := standing(kind, s); got != stands {
				t.Errorf("%s: it stands\n%s, want\n%s", g.name, got, stands)
			}
		}
	}
}

// standing is what a state answers some time after a golden was made: statistics, and whether the place of
// key k can be cancelled.
func standing(kind gatehouse.Kind, s State) string {
	now := epoch().Add(7 * time.Second)
	answer := s.Expiry().String()
	stats := stepTurn(s, now, &Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}})
	stats.Generation = 0 // the first form does not tell it
	answer += fmt.Sprintf(" %+v", stats)
	if kind.Limiter() {
		cmd := gatehouse.Command{Op: gatehouse.OpCancel, Holder: "k"}
		cancel := stepTurn(s, now, &Turn{Command: &cmd})
		answer += fmt.Sprintf(" %+v", cancel)
	}
	return answer
}

// TestOldPlacesHaveNumbers: places of the first form are numbered as they are read, so that one that is told
// of again can be taken back, and no other with it.
func TestOldPlacesHaveNumbers(t *testing.T) {
	for _, g := range readGoldens(t, "testdata/forms.v1.golden") {
		if g.name != "fixedwindow reserved twice" {
			continue
		}
		state, err := Decode(gatehouse.FixedWindow, g.form)
		if err != nil {
			t.Fatal(err)
		}
		s, now := subject{kind: gatehouse.FixedWindow, state: state}, epoch().Add(2*time.Second)
		cmd := gatehouse.Command{
			Op:   gatehouse.OpReserve,
			Rule: gatehouse.Rule{Size: 1, Interval: 10 * time.Second}, Cost: 1, Holder: "k",
		}
		again := s.step(now, cmd)
		cmd.Holder = "new"
		other := s.step(now, cmd)
		if again.Reservation != 1 || !hasPlace(s.state, 1) || other.Reservation <= 2 {
			t.Fatalf("numbers are %d and %d, want 1 and one of the time",
				again.Reservation, other.Reservation)
		}
		cmd.Holder = "k"
		for left := 2; left >= 0; left-- { // it was told of twice before
			s.undo(now, cmd, &again)
			if hasPlace(s.state, 1) != (left > 0) || !hasPlace(s.state, other.Reservation) {
				t.Errorf("with %d answers left, the place is there: %v", left, hasPlace(s.state, 1))
			}
		}
	}
}

// TestDecodeRefuses: whatever is cut off from a form, or stands behind it, is missed. Every error names the
// kind.
func TestDecodeRefuses(t *testing.T) {
	for _, g := range goldens(t) {
		kind, _ := g.state(t)
		name, form := g.name, g.form
		for n := range form {
			if _, err := Decode(kind, form[:n]); err == nil || !strings.Contains(err.Error(), kind.String()) {
				t.Fatalf("%s: Decode of %d bytes of %d = %v, want an error", name, n, len(form), err)
			}
		}
		for _, bad := range [][]byte{append(slices.Clone(form), 0), append([]byte{9}, form[1:]...)} {
			if _, err := Decode(kind, bad); err == nil {
				t.Errorf("%s: Decode(%x) = no error, want one", name, bad)
			}
		}
	}
	for _, kind := range []gatehouse.Kind{0, gatehouse.Kind(gatehouse.Kinds), 255} {
		if _, err := Decode(kind, []byte{1}); err == nil {
			t.Errorf("Decode of kind %d = no error, want one", kind)
		}
	}
}

// TestDecodeUnknownZone: a zone that this machine does not know is an error, as windows would begin at
// another time.
func TestDecodeUnknownZone(t *testing.T) {
	all := goldens(t)
	i := slices.IndexFunc(all, func(g golden) bool { return g.name == "fixedwindow calendar" })
	kind, _ := all[i].state(t)
	form := bytes.Replace(all[i].form, []byte("Asia/Tokyo"), []byte("Asia/Tokio"), 1)
	if _, err := Decode(kind, form); err == nil || !strings.Contains(err.Error(), "Asia/Tokio") {
		t.Errorf("Decode = %v, want an error with the zone", err)
	}
}

// TestDecodeTakesLittle: what is read takes no more memory than some times the length of its form.
func TestDecodeTakesLittle(t *testing.T) {
	const most, least = 48, 20_000 // times the length; whatever the length
	barrier := &Barrier{commandCounts: commandCounts{created: 1}, arrivals: map[Ticket]struct{}{}}
	semaphore := &Semaphore{fence: 1 << 40}
	log := new(limiterState[slidingLogMeter, *slidingLogMeter])
	log.created = 1
	log.meter.meterRate, log.meter.span = meterRate{size: 9, interval: 9}, 9
	promised := &limiterState[paceMeter, *paceMeter]{limiterCore: limiterCore{
		commandCounts: commandCounts{created: 1},
		extra:         &limiterExtra{rule: gatehouse.Rule{Size: 9, Interval: 9}},
	}}
	promised.meter.meterRate, promised.meter.span = meterRate{size: 9, interval: 9}, 9
	for i := range 20_000 {
		barrier.arrivals[Ticket(i+1)] = struct{}{}
		semaphore.holds.add(&hold{holder: fmt.Sprint(i), cost: 1, until: 1, grants: 1})
		log.meter.runs = append(log.meter.runs, startRun{int64(i), 1})
		if i < maxReservations {
			place := reservation{at: 1, n: 1, number: 1, answers: 1}
			promised.extra.reservations = append(promised.extra.reservations, place)
		}
	}
	for _, s := range []State{barrier, semaphore, log, promised} {
		kind, form := kindOf(s), Encode(nil, s)
		for _, n := range []int{len(form), len(form) / 2, len(form) / 100} {
			took, err := decodeMemory(kind, form[:n])
			if (err == nil) != (n == len(form)) || took > most*n+least {
				t.Errorf("%s: Decode of %d bytes of %d took %d, %v, want at most %d times as many",
					kind, n, len(form), took, err, most)
			}
		}
	}
}

// decodeMemory is how many bytes Decode allocates for a form.
func decodeMemory(kind gatehouse.Kind, form []byte) (took int, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Decode(kind, form)
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc), err //nolint:gosec // it is little
}

// TestMonotonicTimes: that a time carries the reading of a clock of this process makes no difference.
func TestMonotonicTimes(t *testing.T) {
	now := time.Now()
	for kind, op := range map[gatehouse.Kind]gatehouse.Op{
		gatehouse.Event: gatehouse.OpSend, gatehouse.Watchdog: gatehouse.OpKick,
		gatehouse.Counter: gatehouse.OpCount, gatehouse.Barrier: gatehouse.OpWait,
	} {
		ours := subject{kind: kind}
		ours.step(now, gatehouse.Command{Op: op, Expires: time.Minute, Rule: gatehouse.Rule{Size: 1}})
		copied := subject{kind: kind, state: decoded(t, kind, ours.state)}
		for i := range 6 {
			cmd := gatehouse.Command{Op: op, Expires: time.Minute, Rule: gatehouse.Rule{Size: 1}}
			if i%2 == 1 {
				cmd.Op = gatehouse.OpStats
			}
			now = now.Add(time.Minute / 2)
			want, got := plainTimes(ours.step(now, cmd)), plainTimes(copied.step(now, cmd))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s = %v, want %v", kind, cmd.Op, got, want)
			}
		}
		if want := ours.state.Expiry(); !copied.state.Expiry().Equal(want) {
			t.Errorf("%s expires at %s, want %s", kind, copied.state.Expiry(), want)
		}
	}
}

// TestEncodeChangesNothing: forms may be written while others read the state; the race detector would tell.
func TestEncodeChangesNothing(t *testing.T) {
	for _, g := range goldens(t) {
		_, s := g.state(t)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { Encode(nil, s) })
		}
		both.Wait()
	}
}

// FuzzDecode reads anything: nothing panics, and what could be read can be used and written.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		kind, _ := g.state(f)
		f.Add(byte(kind), g.form, epoch().UnixNano())
	}
	f.Fuzz(func(t *testing.T, number byte, data []byte, at int64) {
		kind := gatehouse.Kind(number)
		s, err := Decode(kind, data)
		if err != nil {
			return
		}
		s = decoded(t, kind, s)
		now := time.Unix(0, at&(1<<62-1)) // up to 2116
		for _, turn := range fuzzTurns(kind) {
			now = now.Add(300 * time.Millisecond)
			d := stepTurn(s, now, &turn)
			s.Expiry()
			s = decoded(t, kind, s)
			if turn.Amount == 2 {
				turn.Granted = &d
				s.Undo(now, &turn)
			}
		}
		ForgetWaiters(s, func(ticket Ticket) bool { return ticket > 9 })
		decoded(t, kind, s)
	})
}

// fuzzTurns are turns of some valid commands of a kind, one of each operation and more of those that take
// something.
func fuzzTurns(kind gatehouse.Kind) (turns []Turn) {
	several := gatehouse.NewLimitList(
		gatehouse.Limit{Size: 3, Interval: time.Second}, gatehouse.Limit{Size: 9, Calendar: gatehouse.Day},
	)
	const times = 3
	for i := range 2 * times * int(gatehouse.OpDelete) {
		amount := int64(i % times)
		cmd := gatehouse.Command{
			Op:   gatehouse.Op(i / times % int(gatehouse.OpDelete)), //nolint:gosec // less than OpDelete
			Rule: gatehouse.Rule{Size: 3, Interval: time.Second, Burst: 2}, Cost: 2, Amount: amount,
			Expires: time.Minute, Holder: fmt.Sprint(amount), MaxWait: gatehouse.Forever,
			Feedback: &gatehouse.Feedback{Status: 429, Remaining: amount, Reset: time.Minute, Seed: 1},
		}
		if i >= times*int(gatehouse.OpDelete) {
			cmd.Limits = several
		}
		if cmd.Check(gatehouse.Key{Kind: kind, Name: "fuzz"}) == nil {
			ticket := Ticket(amount + 1) //nolint:gosec // a few
			turns = append(turns, Turn{Command: &cmd, Ticket: ticket, Forced: amount == 1, Requests: amount})
		}
	}
	return append(turns, fuzzGrants(kind)...)
}

// fuzzGrants are turns of a grant, the fence of which is of one that begins at MinFence.
func fuzzGrants(kind gatehouse.Kind) (turns []Turn) {
	member := 0
	switch {
	case kind == gatehouse.Grant:
		member = -1
	case !kind.Limiter():
		return nil
	}
	key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}
	for _, op := range []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpRenew, gatehouse.OpPeek,
		gatehouse.OpRelease,
	} {
		const fence = 1 << 60
		cmd := gatehouse.Command{
			Op: op, Rule: gatehouse.Rule{Size: 3, Interval: time.Second, Burst: 2}, Cost: 5,
			Expires: time.Second,
		}
		whole := gatehouse.GrantCommand{
			Op: op, ID: "x", Want: []gatehouse.Member{{Key: key, Cost: 5}},
			Costs: []gatehouse.MemberCost{{Key: key, Cost: 5}},
		}
		if op == gatehouse.OpTopUp && kind != gatehouse.Grant {
			cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1
		}
		if op != gatehouse.OpAcquire {
			cmd.Fence = fence
		}
		turns = append(turns, Turn{Command: &cmd, MinFence: fence, Grant: &GrantTurn{
			ID: "x", Command: &whole, Member: member, Clip: op == gatehouse.OpAcquire, Counted: 3,
		}})
	}
	return turns
}
