//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(attackersVariable) != "" { // the test has started itself to attack
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// shadow is how many times the memory the race detector needs.
const shadow = 3

// All attacks at once end no server, lose nothing that was granted, and stay within its memory. make soak
// makes more of them, and judges latency.
func TestNothingGrantedIsLost(t *testing.T) {
	t.Parallel()
	c := soakConfig{length: 6 * time.Second, memory: 512 << 20, scale: 15, folder: t.TempDir(),
		out: t.Output()}
	var err error
	c.binary, err = servertest.Build(t.Context(), c.folder)
	if err != nil {
		t.Fatal(err)
	}
	if servertest.HasRaceDetector() {
		c.memory *= shadow
	}
	r, err := runSoak(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r.writeText(&text)
	t.Log(text.String())
	for _, fault := range r.listFaults() {
		t.Error(fault)
	}
	if len(r.attacks) != len(attacks) {
		t.Errorf("%d attacks were made, want %d", len(r.attacks), len(attacks))
	}
	for _, a := range r.attacks {
		if a.Steps == 0 {
			t.Errorf("the attack %s was never made", a.Name)
		}
	}
}

// What neither we had nor was left over was taken by others, or by the host.
func TestTaken(t *testing.T) {
	before := cpuUsage{all: 1000, steal: 10, busy: 500, ours: 100}
	after := cpuUsage{all: 1200, steal: 30, busy: 600, ours: 180}
	if got := before.shareOfOthers(after); got != 0.2 {
		t.Errorf("others had %v of the time, want 0.2", got)
	}
	u := readUsage([]int{os.Getpid()})
	if u.all <= 0 || u.busy <= 0 || u.ours < 0 || u.ours > u.busy || u.busy > u.all {
		t.Errorf("the system tells %+v, want our time within that of programs, within all", u)
	}
}

// What is not as promised is said.
func TestFaults(t *testing.T) {
	good := soakReport{memory: 2, maxMemory: 1, hot: []time.Duration{1}}
	if got := good.listFaults(); len(got) > 0 {
		t.Errorf("a good run has the faults %q", got)
	}
	for want, spoil := range map[string]func(r *soakReport){
		"the server ended": func(r *soakReport) { r.serverEnded = true },
		"the server had":   func(r *soakReport) { r.maxMemory = 3 },
		"lost: lock/a":     func(r *soakReport) { r.lost = []string{"lock/a"} },
		"the limiter let":  func(r *soakReport) { r.inWindow = limitSize + 1 },
		"status 1":         func(r *soakReport) { r.status = 1 },
		"no honest client": func(r *soakReport) { r.hot = nil },
		"p99 was 4.0 times": func(r *soakReport) {
			r.judged, r.slowdown, r.allowed = true, 4,
				allowedSlowdown
		},
		"and 1 more are lost": func(r *soakReport) { r.lost = make([]string, 6) },
	} {
		r := good
		spoil(&r)
		if got := strings.Join(r.listFaults(), "\n"); r.isGood() || !strings.Contains(got, want) {
			t.Errorf("the faults are %q, want %q among them", got, want)
		}
	}
}
