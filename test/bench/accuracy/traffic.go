package main

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// A traffic is one row of the tables: the instants of all requests.
type traffic struct {
	name  string
	words string
	// make returns the instants of all requests of each key, in order, for so many windows. Instants
	// are nanoseconds from the origin.
	make func(random *rand.Rand, windows int) [][]int64
}

// traffics are all rows. A load of 1 is as many requests as the limit lets through.
func traffics() []traffic {
	all := []traffic{}
	for _, load := range []struct {
		name string
		load float64
	}{{"0.5", 0.5}, {"0.8", 0.8}, {"0.9", 0.9}, {"1.0", 1}, {"1.1", 1.1}, {"2", 2}, {"5", 5}} {
		all = append(all, traffic{
			"Poisson " + load.name, "each at random, independently of the others, at load " + load.name,
			func(random *rand.Rand, windows int) [][]int64 {
				// One key for each load: the tables show how errors grow with the load, and a mix would
				// blur that.
				return [][]int64{poisson(nil, random, stretch{to: spans(float64(windows)), load: load.load})}
			},
		})
	}
	return append(all,
		traffic{
			"on/off fast", "Poisson at load 5 for 0.2 W on average, then nothing for 0.8 W on average",
			onOff(0.2, 0.8, 5),
		},
		traffic{
			"on/off slow", "Poisson at load 2 for 3 W on average, then nothing for 3 W on average",
			onOff(3, 3, 2),
		},
		traffic{
			"on/off sparse", "Poisson at load 10 for 0.1 W on average, then nothing for 2 W on average",
			onOff(0.1, 2, 10),
		},
		traffic{
			astrideName, "every 4 W, 4 L evenly in the 10 ms before and the 10 ms after the " +
				"boundary of a window",
			cycles(4, astride),
		},
		traffic{
			lateName, "every 4 W, 2 L evenly in the last 10 ms of a window, then Poisson " +
				"at load 5 for all of the next window",
			cycles(4, lateBurst),
		},
		traffic{
			lawfulName, "L at one instant every 1.05 W: never more than allowed",
			cycles(1.05, together),
		},
		traffic{
			"A4 lawful, every 1.95 W", "L at one instant every 1.95 W: never more than allowed",
			cycles(1.95, together),
		},
		traffic{
			refillName, "every 4 W, one at half a W, and 4 L evenly in the 10 ms before and the 10 ms after an " +
				"instant W later",
			cycles(4, astrideRefill),
		},
		traffic{
			partName, "every 4 W, 2 L evenly in the last 0.1 ms of a 60th of W, then 4 L evenly in the last 60th " +
				"of the W that follows",
			cycles(4, lateInPart),
		},
		traffic{
			earlyName, "every 4 W, L at the beginning of a 60th of W, and L again W and a quarter of a 60th " +
				"later: never more than allowed",
			cycles(4, earlyInPart),
		},
		traffic{mixName, "each key Poisson at a load of its own: log-normal, median 0.05, sigma 1.5", mix},
	)
}

// The rows that the page speaks of.
const (
	mixName     = "mix of 20,000 keys"
	astrideName = "A1 astride a boundary"
	lateName    = "A2 late burst, then flood"
	lawfulName  = "A3 lawful, every 1.05 W"
	refillName  = "A5 astride a refill"
	partName    = "A6 late in a part, then flood"
	earlyName   = "A7 lawful, early in a part"
)

// stream returns the random numbers of one row: they do not depend on what other rows there are.
func stream(seed uint64, name string) *rand.Rand {
	// The name selects the stream. A number in order would shift all streams when a row is inserted.
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))                  // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // no secret is made of it
}

// spans is a number of windows as nanoseconds.
func spans(windows float64) int64 { return int64(math.Round(windows * float64(window))) }

// A stretch is a time in which requests come at one rate.
type stretch struct {
	from, to int64
	load     float64
}

// poisson adds requests at random.
func poisson(to []int64, random *rand.Rand, s stretch) []int64 {
	// Nanoseconds: intervals between the requests of a Poisson process are exponential.
	mean := float64(window) / (s.load * size) // from one to the next
	for at := float64(s.from); ; {
		at += random.ExpFloat64() * mean
		// The bound is exclusive: the next stretch may begin at this very instant.
		if int64(at) >= s.to {
			return to
		}
		to = append(to, int64(at))
	}
}

// onOff makes bursts and pauses of random lengths, whose means are given in windows.
func onOff(on, off, load float64) func(*rand.Rand, int) [][]int64 {
	return func(random *rand.Rand, windows int) [][]int64 {
		var all []int64
		for at, end := int64(0), spans(float64(windows)); at < end; {
			// The last burst is cut off at the end: no row may last longer than the page says.
			until := min(end, at+spans(on*random.ExpFloat64()))
			all = poisson(all, random, stretch{at, until, load})
			at = until + spans(off*random.ExpFloat64())
		}
		return [][]int64{all}
	}
}

// cycles repeats a pattern after a number of windows.
func cycles(
	every float64, pattern func(to []int64, random *rand.Rand, at int64) []int64,
) func(*rand.Rand, int) [][]int64 {
	return func(random *rand.Rand, windows int) [][]int64 {
		var all []int64
		// The start is computed from i, not added up: 1.05 W has no exact binary form, and the error would
		// grow.
		for i := 0; float64(i)*every < float64(windows); i++ {
			all = pattern(all, random, spans(float64(i)*every))
		}
		return [][]int64{all}
	}
}

// burst is how long a burst takes before or after a boundary.
const burst = 10 * int64(time.Millisecond)

// evenly adds n requests, the first of them at an instant.
func evenly(to []int64, from, n, during int64) []int64 {
	for i := range n {
		to = append(to, from+i*during/n)
	}
	return to
}

func astride(to []int64, _ *rand.Rand, at int64) []int64 {
	// One window later than at, because the burst begins before the boundary and time 0 has nothing before
	// it.
	boundary := at + spans(1)
	// Twice the limit on each side: even a limiter that refuses half of it fills both windows.
	return evenly(to, boundary-burst, 4*size, 2*burst)
}

func lateBurst(to []int64, random *rand.Rand, at int64) []int64 {
	boundary := at + spans(1)
	// The burst fills the old window; the flood then finds out how soon the limiter forgets it.
	to = evenly(to, boundary-burst, 2*size, burst)
	return poisson(to, random, stretch{boundary, boundary + spans(1), 5})
}

// astrideRefill is astride for windows that begin with the first use.
func astrideRefill(to []int64, _ *rand.Rand, at int64) []int64 {
	// The single request opens the window of a token bucket, away from the boundaries of the clock; its
	// refill is one W later.
	first := at + spans(0.5)
	return evenly(append(to, first), first+spans(1)-burst, 4*size, 2*burst)
}

// part is a sixtieth of a window, rounded up, as a fine window counts them.
const part = (int64(window) + 59) / 60

// nextPart is the beginning of a part, the first from an instant on.
func nextPart(at int64) int64 { return (at + part - 1) / part * part }

// lateInPart fills the window at the end of one part, and asks again while that part leaves the window: fine
// takes it to be spread over the part, and so counts ever less of what is all still there.
func lateInPart(to []int64, _ *rand.Rand, at int64) []int64 {
	const moment = int64(100 * time.Microsecond)
	// Twice what may pass, so that L pass even where some are refused without need.
	end := nextPart(at + spans(1))
	to = evenly(to, end-moment, 2*size, moment)
	// The flood stops a moment before the end of the part: then the burst begins to leave the window
	// lawfully.
	return evenly(to, end+spans(1)-part, 4*size, part-moment)
}

// earlyInPart asks again when the window is empty, of which fine and strict still count something.
func earlyInPart(to []int64, _ *rand.Rand, at int64) []int64 {
	// L at one instant. A quarter of a part after they have left the window, an exact log has room for L
	// again.
	begin := nextPart(at + spans(1))
	return evenly(evenly(to, begin, size, 0), begin+spans(1)+part/4, size, 0)
}

// together keeps off the boundaries themselves, which no real clock hits.
func together(to []int64, _ *rand.Rand, at int64) []int64 {
	return evenly(to, at+int64(time.Millisecond), size, 0)
}

// mix makes many keys for a hundredth of the windows. The loads are drawn first, so that a key
// has the same one however long the traffic lasts.
func mix(random *rand.Rand, windows int) [][]int64 {
	all := make([][]int64, 20_000)
	loads := make([]float64, len(all))
	for i := range loads {
		// Log-normal: most keys ask for little, and about one in 44 for more than its limit.
		loads[i] = 0.05 * math.Exp(1.5*random.NormFloat64())
	}
	for i, load := range loads {
		all[i] = poisson(nil, random, stretch{to: spans(float64(mixWindows(windows))), load: load})
	}
	return all
}

// mixWindows is how many windows the mix lasts.
func mixWindows(windows int) int { return (windows + 99) / 100 }
