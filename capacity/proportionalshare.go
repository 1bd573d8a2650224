package capacity

// proportions are what each client would get if all got the same, and by what part those get what
// they want above that: what others leave of their equal share, divided by all that is wanted above it.
//
// With 120 for clients that want 1000, 50 and 10 the equal share is 40. The last leaves 30; 960 and 10 are
// wanted above; so the first gets 40 + 960 × 30/970 = 69.69, the second 40 + 10 × 30/970 = 40.31.
func proportions(c *claims, all half, capacity float64) (equal, leftover float64) {
	if all.wants <= capacity {
		return 0, 1
	}
	equal = capacity / float64(all.clients)
	modest, few := 0.0, int64(0) // of those who want less than an equal share
	low := int32(0)              // the last chunk that begins below it
	for k := all.root; k != 0; {
		n := c.chunks.at(k)
		if n.first.each >= equal {
			k = n.left
			continue
		}
		if low != 0 {
			modest += c.chunks.at(low).wants
			few += c.chunks.at(low).clients
		}
		modest += n.leftWants
		few += n.leftClients
		low = k
		k = n.right
	}
	for _, e := range c.chunks.at(low).entries {
		if e.each() >= equal {
			break
		}
		modest += e.wants
		few += int64(e.clients)
	}
	extra := max(0, equal*float64(few)-modest)
	need := all.wants - modest - equal*float64(all.clients-few)
	if need <= extra {
		return equal, 1
	}
	return equal, extra / need
}

// proportionalShare is what a claim gets.
func proportionalShare(n *claim, equal, leftover float64) float64 {
	deserved := equal * float64(n.clients)
	if leftover >= 1 || n.wants <= deserved {
		return n.wants
	}
	return min(n.wants, deserved+(n.wants-deserved)*leftover)
}
