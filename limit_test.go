package gatehouse_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

func TestParseLimits(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"10/1s", "10/1s"},
		{"10/1s,200/1m,5000/day", "10/1s,200/1m,5000/day"},
		{"5000/day, 200/60s ,10/1000ms", "10/1s,200/1m,5000/day"},
		{"1/month,1/week,1/day,1/1ns", "1/1ns,1/day,1/week,1/month"},
		{"0/1.5s", "0/1.5s"},
		{"1/90m", "1/1h30m"},
		{"1/3600s", "1/1h"},
		{"10/500us,10/1500µs", "10/500us,10/1.5ms"},
		{"999999999999999/876000h", "999999999999999/876000h"},
		{"1/24h,1/day", "1/day,1/24h"}, // a day may have 23 hours
		{"1/1s,1/2s,1/3s,1/4s,1/5s,1/6s,1/7s,1/8s", "1/1s,1/2s,1/3s,1/4s,1/5s,1/6s,1/7s,1/8s"},
	} {
		limits, err := gatehouse.ParseLimits(c.text)
		if err != nil || limits.String() != c.want {
			t.Errorf("ParseLimits(%q) = %s, %v, want %s", c.text, limits, err, c.want)
		}
	}
}

func TestParseLimitsRefuses(t *testing.T) {
	for _, text := range []string{
		"", ",", "10", "10/", "/1s", "10/1", "10/1x", "10/year", "10/Day", "-1/1s", "+1/1s", "1.5/1s",
		"1e3/1s",
		"10/0s", "10/-1s", "10/876001h", "1000000000000000/1s", "99999999999999999999/1s", "10/1s,",
		"10/1s;5/1m",
		"10/1s,20/1s", "10/1s,20/1000ms", "10/day,20/23h", "10/day,10/day",
		"1/1s,1/2s,1/3s,1/4s,1/5s,1/6s,1/7s,1/8s,1/9s",
		strings.Repeat("\x00", 100_000), strings.Repeat(",", 100_000),
	} {
		limits, err := gatehouse.ParseLimits(text)
		if err == nil || gatehouse.CodeOf(err) != gatehouse.CodeInvalid || len(err.Error()) > 500 {
			t.Errorf("ParseLimits(%q) = %s, %v, want an error of code invalid", text, limits, err)
		}
	}
}

// TestLimitText: what is written is read as it was.
func TestLimitText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := []time.Duration{1, time.Microsecond, time.Second, time.Hour}
		unit := rapid.SampledFrom(lengths).Draw(t, "length")
		most := int64(gatehouse.MaxDuration / unit)
		limit := gatehouse.Limit{
			Size:     rapid.Int64Range(0, gatehouse.MaxSize).Draw(t, "size"),
			Interval: time.Duration(rapid.Int64Range(1, most).Draw(t, "interval") * int64(unit)),
		}
		if rapid.IntRange(0, 3).Draw(t, "calendar") == 0 {
			units := []gatehouse.Calendar{gatehouse.Day, gatehouse.Week, gatehouse.Month}
			limit.Interval, limit.Calendar = 0, rapid.SampledFrom(units).Draw(t, "unit")
		}
		read, err := gatehouse.ParseLimits(limit.String())
		if err != nil || read != gatehouse.NewLimitList(limit) {
			t.Fatalf("ParseLimits(%q) = %v, %v, want %v", limit, read, err, limit)
		}
		for _, c := range []byte(limit.String()) {
			if c >= 0x80 {
				t.Fatalf("%q is not ASCII", limit)
			}
		}
	})
}

func TestModes(t *testing.T) {
	for kind := range gatehouse.Kind(gatehouse.Kinds) {
		for i, name := range kind.Modes() {
			mode, ok := kind.ParseMode(name)
			if !ok || (mode == gatehouse.ModeDefault) != (i == 0) {
				t.Errorf("%s: ParseMode(%q) = %d, %t", kind, name, mode, ok)
			}
			if want := name; i > 0 && mode.String() != want {
				t.Errorf("%s: mode %d is %q, want %q", kind, mode, mode, want)
			}
		}
		for _, other := range []string{"", "none", "Fine", "fine", "paced", "poll"} {
			if mode, ok := kind.ParseMode(other); ok && !slices.Contains(kind.Modes(), other) {
				t.Errorf("%s: ParseMode(%q) = %d, want none", kind, other, mode)
			}
		}
	}
	if text := gatehouse.Mode(99).String(); text != "" {
		t.Errorf("Mode(99) is %q, want nothing", text)
	}
}

func TestCalendarNames(t *testing.T) {
	for _, c := range []gatehouse.Calendar{gatehouse.Day, gatehouse.Week, gatehouse.Month} {
		if got, ok := gatehouse.ParseCalendar(c.String()); got != c || !ok {
			t.Errorf("ParseCalendar(%q) = %d, %t", c, got, ok)
		}
	}
	for _, name := range []string{"", "year", "DAY", "days"} {
		if c, ok := gatehouse.ParseCalendar(name); ok || c != gatehouse.NoCalendar {
			t.Errorf("ParseCalendar(%q) = %d, %t, want none", name, c, ok)
		}
	}
	if text := gatehouse.Calendar(9).String(); text != "" {
		t.Errorf("Calendar(9) is %q, want nothing", text)
	}
}
