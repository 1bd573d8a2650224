package control

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A lending is a limiter that chunks are taken from.
type lending struct {
	t     *testing.T
	kind  gatehouse.Kind
	now   time.Time
	state State
	limit gatehouse.Command
}

func newLending(t *testing.T, kind gatehouse.Kind) *lending {
	t.Helper()
	limit := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 100, Interval: time.Hour}}
	return &lending{t: t, kind: kind, now: epoch(), limit: limit}
}

// do applies one command, to what is stored each time.
func (l *lending) do(cmd gatehouse.Command) gatehouse.Decision {
	l.t.Helper()
	return l.doTurn(Turn{Command: &cmd})
}

// doTurn is do with what a gate and a store add.
func (l *lending) doTurn(turn Turn) gatehouse.Decision {
	l.t.Helper()
	queue := []Turn{turn}
	l.state = Serve(l.now, l.kind, l.state, queue)
	if l.state != nil {
		form := Encode(nil, l.state)
		var err error
		if l.state, err = Decode(l.kind, form); err != nil {
			l.t.Fatalf("after %s: %v", turn.Op, err)
		}
		if again := Encode(nil, l.state); !bytes.Equal(again, form) {
			l.t.Errorf("after %s the form is %x, and read and written again %x", turn.Op, form, again)
		}
	}
	return queue[0].Decision
}

// take takes a chunk, and wants the holder to have so many then.
func (l *lending) take(holder uint64, cost, left, want int64) {
	l.t.Helper()
	cmd := l.limit
	cmd.Cost = cost
	d := l.doTurn(Turn{Command: &cmd, Chunk: &Chunk{Holder: holder, Left: left}})
	if d.Outcome != gatehouse.Granted || d.Value != want {
		l.t.Errorf("a chunk of %d = %s of %d, want granted of %d", cost, d.Outcome, d.Value, want)
	}
}

func (l *lending) giveBack(holder uint64, n int64) {
	l.t.Helper()
	l.doTurn(Turn{
		Command: &gatehouse.Command{Op: gatehouse.OpUndo, Cost: n}, Chunk: &Chunk{Holder: holder},
	})
}

// wantLeft wants so many to be left for others.
func (l *lending) wantLeft(want int64) {
	l.t.Helper()
	peek := l.limit
	peek.Op = gatehouse.OpPeek
	if d := l.do(peek); d.Remaining != want {
		l.t.Errorf("%d are left, want %d", d.Remaining, want)
	}
}

// eachLender runs a test with each kind that lends chunks.
func eachLender(t *testing.T, test func(l *lending)) {
	t.Helper()
	for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.FixedWindow} {
		t.Run(kind.String(), func(t *testing.T) { test(newLending(t, kind)) })
	}
}

func TestChunksCountWhateverIsGivenBack(t *testing.T) {
	eachLender(t, func(l *lending) {
		one := l.limit
		one.Cost = 1
		l.do(one)
		l.take(1, 30, 0, 30)
		l.take(2, 20, 0, 20)
		l.do(gatehouse.Command{Op: gatehouse.OpRefund, Cost: 100})
		l.wantLeft(50)
		l.take(1, 10, 5, 15) // 25 were let through
		l.wantLeft(40)
		l.do(gatehouse.Command{Op: gatehouse.OpReset})
		l.wantLeft(65)
		l.giveBack(2, 30) // more than it had
		l.wantLeft(85)
		l.giveBack(2, 20) // again
		l.wantLeft(85)
		l.do(gatehouse.Command{Op: gatehouse.OpDelete})
		l.wantLeft(85)
		if d := l.do(gatehouse.Command{Op: gatehouse.OpStats}); d.Outcome != gatehouse.Missing {
			t.Errorf("stats of a deleted one = %s, want missing", d.Outcome)
		}
		l.giveBack(1, 5)
		l.wantLeft(90) // the other 10 passed
		l.take(1, 50, 15, 50)
		l.wantLeft(40)
		if expiry := l.state.Expiry(); expiry.Before(l.now) {
			t.Errorf("expiry = %s, want it after %s", expiry, l.now)
		}
		l.now = l.now.Add(2 * time.Hour)
		l.wantLeft(100)
		l.do(gatehouse.Command{Op: gatehouse.OpDelete})
		if l.state != nil {
			t.Errorf("a deleted one whose chunks have ended leaves %x", Encode(nil, l.state))
		}
	})
}

// A chunk that outlasts a window, because that became shorter, counts in each.
func TestChunksCountInEachWindow(t *testing.T) {
	eachLender(t, func(l *lending) {
		l.take(1, 30, 0, 30)
		l.limit.Interval = time.Minute
		one := l.limit
		one.Cost = 1
		for range 5 {
			l.now = l.now.Add(time.Minute)
			l.do(one)
			l.wantLeft(69)
		}
		reserve := l.limit
		reserve.Op, reserve.Cost, reserve.Holder = gatehouse.OpReserve, 70, "one"
		if d := l.do(reserve); d.Outcome != gatehouse.Granted || d.Delay == 0 {
			t.Errorf("reserve = %s after %s, want it granted for later", d.Outcome, d.Delay)
		}
		l.now = l.now.Add(time.Minute)
		l.wantLeft(0)
		l.now = l.now.Add(time.Hour)
		l.wantLeft(100)
	})
}

func TestManyChunksAreKeptTogether(t *testing.T) {
	eachLender(t, func(l *lending) {
		l.limit.Size = 10_000
		for i := range uint64(2 * maxChunks) {
			l.take(i+1, 2, 0, 2)
		}
		l.giveBack(1, 2)
		l.wantLeft(10_000 - 4*maxChunks)
		l.giveBack(2*maxChunks, 2)
		l.do(gatehouse.Command{Op: gatehouse.OpReset})
		l.wantLeft(10_000 - 4*maxChunks + 2)
	})
}

// A refusal leaves nothing behind where chunks are out, also for a server that has just read the record: it
// would be written each time, by each server in turn.
func TestRefusalBesideChunksAltersNothing(t *testing.T) {
	eachLender(t, func(l *lending) {
		l.take(7, 90, 0, 90)
		cmd := l.limit
		cmd.Cost = 50
		for range 2 {
			if Alters(l.state, &cmd) {
				t.Errorf("%s: a command that is refused beside a chunk alters the record", l.kind)
			}
			d := l.doTurn(Turn{Command: &cmd, Chunk: &Chunk{Holder: 8}})
			if d.Outcome != gatehouse.Refused {
				t.Errorf("%s: 50 more of 100 beside a chunk of 90 = %s, want refused", l.kind, d.Outcome)
			}
		}
		if cmd.Size = 120; !Alters(l.state, &cmd) {
			t.Errorf("%s: another limit does not alter the record", l.kind)
		}
	})
}

// TestChunkForm: the form with chunks is as it was.
func TestChunkForm(t *testing.T) {
	for kind, forms := range map[gatehouse.Kind][2]string{
		gatehouse.TokenBucket: {
			"020080c6a47e8d0300000000006480c0e285e3680080c6a47e8d03001e01071e00207fd5c4900300",
			"02000000000000000000000000000000000000000000000001071e00207fd5c4900300",
		},
		gatehouse.FixedWindow: {
			"020080c6a47e8d0300000000006480c0e285e3680020c5b7f28a03001e01071e00c07de8388e0300",
			"02000000000000000000000000000000000000000000000001071e00c07de8388e0300",
		},
	} {
		l := newLending(t, kind)
		l.take(7, 30, 0, 30)
		if got := hex.EncodeToString(Encode(nil, l.state)); got != forms[0] {
			t.Errorf("%s: the form is\n%s, want\n%s", kind, got, forms[0])
		}
		l.do(gatehouse.Command{Op: gatehouse.OpDelete})
		if got := hex.EncodeToString(Encode(nil, l.state)); got != forms[1] {
			t.Errorf("%s: the form of a deleted one is\n%s, want\n%s", kind, got, forms[1])
		}
	}
}
