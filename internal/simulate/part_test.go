package simulate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRecipesChangeWants(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	steps := []struct {
		recipe string
		step   int
		now    float64
		want   float64
	}{
		{"1x100", 1, 100, 100},
		{"1x100+constant_increase(5)", 3, 110, 115},
		{"1x100+constant_increase(5%)", 3, 110, 115},
		{"1x100+sin(10)", 15, 100, 110},
		{"1x100+sin(10)", 45, 100, 90},
		{"1x100+sin(10%)", 15, 100, 110},
		{"1x100+inc_sin(10)", 15, 100, 102.5},
		{"1x1+sin(10)", 45, 1, 0},
	}
	for _, s := range steps {
		r, err := parseRecipe(s.recipe)
		if err != nil {
			t.Fatal(err)
		}
		got := r.next(wantsState{base: r.base, now: s.now}, s.step, sinSteps, random)
		if math.Abs(got-s.want) > 1e-9 {
			t.Errorf("%s, step %d from %v = %v, want %v", s.recipe, s.step, s.now, got, s.want)
		}
	}
	r, _ := parseRecipe("1x100+random_change(10%)")
	for range 1000 {
		if got := r.next(wantsState{100, 50}, 1, sinSteps, random); got < 45 || got > 55 {
			t.Fatalf("%+v from 50 = %v, want 45 to 55", r, got)
		}
	}
}

// TestExcessIsCountedAtEveryInstant wants one nanosecond above the capacity to be seen, and two changes at
// one instant not to be.
func TestExcessIsCountedAtEveryInstant(t *testing.T) {
	s, err := Read("calm.yaml", []byte(calm))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{scenario: s, measure: newMeasure(s)}
	w.nodes = []*serverNode{{shortage: &shortage{}}}
	a := &simClient{w: w, node: w.nodes[0], group: &s.groups[0]}
	b := &simClient{w: w, node: w.nodes[0], group: &s.groups[0]}
	has := func(at time.Duration, c *simClient, amount float64) {
		w.now = at
		w.measure.noteUsage(c, clientUsage{leased: amount, confirmed: amount, wants: 100})
	}
	has(time.Second, a, 60)
	has(2*time.Second, b, 60) // 120 of 100, for no time
	has(2*time.Second, a, 40)
	has(3*time.Second, b, 61) // 101, for a nanosecond
	has(3*time.Second+1, b, 60)
	has(4*time.Second, b, 70) // 110, for a second
	has(5*time.Second, b, 60)
	w.measure.advanceTo(6 * time.Second)
	over := w.measure.meters[1].over
	if over.count != 2 || over.time != time.Second+1 || over.most != 10 {
		t.Errorf("above the capacity %d times, %v, by %v, want 2 times, 1.000000001s, by 10",
			over.count, over.time, over.most)
	}
	if got := w.measure.meters[1].peak; got != 1.1 {
		t.Errorf("peak = %v, want 1.1", got)
	}
}

// TestAnswerOnItsWayIsNoExcess wants what an answer takes back to be counted apart while it travels.
func TestAnswerOnItsWayIsNoExcess(t *testing.T) {
	m := newMeter(0, time.Minute)
	m.addInterval(0, time.Second, &runState{capacity: 100, wants: 200, leased: 110, confirmed: 100})
	state := &runState{capacity: 100, wants: 200, leased: 110, confirmed: 105}
	m.addInterval(time.Second, 3*time.Second, state)
	if m.brief.time != time.Second || m.over.time != 2*time.Second {
		t.Errorf("brief %v, over %v, want 1s and 2s", m.brief.time, m.over.time)
	}
}

func TestReportIsJSON(t *testing.T) {
	var back RunReport
	r := Run(shipped(t, "one"), 1)
	if err := json.Unmarshal(r.JSON(), &back); err != nil {
		t.Fatal(err)
	}
	handedOut := back.Figures["handed_out"]
	if back.Seed != 1 || handedOut != r.Figures["handed_out"] || len(back.Expectations) == 0 {
		t.Errorf("the report read back is %+v, want that of the run", back)
	}
	if strings.Contains(string(r.JSON()), "null") {
		t.Errorf("the report has null, want empty lists:\n%s", r.JSON())
	}
}

func TestPictureIsXML(t *testing.T) {
	for _, name := range []string{"one", "seven", "partition"} {
		s := shipped(t, name)
		s.Title = `<b> & "more"`
		text := string(Run(s, 1).SVG())
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("the picture of %s: %v, want XML", name, err)
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("the picture of %s has a number that is none", name)
		}
	}
}

// The picture in the documentation is what the command beside it draws.
func TestDocumentedPicture(t *testing.T) {
	text, _ := File("seven")
	s, err := Read("seven.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("../../docs/simulation.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(picture, Run(s, 1).SVG()) {
		t.Error("docs/simulation.svg is not what gatehouse simulate seven --svg draws; draw it anew")
	}
}

// TestClientsThatLeaveAndComeBackAtOnce has a client leave and come back at one instant, while its good-bye
// is on its way. That must not end the lease it gets next.
func TestClientsThatLeaveAndComeBackAtOnce(t *testing.T) {
	s, err := Read("back.yaml", []byte(`
title: back at once
duration: 240s
resource:
  capacity: 1
  safe_capacity: 0
  algorithm: {kind: FAIR_SHARE, lease_length: 10, refresh_interval: 1, learning_mode_duration: 10}
network: {delay: 1ms to 2ms}
servers:
  - {name: s0, tasks: 2}
clients:
  - {of: s0, recipe: 2x1+random_change(0%), every: 1s, start: 0s to 7s}
events:
  - {at: 69s, for: 1s, do: leave, clients: 2}
  - {at: 6s, for: 63s, do: leave, clients: 2}
expect:
  - over == 0
`))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(100) {
		if r := Run(s, seed); !r.Holds() {
			t.Fatalf("seed %d: leases exceed the capacity\n%s", seed, r.Text())
		}
	}
}

// TestRestartWithoutMaster restarts a server while it has no master: there is nothing to restart.
func TestRestartWithoutMaster(t *testing.T) {
	s, err := Read("restart.yaml", []byte(`
title: restart without a master
duration: 240s
resource:
  capacity: 1
  algorithm: {kind: FAIR_SHARE, lease_length: 10, refresh_interval: 1, learning_mode_duration: 10}
network: {delay: 1ms to 2ms}
servers:
  - {name: s0, tasks: 2}
clients:
  - {of: s0, recipe: 2x1+random_change(0%), every: 1s}
events:
  - {at: 60s, do: lose, node: s0, for: 10s}
  - {at: 65s, do: restart, node: s0}
expect:
  - over == 0
`))
	if err != nil {
		t.Fatal(err)
	}
	if r := Run(s, 1); !r.Holds() {
		t.Errorf("a restart without a master breaks what was expected\n%s", r.Text())
	}
}
