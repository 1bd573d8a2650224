package control

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A managed is a controller and the time, for steps that are one line each.
type managed struct {
	t     *testing.T
	kind  gatehouse.Kind
	state State
	now   time.Time
}

// at puts a command to the controller some time after the epoch, as one that was stored in between.
func (m *managed) at(after time.Duration, cmd gatehouse.Command) gatehouse.Decision {
	m.t.Helper()
	m.now = epoch().Add(after)
	if err := cmd.Check(gatehouse.Key{Kind: m.kind, Name: "n"}); err != nil {
		m.t.Fatal(err)
	}
	if m.state != nil {
		form := Encode(nil, m.state)
		read, err := Decode(m.kind, form)
		if err != nil || !bytes.Equal(Encode(nil, read), form) {
			m.t.Fatalf("at %s: Decode = %v, want the same form again", after, err)
		}
		m.state = read
	}
	queue := []Turn{{Command: &cmd}}
	m.state = Serve(m.now, m.kind, m.state, queue)
	return queue[0].Decision
}

// want wants an outcome, and of a message some part.
func (m *managed) want(
	after time.Duration, cmd gatehouse.Command, want gatehouse.Outcome, message string,
) gatehouse.Decision {
	m.t.Helper()
	d := m.at(after, cmd)
	if d.Outcome != want || !strings.Contains(d.Message, message) {
		m.t.Errorf("at %s: %s %s is %s %q, want %s %q", after, cmd.Op, cmd.Holder, d.Outcome, d.Message, want,
			message)
	}
	return d
}

func acquireBy(holder, owner string, expires time.Duration) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Cost: 1, Expires: expires,
		Rule:  gatehouse.Rule{Size: 2, Interval: time.Hour},
		Owner: &gatehouse.Owner{Name: owner, Host: "g1", Purpose: "eval"},
	}
}

func renewBy(holder string) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpRenew, Holder: holder, Expires: gatehouse.AsAcquired}
}

func evictOf(fence uint64, now bool) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpEvict, Fence: fence, Now: now, Message: "node drained",
		Owner: &gatehouse.Owner{Name: "ops"},
	}
}

// TestHoldersAreTold: what is held is told with its owner, since when, until when and how often it was
// renewed, but never with its key; and what has ended is not.
func TestHoldersAreTold(t *testing.T) {
	m := &managed{t: t, kind: gatehouse.Semaphore}
	m.want(0, gatehouse.Command{Op: gatehouse.OpHolders}, gatehouse.Missing, "")
	first := m.want(0, acquireBy("secret-a", "train-a", time.Minute), gatehouse.Granted, "").Fence
	m.want(time.Second, acquireBy("secret-b", "train-b", 10*time.Second), gatehouse.Granted, "")
	m.want(20*time.Second, renewBy("secret-a"), gatehouse.Granted, "")
	m.want(30*time.Second, renewBy("secret-a"), gatehouse.Granted, "")
	grant := acquireBy(GrantHolder("op-7"), "", 0)
	m.state = Serve(epoch().Add(31*time.Second), m.kind, m.state, []Turn{{Command: &grant}})
	r := m.want(40*time.Second, gatehouse.Command{Op: gatehouse.OpHolders}, gatehouse.Granted, "").Report
	want := "&{Limit:2 Used:2 Closed:<nil> Holders:[" +
		"{Fence:" + fmt.Sprint(first) + " Owner:{Name:train-a Host:g1 Purpose:eval} Grant: Since:" +
		epoch().String() + " HeldFor:40s ExpiresAfter:50s Renewals:2 Slots:1 Evicted:<nil>} " +
		"{Fence:" + fmt.Sprint(first+31e6) + " Owner:{Name: Host:g1 Purpose:eval} Grant:op-7 Since:" +
		epoch().Add(31*time.Second).String() +
		" HeldFor:9s ExpiresAfter:-1ns Renewals:0 Slots:1 Evicted:<nil>}" +
		"] Waiters:[] Total:2 Others:[] Next:}"
	if got := fmt.Sprintf("%+v", r); got != want {
		t.Errorf("holders are\n%s, want\n%s", got, want)
	}
}

// TestHoldersArePaged: a list continues behind an id, and none is left out or told twice.
func TestHoldersArePaged(t *testing.T) {
	m := &managed{t: t, kind: gatehouse.Semaphore}
	const n = 250
	for i := range n {
		cmd := acquireBy(fmt.Sprint(i), fmt.Sprint(i), time.Hour)
		cmd.Size = n
		m.want(time.Duration(i)*time.Millisecond, cmd, gatehouse.Granted, "")
	}
	seen, after := 0, uint64(0)
	for {
		r := m.at(time.Second, gatehouse.Command{Op: gatehouse.OpHolders, Fence: after, Amount: 7}).Report
		for _, h := range r.Holders {
			if h.Owner.Name != fmt.Sprint(seen) {
				t.Fatalf("holder %d is %s", seen, h.Owner.Name)
			}
			seen++
		}
		if r.Next == "" {
			break
		}
		after, _ = gatehouse.ParseHolderID(r.Next)
	}
	if seen != n {
		t.Errorf("%d holders were listed, want %d", seen, n)
	}
}

// TestEvict: a hold that is evicted lasts for its term, and is not renewed; its holder learns who and why,
// then and later. The key may acquire again.
func TestEvict(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.Lock} {
		m := &managed{t: t, kind: kind}
		fence := m.want(0, acquireBy("a", "train-a", time.Minute), gatehouse.Granted, "").Fence
		m.want(time.Second, evictOf(fence+1, false), gatehouse.Conflict, "no hold with this id")
		d := m.want(time.Second, evictOf(fence, false), gatehouse.Granted, "")
		if d.ExpiresAfter != 59*time.Second {
			t.Errorf("it lasts %s, want 59s", d.ExpiresAfter)
		}
		m.want(2*time.Second, renewBy("a"), gatehouse.Conflict, "evicted by ops: node drained")
		extend := acquireBy("a", "", gatehouse.AsAcquired)
		extend.Extend = true
		m.want(2*time.Second, extend, gatehouse.Conflict, "evicted by ops: node drained")
		m.want(2*time.Second, acquireBy("a", "", time.Minute), gatehouse.Granted, "") // the same hold
		r := m.at(3*time.Second, gatehouse.Command{Op: gatehouse.OpHolders}).Report
		if e := r.Holders[0].Evicted; e == nil || e.By != "ops" || e.Reason != "node drained" {
			t.Errorf("it is told as evicted by %v", e)
		}
		m.want(time.Minute, renewBy("a"), gatehouse.Conflict, "evicted by ops: node drained")
		m.want(time.Minute, renewBy("b"), gatehouse.Conflict, "is not held with this key: it was never")
		again := m.want(time.Minute, acquireBy("a", "", 0), gatehouse.Granted, "").Fence
		m.want(time.Minute, renewBy("a"), gatehouse.Granted, "")
		// One without an end goes at once, and so does one with it where the command says so.
		m.want(61*time.Second, evictOf(again, false), gatehouse.Granted, "")
		third := m.want(61*time.Second, acquireBy("c", "", time.Hour), gatehouse.Granted, "").Fence
		m.want(61*time.Second, evictOf(third, true), gatehouse.Granted, "")
		m.want(61*time.Second, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "c"}, gatehouse.Conflict,
			"evicted by ops")
		if n := Holders(m.state); n != 0 {
			t.Errorf("%d holders are left, want none", n)
		}
	}
}

// TestEvictionsAreBounded: the last sixteen are remembered.
func TestEvictionsAreBounded(t *testing.T) {
	m := &managed{t: t, kind: gatehouse.Lock}
	for i := range maxEvictions + 1 {
		at := time.Duration(i) * time.Second
		fence := m.want(at, acquireBy(fmt.Sprint(i), "", time.Hour), gatehouse.Granted, "").Fence
		m.want(at, evictOf(fence, true), gatehouse.Granted, "")
	}
	m.want(time.Minute, renewBy("0"), gatehouse.Conflict, "never acquired")
	m.want(time.Minute, renewBy("1"), gatehouse.Conflict, "evicted")
	m.want(time.Minute, renewBy(fmt.Sprint(maxEvictions)), gatehouse.Conflict, "evicted")
}

// TestManyEvictions: what was evicted is not renewed, however many others are evicted after it.
func TestManyEvictions(t *testing.T) {
	m := &managed{t: t, kind: gatehouse.Semaphore}
	var fences []uint64
	for i := range maxEvictions + 2 {
		acquire := acquireBy(fmt.Sprint(i), "", time.Minute)
		acquire.Size = 2 * maxEvictions
		fences = append(fences, m.want(0, acquire, gatehouse.Granted, "").Fence)
	}
	for i, fence := range fences[:maxEvictions] {
		m.want(time.Second, evictOf(fence, false), gatehouse.Granted, "")
		m.want(time.Second, renewBy(fmt.Sprint(i)), gatehouse.Conflict, "evicted")
	}
	// Of one that is gone the reason is forgotten first, and then that of the oldest.
	m.want(time.Second, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "3"}, gatehouse.Granted, "")
	m.want(time.Second, evictOf(fences[maxEvictions], false), gatehouse.Granted, "")
	m.want(time.Second, renewBy("0"), gatehouse.Conflict, "evicted by ops")
	m.want(time.Second, evictOf(fences[maxEvictions+1], false), gatehouse.Granted, "")
	for _, holder := range []int{0, 1, 2, 4, maxEvictions, maxEvictions + 1} {
		m.want(time.Second, renewBy(fmt.Sprint(holder)), gatehouse.Conflict, "it was evicted")
	}
	m.want(time.Second, renewBy("1"), gatehouse.Conflict, "it was evicted by ops")
	r := m.at(time.Second, gatehouse.Command{Op: gatehouse.OpHolders}).Report
	for _, h := range r.Holders {
		if h.Evicted == nil {
			t.Errorf("%+v is not told as evicted", h)
		}
	}
	m.state = decoded(t, gatehouse.Semaphore, m.state)
	m.want(time.Second, renewBy("0"), gatehouse.Conflict, "it was evicted")
}

// TestClose: a closed name grants nothing, whatever sizes and limits requests bring, and says why; what is
// held stays, and is renewed and released. It is not forgotten. Who waits goes on when it is opened.
func TestClose(t *testing.T) {
	shut := gatehouse.Command{
		Op: gatehouse.OpClose, Message: "maintenance", Owner: &gatehouse.Owner{Name: "ops"},
	}
	open := gatehouse.Command{Op: gatehouse.OpOpen}
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Has(gatehouse.OpClose) {
			continue
		}
		m := &managed{t: t, kind: kind}
		acquire := acquireBy("a", "", time.Minute)
		m.want(0, open, gatehouse.Granted, "")
		m.want(0, acquire, gatehouse.Granted, "")
		m.want(time.Second, shut, gatehouse.Granted, "")
		if e := m.state.Expiry(); !e.Equal(neverExpires()) {
			t.Errorf("%s: it is forgotten at %s though it is closed", kind, e)
		}
		other := acquireBy("b", "", time.Minute)
		other.Size = 100
		d := m.want(time.Second, other, gatehouse.Refused, "is closed by ops: maintenance")
		if d.RetryAfter != gatehouse.Forever {
			t.Errorf("%s: retry after %s, want Forever", kind, d.RetryAfter)
		}
		if kind.Limiter() {
			m.want(time.Second, gatehouse.Command{Op: gatehouse.OpReset}, gatehouse.Granted, "")
			for _, op := range []gatehouse.Op{gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve} {
				asked := other
				asked.Op = op
				m.want(2*time.Second, asked, gatehouse.Refused, "is closed by ops: maintenance")
			}
		} else {
			m.want(2*time.Second, renewBy("a"), gatehouse.Granted, "")
			release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}
			m.want(2*time.Second, release, gatehouse.Granted, "")
		}
		m.want(2*time.Second, other, gatehouse.Refused, "is closed")
		stats := fmt.Sprint(m.at(2*time.Second, gatehouse.Command{Op: gatehouse.OpStats}).Stats)
		if !strings.Contains(stats, "{closed is closed by ops: maintenance}") {
			t.Errorf("%s: stats are %s, want them to tell that it is closed", kind, stats)
		}
		other.MaxWait = gatehouse.Forever
		queue := []Turn{{Command: &other, Ticket: 1}, {Command: &open}}
		m.state = Serve(m.now, kind, m.state, queue)
		if got := queue[0].Decision.Outcome; got != gatehouse.Granted {
			t.Errorf("%s: who waits is %s when it is opened, want granted", kind, got)
		}
		m.want(3*time.Second, gatehouse.Command{Op: gatehouse.OpDelete}, gatehouse.Granted, "")
	}
}

// TestClosedBeforeUse: a name may be closed before it is used first.
func TestClosedBeforeUse(t *testing.T) {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Has(gatehouse.OpClose) {
			continue
		}
		m := &managed{t: t, kind: kind}
		m.want(0, gatehouse.Command{Op: gatehouse.OpClose}, gatehouse.Granted, "")
		m.want(time.Second, acquireBy("a", "", time.Minute), gatehouse.Refused, "is closed")
		m.want(time.Second, gatehouse.Command{Op: gatehouse.OpOpen}, gatehouse.Granted, "")
		m.want(time.Second, acquireBy("a", "", time.Minute), gatehouse.Granted, "")
	}
}

// TestExplain: a refusal names who holds, if it is asked to.
func TestExplain(t *testing.T) {
	m := &managed{t: t, kind: gatehouse.Semaphore}
	m.want(0, acquireBy("a", "train-a", 0), gatehouse.Granted, "")
	m.want(40*time.Minute, acquireBy("b", "", time.Hour), gatehouse.Granted, "")
	third := acquireBy("c", "", time.Hour)
	if d := m.want(42*time.Minute, third, gatehouse.Refused, ""); d.Message != "" {
		t.Errorf("a refusal that nobody asked to explain says %q", d.Message)
	}
	third.Explain = true
	m.want(42*time.Minute, third, gatehouse.Refused, "is full: 2 of 2 held, train-a for 42 m, g1 for 2 m")
	third.Cost = 2
	m.want(42*time.Minute, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "b"}, gatehouse.Granted, "")
	m.want(42*time.Minute, third, gatehouse.Refused, "has too little room: 1 of 2 held, train-a for 42 m")
	for i := range 5 {
		more := acquireBy(fmt.Sprint(i), fmt.Sprint("job-", i), time.Hour)
		more.Size = 6
		m.want(43*time.Minute, more, gatehouse.Granted, "")
	}
	third.Size = 6
	m.want(43*time.Minute, third, gatehouse.Refused, "job-0 for 0 ms, job-1 for 0 ms and 3 more")
}

// TestForecast: how long those in line may have to wait follows from how long holds lasted, from their ends
// where that is not known, and of limiters from their limits.
func TestForecast(t *testing.T) {
	waiters := func(m *managed, n int) (waits []string) {
		line := &Line{Total: n}
		for range n {
			line.Entries = append(line.Entries, LineEntry{Cost: 1, Expires: time.Minute})
		}
		queue := []Turn{{Command: &gatehouse.Command{Op: gatehouse.OpWaiters}, Line: line}}
		m.state = Serve(m.now, m.kind, m.state, queue)
		for _, w := range queue[0].Decision.Report.Waiters {
			half, most := w.Expected.Round(time.Second), w.Expected90.Round(time.Second)
			waits = append(waits, fmt.Sprintf("%s/%s", half, most))
		}
		return waits
	}
	check := func(m *managed, want string) {
		t.Helper()
		if got := strings.Join(waiters(m, strings.Count(want, " ")+1), " "); got != want {
			t.Errorf("%s: waits are %s, want %s", m.kind, got, want)
		}
	}
	m := &managed{t: t, kind: gatehouse.Lock}
	m.want(0, acquireBy("a", "", time.Minute), gatehouse.Granted, "")
	check(m, "1m0s/1m0s 2m0s/2m0s 3m0s/3m0s") // nothing has ended yet: the terms tell
	m.want(8*time.Second, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}, gatehouse.Granted, "")
	m.want(8*time.Second, acquireBy("b", "", time.Minute), gatehouse.Granted, "")
	check(m, "8s/8s 16s/16s")
	m.want(24*time.Second, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "b"}, gatehouse.Granted, "")
	m.want(24*time.Second, acquireBy("c", "", time.Minute), gatehouse.Granted, "")
	m.want(34*time.Second, renewBy("c"), gatehouse.Granted, "")
	check(m, "6s/6s 14s/14s") // it has lasted longer than the first did, so it is like the second
	m.want(35*time.Second, gatehouse.Command{Op: gatehouse.OpClose}, gatehouse.Granted, "")
	check(m, "0s/0s") // Forever
	// Slots come free in the order of their ends, and one that wants two waits for both.
	several := &managed{t: t, kind: gatehouse.Semaphore}
	for i, term := range []time.Duration{50 * time.Second, 20 * time.Second, 0, 30 * time.Second} {
		slot := acquireBy(fmt.Sprint(i), "", term)
		slot.Size = 4
		several.want(0, slot, gatehouse.Granted, "")
	}
	check(several, "20s/20s 30s/30s 50s/50s 1m20s/1m20s")
	d := &managed{t: t, kind: gatehouse.Watchdog}
	kick := gatehouse.Command{Op: gatehouse.OpKick, Expires: 40 * time.Second}
	d.want(0, kick, gatehouse.Granted, "")
	d.now = d.now.Add(10 * time.Second)
	check(d, "30s/30s 30s/30s")
	g := &managed{t: t, kind: gatehouse.FixedWindow}
	take := acquireBy("", "", 0)
	take.Interval = 10 * time.Second
	g.want(0, take, gatehouse.Granted, "")
	check(g, "0s/0s 10s/10s 10s/10s 20s/20s")
}

// TestLengthsArePacked: a length in a byte is wrong by a sixteenth at most, and lengths keep their order.
func TestLengthsArePacked(t *testing.T) {
	last := uint8(0)
	for d := time.Duration(0); d < 20*24*time.Hour; d += d/50 + time.Millisecond {
		b := packLength(d)
		if got := unpackLength(b); (got-d).Abs() > d/16+time.Millisecond || b < last {
			t.Fatalf("%s is packed as %d, which is %s", d, b, got)
		}
		last = b
	}
	if packLength(gatehouse.MaxDuration) != 255 {
		t.Error("the longest time does not have the greatest byte")
	}
}

// TestGrowthOfClosing: what a close and an evict keep is counted beforehand, so that none passes the limit.
func TestGrowthOfClosing(t *testing.T) {
	long := strings.Repeat("x", gatehouse.MaxText)
	for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.TokenBucket} {
		m := &managed{t: t, kind: kind}
		step := func(cmd gatehouse.Command) {
			t.Helper()
			cmd.Message, cmd.Owner = long, &gatehouse.Owner{Name: long}
			state := m.state
			if state == nil {
				state = New(kind)
			}
			most := state.Weight() + memoryGrowth(time.Unix(0, 0), state, &Turn{Command: &cmd})
			m.want(time.Second, cmd, gatehouse.Granted, "")
			if got := m.state.Weight(); got > most {
				t.Errorf("%s %s: it weighs %d, want at most %d", kind, cmd.Op, got, most)
			}
		}
		step(gatehouse.Command{Op: gatehouse.OpClose})
		m.want(time.Second, gatehouse.Command{Op: gatehouse.OpOpen}, gatehouse.Granted, "")
		for i := range maxEvictions + 2 {
			if kind.Limiter() {
				break
			}
			acquire := acquireBy(fmt.Sprint(i), "", time.Minute)
			acquire.Size = 2 * maxEvictions
			step(evictOf(m.want(time.Second, acquire, gatehouse.Granted, "").Fence, false))
		}
		step(gatehouse.Command{Op: gatehouse.OpClose})
	}
}
