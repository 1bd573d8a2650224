package jarl_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/jarl"
)

// timelines are arrivals in seconds and the answers to them, "x3" for three of the same.
var timelines = []struct {
	fact     string
	requests int64
	mode     string
	arrivals string
	answers  string
}{
	// The last three starts that were promised leave no second with more than three.
	{"a burst", 3, "reserve", "0x6", "0.0x3 1.000x3"},
	{"a trickle that swells", 3, "reserve", "0 .1 .2 .3 .4 1.0 1.1 1.2",
		"0.0x3 0.700x2 0.200 0.900x2"},
	{"exactly a period after the first", 3, "reserve", "0 .5 .9 1.0 1.2 1.5 1.9 2.0",
		"0.0x4 0.300 0.400 0.100 0.500"},
	// JARL lets three of the second burst go at once, which makes five in one second.
	{"a burst while promises lie ahead", 3, "reserve", "0x6 1.0x4", "0.0x3 1.000x6 2.000"},
	{"below the limit", 3, "reserve", "0 .4 .8 1.2 1.6 2.0 2.4", "0.0x7"},
	{"above the limit", 3, "reserve", "0 .2 .4 .6 .8 1.0 1.2 1.4 1.6 1.8 2.0",
		"0.0x3 0.400x3 0.800x3 1.200x2"},
	{"one at a time", 1, "reserve", "0x3", "0.0 1.000 2.000"},

	// Those who wait go a third of a second after one another.
	{"paced", 3, "paced", "0x6", "0.0x3 1.000 1.334 1.667"},
	{"paced, and then nobody", 3, "paced", "0x6 5x3", "0.0x3 1.000 1.334 1.667 0.0x3"},

	// JARL itself answers 1.333 1.667 2.000, which for the first is a third of a millisecond early.
	{"classic", 3, "classic", "0x6", "0.0x3 1.334 1.667 2.000"},
	{"classic, one at a time", 1, "classic", "0x3", "0.0 2.000 3.000"},

	// Who is not told 0 has taken nothing, and asks again.
	{"poll", 3, "poll", "0x6 1.0x4", "0.0x3 1.000x3 0.0x3 1.000"},
	{"poll, too early", 3, "poll", "0 0.5x3 0.9x2 0.9996 1.0x2", "0.0x3 0.500 0.100x2 0.001 0.0 0.500"},
}

func TestTimelines(t *testing.T) {
	for _, line := range timelines {
		t.Run(line.fact, func(t *testing.T) {
			l := listen(t, line.requests, line.mode)
			arrivals, answers := times(line.arrivals), times(line.answers)
			if len(arrivals) != len(answers) {
				t.Fatalf("%d arrivals and %d answers, want as many", len(arrivals), len(answers))
			}
			for i, arrival := range arrivals {
				at, err := strconv.ParseFloat(arrival, 64)
				if err != nil {
					t.Fatal(err)
				}
				l.set(time.Duration(at*1e9 + 0.5))
				if got := l.ask(t); got != answers[i] {
					t.Errorf("answer %d, at %s s = %q, want %q", i+1, arrival, got, answers[i])
				}
			}
		})
	}
}

// times writes "1x3" out as 1 1 1.
func times(text string) (all []string) {
	for field := range strings.FieldsSeq(text) {
		value, count, many := strings.Cut(field, "x")
		n, err := strconv.Atoi(count)
		if !many || err != nil {
			n = 1
		}
		for range n {
			all = append(all, value)
		}
	}
	return all
}

// The guard lies between a start and the one that takes its place.
func TestGuard(t *testing.T) {
	limit := jarl.PaceLimit{Name: "api", Requests: 2, Period: time.Second, Guard: 5 * time.Millisecond}
	l := listenWith(t, limit)
	for i, want := range []string{"0.0", "0.0", "1.005", "1.005", "2.010"} {
		if got := l.ask(t); got != want {
			t.Errorf("answer %d with a guard of 5 ms = %q, want %q", i+1, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for want, limit := range map[string]jarl.PaceLimit{
		"requests is 0":      {Name: "api", Period: time.Second},
		"requests is -1":     {Name: "api", Period: time.Second, Requests: -1},
		"Size is":            {Name: "api", Period: time.Second, Requests: 1e18},
		"Interval is 0s":     {Name: "api", Requests: 1},
		"Interval is -1s":    {Name: "api", Requests: 1, Period: -time.Second},
		"Guard is -1ns":      {Name: "api", Requests: 1, Period: time.Second, Guard: -1},
		"name has 0 bytes":   {Requests: 1, Period: time.Second},
		"has a control char": {Name: "a\n", Requests: 1, Period: time.Second},
		"Mode is fine":       {Name: "api", Requests: 1, Period: time.Second, Mode: 1},
	} {
		if err := limit.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check of %+v = %v, want %q", limit, err, want)
		}
		if _, err := jarl.New(jarl.Config{Limit: limit}); err == nil {
			t.Errorf("New with %+v went well, want the error of Check", limit)
		}
	}
	var limit jarl.PaceLimit
	err := limit.SetMode("fast")
	if want := `mode is "fast", want reserve, paced, classic or poll`; fmt.Sprint(err) != want {
		t.Errorf("SetMode(fast) = %v, want %q", err, want)
	}
	for _, name := range []string{"reserve", "paced", "classic", "poll"} {
		if err := limit.SetMode(name); err != nil || limit.ModeName() != name {
			t.Errorf("SetMode(%s) = %v and makes it %q", name, err, limit.ModeName())
		}
	}
}
