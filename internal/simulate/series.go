package simulate

import (
	"math"
	"time"
)

// seriesBins is the number of bins of a run for the picture: about one for each pixel.
const seriesBins = 900

// A timeSeries is the run in bins of equal width.
type timeSeries struct {
	width time.Duration
	bins  []seriesBin
}

// A seriesBin holds sums of amounts times seconds, and extremes.
type seriesBin struct {
	seconds                       float64
	capacity, wants, leased, safe float64
	possible, handedOut           float64 // to be handed out, and what of it was
	most                          float64 // leased at any instant
	over                          bool
}

func newSeries(duration time.Duration) *timeSeries {
	return &timeSeries{
		width: max(1, (duration+seriesBins-1)/seriesBins),
		bins:  make([]seriesBin, seriesBins),
	}
}

// addInterval spreads an interval over the bins it touches.
func (s *timeSeries) addInterval(from, to time.Duration, st *runState) {
	for from < to {
		i := min(int(from/s.width), len(s.bins)-1)
		// The part of the interval that lies in this bin.
		end := min(to, time.Duration(i+1)*s.width)
		// The widths are rounded up, so the last bin takes all that is left.
		if i == len(s.bins)-1 {
			end = to
		}
		s.bins[i].add((end - from).Seconds(), st)
		from = end
	}
}

func (b *seriesBin) add(seconds float64, st *runState) {
	b.seconds += seconds
	b.capacity += st.capacity * seconds
	b.wants += st.wants * seconds
	b.leased += st.leased * seconds
	b.safe += st.safe * seconds
	b.possible += st.possible() * seconds
	b.handedOut += min(st.leased, st.possible()) * seconds
	b.most = math.Max(b.most, st.leased)
	b.over = b.over || st.isAbove()
}
