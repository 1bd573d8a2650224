//go:build unix

package holds

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/hold"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// What a process of this test that is a worker is told: where the server is, and whether its work may be
// long.
const (
	workerAddress = "HOLDS_SERVER"
	workerLong    = "HOLDS_LONG"
)

// term is how long a hold lasts without a renewal.
const term = 500 * time.Millisecond

// maxGap is how long a look at the hold, or the pause behind it, may take in a process that runs. It is below
// what is left of the term when a hold counts as lost.
const maxGap = 20 * time.Millisecond

// now is the machine's monotonic clock, the same in all processes.
func now() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}

// runWorker acquires the lock, works while it has it, and releases it, until its input ends. It says on its
// output when each hold begins, and how it ended.
func runWorker() {
	c, err := client.New(client.Config{
		Addresses: []string{os.Getenv(workerAddress)}, Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	handle := hold.Lock(c, "one")
	handle.Term = term
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for !over.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		h, err := handle.Acquire(ctx)
		cancel()
		if err != nil {
			time.Sleep(5 * time.Millisecond) // the server is away
			continue
		}
		workWith(h)
	}
	c.Close()
	if err := goleak.Find(); err != nil {
		fmt.Printf("left %q\n", err)
		return
	}
	fmt.Println("left nothing")
}

// workWith acts again and again while the hold is held, and says when it did so first and last.
func workWith(h *hold.Hold) {
	began := now()
	fmt.Printf("begin %d %d\n", h.Fence(), began)
	ended := make(chan time.Duration, 1)
	go func() {
		<-h.Context().Done()
		ended <- now()
	}()
	// Where there are faults half of the work is long, so that they meet it.
	length := time.Duration(rand.Int64N(int64(20 * time.Millisecond))) //nolint:gosec // no secret
	if os.Getenv(workerLong) != "" && rand.IntN(2) == 0 {              //nolint:gosec // no secret
		length = time.Duration(rand.Int64N(int64(3 * term))) //nolint:gosec // no secret
	}
	last, stopped := began, false
	for now() < began+length {
		before := now()
		if h.Err() != nil {
			break
		}
		// A process that was stopped behind the look acts on what was true before: that is for the fence.
		if at := now(); at < before+maxGap {
			last = at
		} else {
			stopped = true
		}
		time.Sleep(time.Millisecond)
		stopped = stopped || now() > last+maxGap
	}
	lost := h.Err() != nil
	err := h.Release()
	fmt.Printf("end %d %d %d %t %t %q\n", h.Fence(), last, <-ended, lost, stopped, fmt.Sprint(err))
}
