// Package weight adds up how much memory everything takes that a server keeps for its clients, and says how
// much more there may be. Code that keeps something adds its weight, and takes it off when it is gone.
package weight

import (
	"math"
	"sync/atomic"
)

// A Total is a sum of weights, in bytes, and its limit. The last tenth is kept for what must not fail, such
// as locks. It is safe for concurrent use.
type Total struct {
	limit       int64
	commonLimit int64 // of what may not have the last tenth
	used        atomic.Int64
	common      atomic.Int64 // of what is used, all that may not have the last tenth
}

// New returns a total with nothing in it. A limit of 0 is none.
func New(limit int64) *Total {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Total{limit: limit, commonLimit: limit - limit/10}
}

// Add adds a weight; a negative one is taken off.
func (t *Total) Add(bytes int) {
	if bytes != 0 {
		t.used.Add(int64(bytes))
		t.common.Add(int64(bytes))
	}
}

// AddKept is Add for what the last tenth is kept for.
func (t *Total) AddKept(bytes int) {
	if bytes != 0 {
		t.used.Add(int64(bytes))
	}
}

// Used is the sum.
func (t *Total) Used() int64 { return t.used.Load() }

// Limit is what the sum should not exceed.
func (t *Total) Limit() int64 { return t.limit }

// Left is how much may be added. It is negative when there is more than the limit, because it was there at
// the start.
func (t *Total) Left() int64 {
	return min(t.LeftKept(), t.commonLimit-t.common.Load())
}

// LeftKept is Left for what the last tenth is kept for.
func (t *Total) LeftKept() int64 { return t.limit - t.used.Load() }
