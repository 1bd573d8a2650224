package main

// A reckoning is how well a limiter counts what is asked for, when it refuses nothing.
type reckoning struct {
	asked      int
	wrong      int     // how often its count and the true one lie on different sides of the limit
	difference float64 // between them, as a part of the true one, summed up
}

// most is a size that no traffic reaches.
const most = 1_000_000_000

// counters are the candidates that count the last window, with a size at which none of them refuses.
func counters() []candidate {
	var some []candidate
	for _, c := range candidates() {
		// Only these two estimate the last window. The others count since a boundary, keep no count, are
		// exact, or err to one side only.
		if c.name == "slidingwindow" || c.name == "slidingwindow fine" {
			c.cmd.Size = most
			some = append(some, c)
		}
	}
	return some
}

// count lets a limiter count the requests of one key.
func (r *reckoning) count(l *limiter, requests []int64) {
	all := history{}
	for _, at := range requests {
		// Nothing is refused, so the request itself belongs to both counts: add it before the comparison.
		all.add(at)
		truth := all.count(at)
		// The limiter does not tell what it counts; what remains of a size that it never reaches tells it.
		counted := int(most - l.ask(at).Remaining)
		r.asked++
		// Only the side of the limit matters here: a large error far from the limit misleads no one.
		if (counted > size) != (truth > size) {
			r.wrong++
		}
		// truth is at least 1, because the request itself is in it.
		difference := float64(counted-truth) / float64(truth)
		r.difference += max(difference, -difference)
	}
}

// add adds the reckoning of other requests.
func (r *reckoning) add(other reckoning) {
	r.asked += other.asked
	r.wrong += other.wrong
	r.difference += other.difference
}
