package lease

// slots is into how many parts a window is divided.
const slots = 10

// An arrivalAverage is a moving average of the arrivals per slot. The later part of the window counts for
// more: of ten slots the last weighs ten times as much as the first. It is divided by the sum of the
// weights, so the average of a steady stream is its rate, however short it has lasted.
type arrivalAverage struct {
	counts [slots]int64 // oldest first
	filled int          // slots that have passed, at most all
}

// endSlot ends a slot in which this number of calls arrived.
func (d *arrivalAverage) endSlot(arrived int64) {
	copy(d.counts[:], d.counts[1:])
	d.counts[slots-1] = arrived
	d.filled = min(d.filled+1, slots)
}

// perSlot returns the average per slot, over the slots that have passed.
func (d *arrivalAverage) perSlot() float64 {
	var sum, weights float64
	for i := slots - d.filled; i < slots; i++ {
		weight := float64(i + 1)
		sum += weight * float64(d.counts[i])
		weights += weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}
