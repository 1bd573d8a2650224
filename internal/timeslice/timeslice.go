// Package timeslice divides long work that nobody is in a hurry for, such as a list of all names, into
// slices of time with pauses between. Go's scheduler lets a goroutine compute for 10 ms before another has
// its processor, and looks for new network data only when a processor has nothing else to do. On a machine
// with two processors two such goroutines would keep every request waiting for tens of milliseconds.
package timeslice

import "time"

// length is how long a slice is. The pause after it is as long as the work took, so one piece of work never
// has more than half of a processor.
const length = 250 * time.Microsecond

// Work is one piece of long work, done by one goroutine. The zero value is work that begins with its first
// call of Yield.
type Work struct {
	begun time.Time // of the present slice; the zero time before the first one
}

// Yield is called often, every few microseconds of work. When the slice is over it sleeps, so that others
// have the processor.
func (w *Work) Yield() {
	now := time.Now()
	if w.begun.IsZero() {
		w.begun = now
		return
	}
	worked := now.Sub(w.begun)
	if worked < length {
		return
	}
	// A goroutine that had no processor for a while seems to have worked all that time. The pause is
	// bounded, as on a busy machine each pause would be longer than the one before otherwise.
	time.Sleep(min(worked, 4*length))
	w.begun = time.Now()
}
