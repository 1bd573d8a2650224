package gate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A gate in the process, without a server.
func ExampleNew() {
	g := gate.New(memory.New(memory.Config{}), gate.Config{})
	defer g.Close()
	api := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "api"}
	for range 3 {
		d, err := g.Do(context.Background(), api, gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 2, Interval: time.Hour}, Cost: 1,
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Outcome, d.Remaining, "left, more in", d.ResetAfter.Round(time.Minute))
	}
	// Output:
	// granted 1 left, more in 1h0m0s
	// granted 0 left, more in 1h0m0s
	// refused 0 left, more in 1h0m0s
}
