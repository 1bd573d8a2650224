package control

import (
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// drawFeedback draws any valid report, with times of these.
func drawFeedback(t *rapid.T, times []time.Duration) *gatehouse.Feedback {
	length := rapid.SampledFrom(times)
	return &gatehouse.Feedback{
		Status:     rapid.SampledFrom([]int{100, 200, 404, 429, 429, 500, 503, 599}).Draw(t, "status"),
		RetryAfter: length.Draw(t, "retry after"),
		Remaining:  rapid.SampledFrom([]int64{0, 1, 2, gatehouse.MaxSize}).Draw(t, "remaining"),
		Reset:      length.Draw(t, "reset"),
		MaxPause:   length.Draw(t, "max pause"),
		Seed:       rapid.Uint64().Draw(t, "seed"),
	}
}

// anyFeedback is a report about some seconds.
func anyFeedback(random *rand.Rand) *gatehouse.Feedback {
	return &gatehouse.Feedback{
		Status:     []int{200, 429, 503}[random.IntN(3)],
		RetryAfter: time.Duration(random.IntN(3)) * time.Second,
		Remaining:  random.Int64N(9),
		Reset:      time.Duration(random.IntN(9)) * time.Second,
		Seed:       random.Uint64(),
	}
}
