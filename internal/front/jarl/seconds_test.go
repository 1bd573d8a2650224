package jarl

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSeconds(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		want  string
	}{
		{-1, "0.0"},
		{0, "0.0"},
		{1, "0.001"},
		{time.Millisecond, "0.001"},
		{time.Millisecond + 1, "0.002"},
		{time.Second, "1.000"},
		{1333333333, "1.334"},
		{999*time.Second + 999*time.Millisecond, "999.999"},
		{1000*time.Second - 1, "1000.00"},
		{1000 * time.Second, "1000.00"},
		{1000*time.Second + 1, "1000.01"},
		{10_000*time.Second - 10*time.Millisecond, "9999.99"},
		{10_000*time.Second - 1, "10000.0"},
		{10_000 * time.Second, "10000.0"},
		{99_999*time.Second + 900*time.Millisecond, "99999.9"},
		{99_999*time.Second + 900*time.Millisecond + 1, "100000.0"},
		{365 * 24 * time.Hour, "9999999.0"},
		{longest, "9999999.0"},
		{1<<63 - 1, "9999999.0"},
	} {
		if got := string(appendSeconds(nil, c.delay)); got != c.want {
			t.Errorf("%s is written %q, want %q", c.delay, got, c.want)
		}
	}
}

// Nobody is sent too early, nor much too late, and seven bytes hold it all but for the last decimal of
// what is above a day.
func TestSecondsAreRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(1, int64(longest)).Draw(t, "delay"))
		text := string(appendSeconds(nil, delay))
		got, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%s is written %q, want a number", delay, text)
		}
		over := new(big.Rat).Sub(got, big.NewRat(int64(delay), int64(time.Second)))
		step := big.NewRat(1, 1000)
		switch {
		case delay > 10_000*time.Second-10*time.Millisecond:
			step = big.NewRat(1, 10)
		case delay > 1000*time.Second-time.Millisecond:
			step = big.NewRat(1, 100)
		}
		if over.Sign() < 0 || over.Cmp(step) >= 0 {
			t.Errorf("%s is written %q, want no less, and less than %s more", delay, text, step)
		}
		if most := 7; len(text) > most && delay <= 99_999*time.Second+900*time.Millisecond {
			t.Errorf("%s is written %q, want at most %d bytes", delay, text, most)
		}
	})
}
