package budget

import (
	"context"
	"sync"
	"testing"
)

func TestTake(t *testing.T) {
	b := New(100_000)
	for _, step := range []struct {
		take, used int
		ok         bool
	}{
		{60_000, 60_000, true}, {27_501, 60_000, false}, {27_500, 87_500, true}, {Tiny + 1, 87_500, false},
		{Tiny, 87_500 + Tiny, true}, {0, 87_500 + Tiny, true},
	} {
		if ok := b.Take(step.take); ok != step.ok || b.Used() != int64(step.used) {
			t.Errorf("Take(%d) = %t, %d used, want %t, %d", step.take, ok, b.Used(), step.ok, step.used)
		}
	}
	left := 12_500 - Tiny
	if b.TakeLast(left+1) || !b.TakeLast(left) || b.Used() != 100_000 {
		t.Errorf("%d are used, want all 100000, and no more", b.Used())
	}
	if !b.Take(Tiny) || !b.Take(0) {
		t.Error("what is tiny is refused by a budget that is used up")
	}
	b.Release(60_000 + Tiny)
	if b.Used() != 40_000 || b.Refused() != 3 {
		t.Errorf("after a release %d are used and %d were refused, want 40000 and 3", b.Used(), b.Refused())
	}
}

// The last quarter is for what is small, and what is tiny is noted without a limit.
func TestShares(t *testing.T) {
	const most = 4 << 20
	const part = most / 8
	b := New(most)
	for _, step := range []struct {
		change, held int
		ok           bool
	}{
		{6 * part, most, true},
		{1, Small + 1, false},
		{part - 1, Small, true},
		{1, Tiny + 1, false},
		{Tiny, Tiny, true},
		{-Tiny, Small, false},
		{-1, Small + 1, false},
		{-1, Small, true},
		{-part, Small + 1, true},
	} {
		if ok := b.Move(step.change, step.held); ok != step.ok {
			t.Errorf("Move(%d, %d) = %t with %d used, want %t", step.change, step.held, ok, b.Used(), step.ok)
		}
	}
	for _, step := range []struct {
		take int
		ok   bool
	}{{Small + 1, false}, {Small, true}} {
		if ok := b.Take(step.take); ok != step.ok {
			t.Errorf("Take(%d) = %t with %d used, want %t", step.take, ok, b.Used(), step.ok)
		}
	}
}

func TestDefault(t *testing.T) {
	if got := New(0).Most(); got != DefaultBytes {
		t.Errorf("New(0) has %d bytes, want %d", got, DefaultBytes)
	}
}

// What is taken at once by many never exceeds the budget, and nothing of it is lost.
func TestTakeAtOnce(t *testing.T) {
	b := New(1000 * Small)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				if n := i % 300 * Small; b.Take(n) {
					b.Release(n)
				}
			}
		})
	}
	all.Wait()
	if b.Used() != 0 {
		t.Errorf("%d are used in the end, want 0", b.Used())
	}
}

func TestTurn(t *testing.T) {
	b := New(1)
	if !b.List.Begin(t.Context()) || !b.Page.Begin(t.Context()) {
		t.Fatal("the first turns were not to be had")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.List.Begin(ctx) {
		t.Error("two have the turn")
	}
	b.List.End()
	if !b.List.Begin(t.Context()) {
		t.Error("a turn that ended is not to be had")
	}
}
