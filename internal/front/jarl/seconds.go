package jarl

import (
	"strconv"
	"time"
)

// Up to where a delay is written with three decimals and with two, and the longest there is. Clients
// read seven bytes: so they get all of it up to 99,999.9 s, and above that lose the decimal alone. From
// 10,000,000 s on they would read a tenth of it.
const (
	thousandths = 1_000 * time.Second
	hundredths  = 10_000 * time.Second
	longest     = 9_999_999 * time.Second
)

// appendSeconds appends a delay in seconds: 0.0 for none, otherwise rounded up, so that no client calls
// too early.
func appendSeconds(text []byte, delay time.Duration) []byte {
	if delay <= 0 {
		return append(text, "0.0"...)
	}
	delay = min(delay, longest)
	// The rounded delay is compared, not the delay: 999.9995 s become 1000.000, which would be a byte too
	// long, and are written with two decimals.
	unit, decimals := time.Millisecond, 3
	if roundUp(delay, unit) >= thousandths {
		unit, decimals = 10*time.Millisecond, 2
	}
	if roundUp(delay, unit) >= hundredths {
		unit, decimals = 100*time.Millisecond, 1
	}
	delay = roundUp(delay, unit)
	text = strconv.AppendInt(text, int64(delay/time.Second), 10)
	text = append(text, '.')
	// By whole numbers: a float could print a digit less than what was rounded up.
	for rest := delay % time.Second; decimals > 0; decimals-- {
		rest *= 10
		text = append(text, '0'+byte(rest/time.Second)) // a digit
		rest %= time.Second
	}
	return text
}

// roundUp rounds a delay up to whole units.
func roundUp(delay, unit time.Duration) time.Duration {
	return (delay + unit - 1).Truncate(unit)
}
