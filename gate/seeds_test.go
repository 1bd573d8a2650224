package gate_test

import (
	"os"
	"strconv"
	"testing"
)

// modelSeeds is how many seeds the model of grants plays: few, or as many as MODEL_SEEDS says, which make sim
// sets.
func modelSeeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("MODEL_SEEDS")
	if text == "" {
		return uint64(sampled(25)) // a few
	}
	seeds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("MODEL_SEEDS is %q, want a number of seeds", text)
	}
	return seeds
}

// sampled is n, or a fifth of it where -short is given: with the race detector all takes ten times as long,
// and a race is found by few rounds as well.
func sampled(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}
