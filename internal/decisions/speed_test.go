package decisions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// What observing costs a gate in memory: with and without, for what is granted and what is refused.
func BenchmarkObserved(b *testing.B) {
	for _, observed := range []bool{false, true} {
		for _, size := range []int64{1 << 40, 1} {
			b.Run(fmt.Sprintf("observed=%t/size=%d", observed, size), func(b *testing.B) {
				var config gate.Config
				if observed {
					config.Observer = newRecorder(decisions.DefaultKept)
				}
				benchmarkSubmit(b, gate.New(memory.New(memory.Config{}), config), size)
			})
		}
	}
}

// benchmarkSubmit asks for one name after the other, of a thousand.
func benchmarkSubmit(b *testing.B, g *gate.Gate, size int64) {
	b.Helper()
	const names = 1000
	requests := make([]*gate.Request, names)
	for i := range requests {
		requests[i] = &gate.Request{
			Key:      gatehouse.Key{Kind: gatehouse.GCRA, Name: fmt.Sprintf("name-%d", i)},
			Decision: new(gatehouse.Decision), Checked: true,
		}
		requests[i].Command.Op, requests[i].Command.Cost = gatehouse.OpAcquire, 1
		requests[i].Command.Size, requests[i].Command.Interval = size, time.Hour
	}
	b.ReportAllocs()
	for i := range b.N {
		g.Submit(requests[i%names : i%names+1]...)
	}
}

func newRecorder(kept int) *decisions.Recorder {
	return decisions.New(decisions.Config{Kept: kept, Now: time.Now})
}
