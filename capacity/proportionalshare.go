package capacity

// proportionalLevels returns what each client would get if all got the same, and which part of their excess
// wants those get that want more: what others leave of their equal share, divided by all that is wanted above
// it.
//
// With 120 for clients that want 1000, 50 and 10 the equal share is 40. The last leaves 30; 960 and 10 are
// wanted above; so the first gets 40 + 960 × 30/970 = 69.69, the second 40 + 10 × 30/970 = 40.31.
func proportionalLevels(c *demandTrees, all subtree, capacity float64) (equal, leftover float64) {
	if all.wants <= capacity {
		return 0, 1
	}
	equal = capacity / float64(all.clients)
	modest, few := 0.0, int64(0) // of those who want less than an equal share
	low := int32(0)              // the last node that begins below it
	for k := all.root; k != 0; {
		n := c.nodes.at(k)
		// All of this node and what follows wants at least the equal share.
		if n.first.perClient >= equal {
			k = n.left
			continue
		}
		// This node begins below the equal share, so the one that was the last so far lies below it as a
		// whole.
		if low != 0 {
			modest += c.nodes.at(low).wants
			few += c.nodes.at(low).clients
		}
		modest += n.leftWants
		few += n.leftClients
		low = k
		k = n.right
	}
	for _, e := range c.nodes.at(low).entries {
		if e.wantsPerClient() >= equal {
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

// proportionalShare returns what a demand gets.
func proportionalShare(n *bandDemand, equal, leftover float64) float64 {
	deserved := equal * float64(n.clients)
	if leftover >= 1 || n.wants <= deserved {
		return n.wants
	}
	return min(n.wants, deserved+(n.wants-deserved)*leftover)
}
