package capacity

import "math"

// waterLevel is what each client may have at most, so that all together have the capacity: the claims are
// vessels as wide as they have clients and as high as each of those wants, and the capacity is poured
// over them. +Inf when there is enough for all.
//
// With 100 for clients that want 5, 22, 24, 27 and 100 it is 24.5: 5 + 22 + 24 + 24.5 + 24.5.
func waterLevel(c *claims, all half, capacity float64) float64 {
	if all.wants <= capacity {
		return math.Inf(1)
	}
	// The vessels that are full are the first in order. What they hold is taken off, and the rest of the
	// capacity stands equally high in the others.
	full, open := 0.0, all.clients
	low := int32(0) // the last chunk that begins below the level
	lowFull, lowOpen := full, open
	for k := all.root; k != 0; {
		n := c.chunks.at(k)
		before, from := full+n.leftWants, open-n.leftClients
		if before+n.first.each*float64(from) >= capacity {
			k = n.left
			continue
		}
		low, lowFull, lowOpen = k, before, from
		full, open = before+n.wants, from-n.clients
		k = n.right
	}
	full, open = lowFull, lowOpen
	for _, e := range c.chunks.at(low).entries {
		if full+e.each()*float64(open) >= capacity {
			break
		}
		full += e.wants
		open -= int64(e.clients)
	}
	if open <= 0 {
		return math.Inf(1) // only rounding says that there is not enough
	}
	return max(0, (capacity-full)/float64(open))
}

// fairShare is what a claim gets at a water level.
func fairShare(n *claim, level float64) float64 {
	if n.each() <= level {
		return n.wants
	}
	return min(n.wants, level*float64(n.clients))
}
