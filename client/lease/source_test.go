package lease_test

import (
	"math"
	"sync/atomic"
)

// A knob is a capacity that a test turns.
type knob struct {
	amount  atomic.Uint64
	changed atomic.Pointer[chan struct{}]
	done    chan struct{}
	wanted  chan float64
}

func newKnob(amount float64) *knob {
	k := &knob{done: make(chan struct{}), wanted: make(chan float64, 1000)}
	changed := make(chan struct{})
	k.changed.Store(&changed)
	k.amount.Store(math.Float64bits(amount))
	return k
}

func (k *knob) Capacity() float64        { return math.Float64frombits(k.amount.Load()) }
func (k *knob) Changed() <-chan struct{} { return *k.changed.Load() }
func (k *knob) Done() <-chan struct{}    { return k.done }

func (k *knob) Want(wants float64) error {
	k.wanted <- wants
	return nil
}

// turn makes it another amount.
func (k *knob) turn(amount float64) {
	k.amount.Store(math.Float64bits(amount))
	next := make(chan struct{})
	close(*k.changed.Swap(&next))
}

// told takes what was wanted meanwhile.
func (k *knob) told() (all []float64) {
	for len(k.wanted) > 0 {
		all = append(all, <-k.wanted)
	}
	return all
}
