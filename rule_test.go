package gatehouse_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// TestLimitList: a list has the limits that it was made of, as they were, and is equal to a list of the same
// limits and to no other.
func TestLimitList(t *testing.T) {
	limit := rapid.Custom(func(t *rapid.T) gatehouse.Limit {
		return gatehouse.Limit{
			Size:     rapid.Int64().Draw(t, "size"),
			Interval: time.Duration(rapid.Int64().Draw(t, "interval")),
			Calendar: gatehouse.Calendar(rapid.SampledFrom([]byte{0, 0, 4, 255}).Draw(t, "calendar")),
		}
	})
	// More than a command may have, as Check has to see them.
	limits := rapid.SliceOfN(limit, 0, gatehouse.MaxLimits+2)
	rapid.Check(t, func(t *rapid.T) {
		a, b := limits.Draw(t, "a"), limits.Draw(t, "b")
		list := gatehouse.NewLimitList(a...)
		read := make([]gatehouse.Limit, list.Len())
		for i := range read {
			read[i] = list.At(i)
		}
		if !slices.Equal(read, a) {
			t.Fatalf("a list of %v has %v", a, read)
		}
		if list != gatehouse.NewLimitList(slices.Clone(a)...) {
			t.Fatalf("two lists of %v are not equal", a)
		}
		if (list == gatehouse.NewLimitList(b...)) != slices.Equal(a, b) {
			t.Fatalf("lists of %v and %v are equal: %t", a, b, !slices.Equal(a, b))
		}
	})
	day := gatehouse.Limit{Size: 9, Calendar: gatehouse.Day}
	odd := day
	odd.Interval = time.Second // means nothing
	if a, b := gatehouse.NewLimitList(day), gatehouse.NewLimitList(odd); a != b || b.At(0) != day {
		t.Errorf("%s and %s are not equal", a, b)
	}
	none := gatehouse.NewLimitList()
	if none != (gatehouse.LimitList{}) || none.Len() != 0 || none.String() != "" {
		t.Errorf("a list of none is %q", none)
	}
}

// TestLimitListAllocates: a list is one piece of memory, and to read and compare it takes none.
func TestLimitListAllocates(t *testing.T) {
	limits := make([]gatehouse.Limit, gatehouse.MaxLimits)
	a, b := gatehouse.NewLimitList(limits...), gatehouse.NewLimitList(limits...)
	if n := testing.AllocsPerRun(100, func() { b = gatehouse.NewLimitList(limits...) }); n > 1 {
		t.Errorf("%v allocations to make a list, want one", n)
	}
	n := testing.AllocsPerRun(100, func() {
		for i := range a.Len() {
			if a != b || a.At(i) != limits[i] {
				t.Fatal("the lists differ")
			}
		}
	})
	if n > 0 {
		t.Errorf("%v allocations to read a list, want none", n)
	}
}

// TestRulesAreCompared: rules are equal when each field is, and a rule says whether it has a limit.
func TestRulesAreCompared(t *testing.T) {
	list := gatehouse.NewLimitList(gatehouse.Limit{Size: 1, Interval: time.Second})
	rules := []gatehouse.Rule{
		{}, {Interval: 1}, {Calendar: gatehouse.Day}, {Limits: list}, // with a limit, but for the first
		{Size: 1}, {Burst: 1}, {Guard: 1}, {Zone: "Asia/Tokyo"}, {Mode: gatehouse.ModeFine},
		{Size: gatehouse.InForce, Interval: 1, Limits: list},
	}
	for i, a := range rules {
		for j, b := range rules {
			if (a == b) != (i == j) {
				t.Errorf("%+v == %+v is %t", a, b, a == b)
			}
		}
		if want := i >= 1 && i <= 3; a.HasLimit() != want {
			t.Errorf("%+v has a limit: %t, want %t", a, !want, want)
		}
	}
}
