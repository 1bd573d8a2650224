//go:build linux || darwin

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
	"github.com/gatehousehq/gatehouse/internal/supervisor"
	"go.uber.org/goleak"
)

// The environment variables of a worker process: the address of the server, and whether its work may be long.
const (
	workerAddress = "HOLDS_SERVER"
	workerLong    = "HOLDS_LONG"
)

// term is how long a hold lasts without a renewal.
const term = 500 * time.Millisecond

// maxGap is how long a look at the hold, or the pause behind it, may take in a process that runs. It is below
// what is left of the term when a hold counts as lost.
const maxGap = 20 * time.Millisecond

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

// lookAt returns when the hold was surely held, which is now; 0 if it is not held any more. stopped says
// that the process did not run for a while: a look that took long says nothing, and what is done behind it
// is for the fence to refuse.
func lookAt(h *hold.Hold) (at time.Duration, stopped bool) {
	for {
		before := supervisor.Now()
		if h.Err() != nil {
			return 0, stopped
		}
		at = supervisor.Now()
		if at < before+maxGap {
			return at, stopped
		}
		stopped = true
	}
}

// workWith acts again and again while the hold is held, and says when it did so first and last.
func workWith(h *hold.Hold) {
	defer func() { _ = h.Release() }() // for a hold that was lost before it was looked at
	began, stopped := lookAt(h)
	if began == 0 {
		return
	}
	fmt.Printf("begin %d %d\n", h.Fence(), began)
	ended := make(chan time.Duration, 1)
	go func() {
		<-h.Context().Done()
		ended <- supervisor.Now()
	}()
	// Where there are faults half of the work is long, so that they meet it.
	length := time.Duration(rand.Int64N(int64(20 * time.Millisecond))) //nolint:gosec // no secret
	if os.Getenv(workerLong) != "" && rand.IntN(2) == 0 {              //nolint:gosec // no secret
		length = time.Duration(rand.Int64N(int64(3 * term))) //nolint:gosec // no secret
	}
	last := began
	for supervisor.Now() < began+length {
		at, slow := lookAt(h)
		stopped = stopped || slow
		if at == 0 {
			break
		}
		last = at
		time.Sleep(time.Millisecond)
		stopped = stopped || supervisor.Now() > last+maxGap
	}
	lost := h.Err() != nil
	err := h.Release()
	fmt.Printf("end %d %d %d %t %t %q\n", h.Fence(), last, <-ended, lost, stopped, fmt.Sprint(err))
}
