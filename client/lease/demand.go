package lease

// slots is how many parts of a window are told apart.
const slots = 10

// A demand is a moving average of how many arrive per second. The later part of the window counts for
// more: of ten parts the last weighs ten times as much as the first. It is divided by the weights, so the
// average of a steady stream is its rate, however fast.
type demand struct {
	counts [slots]int64 // oldest first
	seen   int          // parts that have passed, at most slots
}

// turn ends a part of the window, in which so many arrived.
func (d *demand) turn(arrived int64) {
	copy(d.counts[:], d.counts[1:])
	d.counts[slots-1] = arrived
	d.seen = min(d.seen+1, slots)
}

// rate is the average per part of the window, of those that have passed.
func (d *demand) rate() float64 {
	var sum, weights float64
	for i := slots - d.seen; i < slots; i++ {
		weight := float64(i + 1)
		sum += weight * float64(d.counts[i])
		weights += weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}
