package simulate

import (
	"math"
	"time"
)

// seriesBins is how many pieces a run is cut into for the picture: about one for each pixel.
const seriesBins = 900

// A series is the run in pieces.
type series struct {
	width time.Duration
	bins  []bin
}

// A bin is one piece: sums of amounts times seconds, and extremes.
type bin struct {
	seconds                       float64
	capacity, wants, leased, safe float64
	possible, could               float64 // to be handed out, and what of it was
	most                          float64 // leased at any instant
	over                          bool
}

func newSeries(duration time.Duration) *series {
	return &series{
		width: max(1, (duration+seriesBins-1)/seriesBins),
		bins:  make([]bin, seriesBins),
	}
}

// advance spreads an interval over the pieces it touches.
func (s *series) advance(from, to time.Duration, st *state) {
	for from < to {
		i := min(int(from/s.width), len(s.bins)-1)
		end := min(to, time.Duration(i+1)*s.width)
		if i == len(s.bins)-1 {
			end = to
		}
		s.bins[i].add((end - from).Seconds(), st)
		from = end
	}
}

func (b *bin) add(seconds float64, st *state) {
	b.seconds += seconds
	b.capacity += st.capacity * seconds
	b.wants += st.wants * seconds
	b.leased += st.leased * seconds
	b.safe += st.safe * seconds
	b.possible += st.possible() * seconds
	b.could += min(st.leased, st.possible()) * seconds
	b.most = math.Max(b.most, st.leased)
	b.over = b.over || st.isAbove()
}
