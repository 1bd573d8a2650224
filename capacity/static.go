package capacity

// staticShare gives each client up to the capacity, however many there are.
func staticShare(n *bandDemand, capacity float64) float64 {
	return min(n.wants, capacity*float64(n.clients))
}
