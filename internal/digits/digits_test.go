package digits

import (
	"math"
	"strconv"
	"testing"
)

// Whole numbers are written and read as the library does.
func TestIntegers(t *testing.T) {
	numbers := []int64{0, math.MinInt64, math.MaxInt64}
	for n := int64(1); n < math.MaxInt64/10; n *= 10 {
		numbers = append(numbers, n, n-1, n+1, 9*n, -n, 1234567890123456789%n)
	}
	for _, n := range numbers {
		got := string(AppendInteger([]byte("x"), n))
		if want := strconv.AppendInt([]byte("x"), n, 10); got != string(want) {
			t.Errorf("%d is written %s", n, got)
		}
		if back, ok := ParseInteger([]byte(got[1:])); !ok || back != n {
			t.Errorf("%s is read as %d, %t", got[1:], back, ok)
		}
	}
	for _, text := range []string{
		"", "+", "-", "+7", "-0", "007", "1_0", "1 ", "x", "999999999999999999", "0999999999999999999",
		"9223372036854775808", "-9223372036854775809", "123456789012345678901234567890",
	} {
		want, err := strconv.ParseInt(text, 10, 64)
		if n, ok := ParseInteger([]byte(text)); ok != (err == nil) || ok && n != want {
			t.Errorf("%q is read as %d, %t, want %d, %v", text, n, ok, want, err)
		}
	}
}
