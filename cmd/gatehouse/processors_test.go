package main

import (
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, step := range []struct {
		variable  string
		has, want int
	}{{"", 1, 4}, {"", 4, 4}, {"", 6, 6}, {"1", 1, 1}} {
		t.Setenv("GOMAXPROCS", step.variable)
		runtime.GOMAXPROCS(step.has)
		useProcessors()
		if got := runtime.GOMAXPROCS(0); got != step.want {
			t.Errorf("of %d processors, with GOMAXPROCS=%q, %d are used, want %d",
				step.has, step.variable, got, step.want)
		}
	}
}
