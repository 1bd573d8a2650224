package gate

// Lines returns how many lines a gate has.
func Lines(g *Gate) int { return int(g.lines.Load()) }

// KeepPeriod is from one time in which lines may be kept to the next.
const KeepPeriod = keepPeriod
