package slidingwindow

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestWeightedIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, math.MaxInt64).Draw(t, "size")
		left := rapid.Int64Range(0, size).Draw(t, "left")
		count := rapid.Int64Range(0, math.MaxInt64).Draw(t, "count")
		want := new(big.Int).Mul(big.NewInt(count), big.NewInt(left))
		want.Div(want, big.NewInt(size))
		if got := weightOf(count, left, size); got != want.Int64() {
			t.Fatalf("weighted(%d, %d, %d) = %d, want %d", count, left, size, got, want)
		}
	})
}

func TestCoverageIsTheSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, math.MaxInt64-1)).Draw(t, "size")
		count := rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "count")
		most := rapid.Int64Range(0, count).Draw(t, "most")
		got := coverage(count, most, size)
		if got <= size && weightOf(count, got, size) <= most {
			t.Fatalf("coverage(%d, %d, %d) = %d, at which it weighs no more", count, most, size, got)
		}
		if got > 0 && weightOf(count, min(got-1, size), size) > most {
			t.Fatalf("coverage(%d, %d, %d) = %d, below which it weighs more", count, most, size, got)
		}
	})
}

// Of 999,000 points, those at which a float64 weight is rounded to the wrong whole number.
func TestFloatWeightsAreWrong(t *testing.T) {
	const size = 1000
	wrong := 0
	for elapsed := int64(1); elapsed < size; elapsed++ {
		for count := int64(1); count <= 1000; count++ {
			weight := float64(size-elapsed) / float64(size)
			if weightOf(count, size-elapsed, size) != int64(weight*float64(count)) {
				wrong++
			}
		}
	}
	if wrong != 103 {
		t.Errorf("%d points differ, want 103", wrong)
	}
}

func TestPlusSaturates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		want := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		switch {
		case want.Cmp(big.NewInt(math.MaxInt64)) > 0:
			want.SetInt64(math.MaxInt64)
		case want.Cmp(big.NewInt(math.MinInt64)) < 0:
			want.SetInt64(math.MinInt64)
		}
		if got := addSaturating(a, b); got != want.Int64() {
			t.Fatalf("plus(%d, %d) = %d, want %d", a, b, got, want)
		}
	})
}
