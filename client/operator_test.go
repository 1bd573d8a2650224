package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// An operator lists holders and waiters part by part, and moves one to the front, by what the lists say.
func TestOperator(t *testing.T) {
	g, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	semaphore := key(gatehouse.Semaphore)
	acquire := func(ctx context.Context, holder string) (gatehouse.Decision, error) {
		cmd := acquireLock(holder)
		cmd.Size, cmd.Owner = 3, &gatehouse.Owner{Name: "of-" + holder}
		return c.Do(ctx, semaphore, cmd)
	}
	for i := range 3 {
		d, err := acquire(t.Context(), fmt.Sprint("held", i))
		if err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("acquire = %+v, %v", d, err)
		}
	}
	order := make(chan string, 3)
	for i := range 3 {
		go func() {
			holder := fmt.Sprint("waits", i)
			_, _ = acquire(t.Context(), holder)
			order <- holder
		}()
		await.True(t, "it waits", func() bool { return g.Waiting() == i+1 })
	}
	listed := func(op gatehouse.Op) (owners []string, last uint64) {
		t.Helper()
		cmd := gatehouse.Command{Op: op, Amount: 2}
		for {
			d, err := c.Do(t.Context(), semaphore, cmd)
			if err != nil || d.Report == nil {
				t.Fatalf("%s = %+v, %v", op, d, err)
			}
			for _, h := range d.Report.Holders {
				owners, last = append(owners, h.Owner.Name), h.Fence
			}
			for _, w := range d.Report.Waiters {
				id, _ := gatehouse.ParseWaiterID(w.ID)
				owners, last = append(owners, w.Owner.Name), id
			}
			if d.Report.Next == "" {
				return owners, last
			}
			cmd.Fence = last
		}
	}
	if owners, _ := listed(gatehouse.OpHolders); fmt.Sprint(owners) != "[of-held0 of-held1 of-held2]" {
		t.Errorf("holders are %v", owners)
	}
	owners, last := listed(gatehouse.OpWaiters)
	if fmt.Sprint(owners) != "[of-waits0 of-waits1 of-waits2]" {
		t.Errorf("waiters are %v", owners)
	}
	bump := gatehouse.Command{Op: gatehouse.OpBump, Fence: last}
	if d, err := c.Do(t.Context(), semaphore, bump); err != nil || d.Outcome != gatehouse.Granted {
		t.Fatalf("bump = %+v, %v", d, err)
	}
	release := gatehouse.Command{Op: gatehouse.OpRelease}
	for _, step := range [][2]string{{"held0", "waits2"}, {"held1", "waits0"}, {"held2", "waits1"}} {
		release.Holder = step[0]
		if d, err := c.Do(t.Context(), semaphore, release); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("release = %+v, %v", d, err)
		}
		if next := <-order; next != step[1] {
			t.Errorf("%s is granted, want %s", next, step[1])
		}
	}
}

// What a third party has left, until when, arrives with the report.
func TestRemainingArrives(t *testing.T) {
	_, address := serveGate(t)
	c := newClient(t, client.Config{Addresses: []string{address}})
	report := gatehouse.Command{
		Op: gatehouse.OpFeedback, Rule: gatehouse.Rule{Size: 100, Interval: time.Hour},
		Feedback: &gatehouse.Feedback{Status: 200, Remaining: 7, Reset: 20 * time.Minute},
	}
	d, err := c.Do(t.Context(), key(gatehouse.SlidingLog), report)
	if err != nil || d.Remaining != 7 || d.Reported == nil || d.Reported.Adopted != 7 ||
		d.Reported.AdoptedFor <= 19*time.Minute || d.Reported.AdoptedFor > 20*time.Minute {
		t.Errorf("a report of 7 that remain = %+v of %+v, %v", d.Reported, d, err)
	}
	peek := gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 8}
	if d, err = c.Do(t.Context(), key(gatehouse.SlidingLog), peek); err != nil ||
		d.Outcome != gatehouse.Refused || d.RetryAfter <= 19*time.Minute {
		t.Errorf("a peek at 8 = %+v, %v, want it refused until the reset", d, err)
	}
}
