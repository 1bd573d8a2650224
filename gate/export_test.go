package gate

// Lines returns how many lines a gate has.
func Lines(g *Gate) int { return int(g.lines.Load()) }
