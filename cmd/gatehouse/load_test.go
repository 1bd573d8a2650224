package main

import (
	"io"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestLoadTellsFailures has a load end with what has failed when no request was decided.
func TestLoadTellsFailures(t *testing.T) {
	r := &loadRun{failures: make(map[string]int64)}
	o := &loadOptions{}
	if err := o.print(io.Discard, r, time.Second); err == nil || err.Error() != "no answer came in time" {
		t.Errorf("without any answer the error is %v, want no answer came in time", err)
	}
	d := new(gatehouse.Decision)
	for _, code := range []gatehouse.Code{
		gatehouse.CodeUnavailable, gatehouse.CodeForbidden, gatehouse.CodeForbidden,
	} {
		r.note(time.Millisecond, d, gatehouse.Errorf(code, "no"))
	}
	const want = "no request was decided: 2 failures: forbidden, 1 failures: unavailable"
	if err := o.print(io.Discard, r, time.Second); err == nil || err.Error() != want {
		t.Errorf("after failures alone the error is %v, want %s", err, want)
	}
}
