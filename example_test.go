package gatehouse_test

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Limits as people write them.
func ExampleParseLimits() {
	limits, err := gatehouse.ParseLimits("5000/day,10/1s,200/1m")
	if err != nil {
		panic(err)
	}
	fmt.Println(limits, limits.At(1).Size, limits.At(1).Interval)
	_, err = gatehouse.ParseLimits("ten a second")
	fmt.Println(gatehouse.CodeOf(err), err)
	// Output:
	// 10/1s,200/1m,5000/day 200 1m0s
	// invalid limits has "ten a second", want limits such as 10/1s,200/1m,5000/day
}

// A command can be checked before it is given to a gate.
func ExampleCommand_Check() {
	key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "api"}
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 10, Interval: time.Second}, Cost: 11,
	}
	fmt.Println(cmd.Check(key))
	// Output: tokenbucket/api: cost 11 can never fit a size of 10
}
