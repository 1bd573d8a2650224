package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// What a command costs that is decided at once.
func BenchmarkDo(b *testing.B) {
	bucket := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1,
		Rule: gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Hour},
	}
	patient := bucket
	patient.MaxWait = gatehouse.Forever
	hold := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "holder", Rule: gatehouse.Rule{Size: 1}, Cost: 1,
		Expires: time.Minute,
	}
	for _, c := range []struct {
		name string
		kind gatehouse.Kind
		cmds []gatehouse.Command
	}{
		{"bucket", gatehouse.TokenBucket, []gatehouse.Command{bucket}},
		{"bucket, may wait", gatehouse.TokenBucket, []gatehouse.Command{patient}},
		{"semaphore and release", gatehouse.Semaphore, []gatehouse.Command{hold, release("holder")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g, key := newGate(), gatehouse.Key{Kind: c.kind, Name: "bench"}
			b.ReportAllocs()
			for b.Loop() {
				for i := range c.cmds {
					d, err := g.Do(context.Background(), key, c.cmds[i])
					if err != nil || d.Outcome != gatehouse.Granted {
						b.Fatal(d, err)
					}
				}
			}
		})
	}
}
