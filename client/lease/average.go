package lease

// slots is how many parts of a window are told apart.
const slots = 10

// A arrivalAverage is a moving average of how many arrive per second. The later part of the window counts for
// more: of ten parts the last weighs ten times as much as the first. It is divided by the weights, so the
// average of a steady stream is its rate, however fast.
type arrivalAverage struct {
	counts [slots]int64 // oldest first
	filled int          // parts that have passed, at most slots
}

// endSlot ends a part of the window, in which so many arrived.
func (d *arrivalAverage) endSlot(arrived int64) {
	copy(d.counts[:], d.counts[1:])
	d.counts[slots-1] = arrived
	d.filled = min(d.filled+1, slots)
}

// perSlot is the average per part of the window, of those that have passed.
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
