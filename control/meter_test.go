package control

import (
	"math/big"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/zone"
	"pgregory.net/rapid"
)

// bigShare is n·part/whole rounded down, by numbers that cannot overflow.
func bigShare(n, part, whole int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(part))
	return product.Div(product, big.NewInt(whole)).Int64()
}

func TestShareAndFade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(1, int64(gatehouse.MaxDuration)).Draw(t, "whole")
		part := rapid.Int64Range(0, whole).Draw(t, "part")
		n := rapid.Int64Range(0, noTime).Draw(t, "n")
		if got, want := proportionOf(n, part, whole), bigShare(n, part, whole); got != want {
			t.Fatalf("share(%d, %d, %d) = %d, want %d", n, part, whole, got, want)
		}
		room := rapid.Int64Range(0, gatehouse.MaxSize).Draw(t, "room")
		most := largestPart(n, room, whole)
		if most < 0 || most > whole || bigShare(n, most, whole) > room {
			t.Fatalf("fade(%d, %d, %d) = %d, which is too much", n, room, whole, most)
		}
		if most < whole && bigShare(n, most+1, whole) <= room {
			t.Fatalf("fade(%d, %d, %d) = %d, and one more would do", n, room, whole, most)
		}
	})
}

func TestWindowStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.Int64Range(1, int64(gatehouse.MaxDuration)).Draw(t, "interval")
		at := rapid.Int64Range(0, 2*int64(gatehouse.MaxDuration)).Draw(t, "at")
		want := time.Unix(0, at).UTC().Truncate(time.Duration(interval)).UnixNano()
		if at-at%interval < interval { // before 1970, where UnixNano may not reach
			return
		}
		if got := windowStart(at, interval); got != want {
			t.Fatalf("windowStart(%d, %d) = %d, want %d", at, interval, got, want)
		}
	})
}

// TestCalendar: windows of the calendar follow one another without a gap, and each begins where the
// date of the zone changes.
func TestCalendar(t *testing.T) {
	zones := []string{
		"", "Europe/Berlin", "America/Sao_Paulo", "Africa/Cairo", "Asia/Amman", "America/St_Johns",
		"Pacific/Apia", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "Antarctica/Troll",
		"Pacific/Kiritimati", "Asia/Gaza", "America/Scoresbysund", "Africa/Casablanca",
	}
	rapid.Check(t, func(t *rapid.T) {
		location, err := zone.Load(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		units := []gatehouse.Calendar{gatehouse.Day, gatehouse.Week, gatehouse.Month}
		c := zonedCalendar{rapid.SampledFrom(units).Draw(t, "unit"), location}
		// Hours from some days before a clock change: most of them fall on others.
		at := time.Unix(rapid.Int64Range(0, 2_500_000_000).Draw(t, "at"), 0).In(location)
		if _, change := at.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near") {
			at = change.Add(time.Duration(rapid.Int64Range(-100, 100).Draw(t, "half hours")) * time.Hour / 2)
		}
		start, end := c.windowAround(at.UnixNano())
		if start > at.UnixNano() || end <= at.UnixNano() || end-start < c.shortestWindow() {
			t.Fatalf("%s: from %d to %d", at, start, end)
		}
		first, _ := c.windowAround(start)
		last, next := c.windowAround(end - 1)
		following, _ := c.windowAround(end)
		if first != start || last != start || next != end || following != end {
			t.Fatalf("%s: %d to %d, but %d, %d to %d, %d", at, start, end, first, last, next, following)
		}
		checkDate(t, c, time.Unix(0, start).In(location))
	})
}

// checkDate looks at the first instant of a window: the one before is of another date, and weeks and
// months begin with their first day.
func checkDate(t *rapid.T, c zonedCalendar, start time.Time) {
	before := start.Add(-1)
	if before.YearDay() == start.YearDay() && before.Year() == start.Year() {
		t.Fatalf("%s is not the beginning of a day", start)
	}
	skipped := start.Location().String() == "Pacific/Apia" && start.Year() == 2011 // 30 December
	if c.unit == gatehouse.Week && start.Weekday() != time.Monday && !skipped {
		t.Fatalf("%s is no Monday", start)
	}
	if c.unit == gatehouse.Month && start.Day() != 1 && !skipped {
		t.Fatalf("%s is not the first of a month", start)
	}
}

// An oracle says how many of what is in the record count at an instant.
type oracle func(r record, at int64, cmd *gatehouse.Command) int64

// estimated is what RussellLuo/slidingwindow counts, with exact weights.
func estimated(r record, at int64, cmd *gatehouse.Command) int64 {
	w := int64(cmd.Interval)
	start := time.Unix(0, at).UTC().Truncate(cmd.Interval).UnixNano()
	return bigShare(r.within(start-w-1, start-1), w-(at-start), w) + r.within(start-1, at)
}

// inParts is what a window in sixty parts counts, part by part.
func inParts(r record, at int64, cmd *gatehouse.Command) int64 {
	w := int64(cmd.Interval)
	step := (w + partsPerWindow - 1) / partsPerWindow
	sum := int64(0)
	for part := at/step - partsPerWindow - 1; part <= at/step; part++ {
		n, covered := int64(0), min(step, (part+1)*step-1-(at-w))
		for _, s := range r {
			if s.at/step == part {
				n += s.n
			}
		}
		if covered <= 0 {
			continue
		}
		if cmd.Mode == gatehouse.ModeStrict {
			covered = step
		}
		sum += bigShare(n, covered, step)
	}
	return sum
}

func logged(r record, at int64, cmd *gatehouse.Command) int64 {
	return r.within(at-int64(cmd.Interval+cmd.Guard), at)
}

func inWindow(r record, at int64, cmd *gatehouse.Command) int64 { return r.aligned(at, cmd.Interval) }

// arrival is by how much the theoretical arrival time of a GCRA is ahead, in the steps that it is.
func arrival(r record, at int64, cmd *gatehouse.Command) int64 {
	step, tat := int64(cmd.Interval)/cmd.Size, int64(0)
	for _, s := range r {
		tat = max(tat, s.at) + step*s.n
	}
	return (max(0, tat-at) + step - 1) / step
}

// TestAgainstOracle: the clever ones decide as the obvious do, and what remains is what those leave.
func TestAgainstOracle(t *testing.T) {
	oracles := map[variety]oracle{
		{kind: gatehouse.FixedWindow}: inWindow, {kind: gatehouse.GCRA}: arrival,
		{kind: gatehouse.SlidingWindow}:                 estimated,
		{gatehouse.SlidingWindow, gatehouse.ModeFine}:   inParts,
		{gatehouse.SlidingWindow, gatehouse.ModeStrict}: inParts,
		{kind: gatehouse.SlidingLog}:                    logged, {kind: gatehouse.Pace}: logged,
	}
	for v, counts := range oracles {
		t.Run(v.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkOracle(t, v, counts) })
		})
	}
}

func checkOracle(t *rapid.T, v variety, counts oracle) {
	cmd, now := v.draw(t), origin(t)
	if rapid.Bool().Draw(t, "large") && v.kind != gatehouse.GCRA && !v.exact() {
		cmd.Size = rapid.Int64Range(1, gatehouse.MaxSize).Draw(t, "large size")
		cmd.Interval = time.Duration(rapid.Int64Range(1, int64(gatehouse.MaxDuration)/50).Draw(t, "long"))
	}
	s, log := subject{kind: v.kind}, record{}
	most := capacity(v, &cmd)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = now.Add(later(t, cmd.Interval))
		at := now.UnixNano()
		cmd.Cost = rapid.Int64Range(1, most).Draw(t, "cost")
		count := counts(log, at, &cmd)
		d := s.step(now, cmd)
		if granted := d.Outcome == gatehouse.Granted; granted != (count+cmd.Cost <= most) {
			t.Fatalf("acquire %d with %d of %d taken = %s; %v", cmd.Cost, count, most, d.Outcome, log)
		}
		if d.Outcome == gatehouse.Granted {
			log = append(log, startRun{at, cmd.Cost})
			count = counts(log, at, &cmd)
		}
		if want := max(0, most-count); d.Remaining != want {
			t.Fatalf("remaining %d, want %d; %v", d.Remaining, want, log)
		}
	}
}
