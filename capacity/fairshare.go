package capacity

import "math"

// waterLevel returns how much each client may have at most, so that all together have the capacity. Think of
// the demands as vessels, each as wide as it has clients and as high as what each of those wants, into which
// the capacity is poured. It is +Inf if there is enough for all.
//
// With 100 for clients that want 5, 22, 24, 27 and 100 it is 24.5: 5 + 22 + 24 + 24.5 + 24.5.
func waterLevel(c *demandTrees, all subtree, capacity float64) float64 {
	if all.wants <= capacity {
		return math.Inf(1)
	}
	// The vessels that are full are the first in order. What they hold is taken off, and the rest of the
	// capacity stands equally high in the others.
	full, open := 0.0, all.clients
	low := int32(0) // the last node that begins below the level
	lowFull, lowOpen := full, open
	for k := all.root; k != 0; {
		n := c.nodes.at(k)
		// If all before this node were full and the rest stood as high as its first entry, would the capacity
		// be used up? Then the level is below this node, else at or above it.
		before, from := full+n.leftWants, open-n.leftClients
		if before+n.first.perClient*float64(from) >= capacity {
			k = n.left
			continue
		}
		low, lowFull, lowOpen = k, before, from
		full, open = before+n.wants, from-n.clients
		k = n.right
	}
	// The level lies between two entries of this node: walk over them one by one.
	full, open = lowFull, lowOpen
	for _, e := range c.nodes.at(low).entries {
		if full+e.wantsPerClient()*float64(open) >= capacity {
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

// fairShare returns what a demand gets at a water level.
func fairShare(n *bandDemand, level float64) float64 {
	if n.wantsPerClient() <= level {
		return n.wants
	}
	return min(n.wants, level*float64(n.clients))
}
