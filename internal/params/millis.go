package params

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// foreverMillis stands for [gatehouse.Forever] in every answer.
const foreverMillis = -1

// CeilMillis is a time to wait in milliseconds, rounded up so that no client comes back too early: 0 when
// it is over, -1 when only another request can end it.
func CeilMillis(d time.Duration) int64 {
	if d == gatehouse.Forever {
		return foreverMillis
	}
	return int64(max(0, d+time.Millisecond-1) / time.Millisecond)
}

// FloorMillis is how long a hold lasts in milliseconds, rounded down so that its holder does not rely on it
// for too long: -1 when it does not end by itself.
func FloorMillis(d time.Duration) int64 {
	if d == gatehouse.Forever {
		return foreverMillis
	}
	return d.Milliseconds()
}
