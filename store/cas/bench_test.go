package cas_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// An instantBackend is a store of one record that answers at once: what is left is what this package costs.
type instantBackend struct {
	version uint64
	record  []byte
}

func (b *instantBackend) Swap(
	_ context.Context, _ gatehouse.Key, change *cas.RecordChange,
) (cas.Reply, error) {
	reply := cas.Reply{Now: time.Now(), Version: b.version, Swapped: change.If == b.version}
	switch {
	case !reply.Swapped:
		reply.Record = b.record
	case !change.Read:
		b.version, b.record = change.Nonce, change.Next
		reply.Version = b.version
	}
	return reply, nil
}

func (b *instantBackend) SwapTogether(
	context.Context, []gatehouse.Key, []cas.RecordChange,
) ([]cas.Reply, error) {
	panic("not asked for")
}

func (b *instantBackend) Listen(uint32, func(gatehouse.Key)) (stop func()) { return func() {} }

func (b *instantBackend) Range(
	context.Context, gatehouse.Kind, string, func(string, []byte) bool,
) error {
	return nil
}

func (b *instantBackend) Traits() cas.Traits { return cas.Traits{} }

// What a transaction costs, its round trip aside: one that changes the record, one that finds it unchanged,
// one that is refused, and a lock with its release.
func BenchmarkTransaction(b *testing.B) {
	bucket := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 1_000_000, Interval: time.Millisecond, Burst: 1_000_000}, Cost: 1,
	}
	stopped := bucket
	stopped.Size = 0
	peek := bucket
	peek.Op = gatehouse.OpPeek
	hold := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "a", Rule: gatehouse.Rule{Size: 1}, Cost: 1, Expires: time.Minute,
	}
	release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}
	for _, c := range []struct {
		name     string
		kind     gatehouse.Kind
		commands []gatehouse.Command
	}{
		{"granted", gatehouse.GCRA, []gatehouse.Command{bucket}},
		{"unchanged", gatehouse.GCRA, []gatehouse.Command{peek}},
		{"refused", gatehouse.GCRA, []gatehouse.Command{stopped}},
		{"16 granted together", gatehouse.GCRA, repeat(bucket, 16)},
		{"lock and release", gatehouse.Lock, []gatehouse.Command{hold, release}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := cas.New(&instantBackend{}, cas.Config{Server: 1})
			defer s.Close()
			turns := make([]control.Turn, len(c.commands))
			for i := range turns {
				turns[i].Command = &c.commands[i]
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := (&control.Change{Key: named(c.kind, "a"), Turns: turns}).ApplyTo(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func repeat(cmd gatehouse.Command, n int) []gatehouse.Command {
	all := make([]gatehouse.Command, n)
	for i := range all {
		all[i] = cmd
	}
	return all
}
