package jarl_test

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// Beyond the longest delay connections are closed without a byte, and take no place: however many there
// are, the next client finds the schedule as it was.
func TestMaxDelay(t *testing.T) {
	for _, mode := range []string{"reserve", "paced", "classic", "poll"} {
		l := newListenerAdmitting(t, mode, jarl.Admission{MaxDelay: 2 * time.Second})
		promised, closed := 0, 0
		for range 200 {
			switch answer := l.ask(t); {
			case answer == "":
				closed++
			case delay(t, answer) > 2*time.Second:
				t.Errorf("%s: a client is told %s, want at most 2 s", mode, answer)
			default:
				promised++
			}
		}
		if most := 12; mode != "poll" && (promised > most || closed == 0) {
			t.Errorf("%s: %d of 200 are promised a place within 2 s, want at most %d", mode, promised, most)
		}
		l.set(3 * time.Second)
		if answer := l.ask(t); answer != "0.0" {
			t.Errorf("%s: when all promised have started a client is told %q, want 0.0", mode, answer)
		}
		l.end(t)
	}
}

// Who waits to poll again for longer than the longest delay is told nothing.
func TestMaxDelayOfPoll(t *testing.T) {
	l := newListenerAdmitting(t, "poll", jarl.Admission{MaxDelay: 500 * time.Millisecond})
	defer l.end(t)
	for _, want := range []string{"0.0", "0.0", "0.0", "", ""} {
		if got := l.ask(t); got != want {
			t.Errorf("a client is told %q, want %q", got, want)
		}
	}
}

// Who stands in line behind another door leaves it, told nothing, after the longest delay.
func TestMaxDelayOfLine(t *testing.T) {
	l := newListenerAdmitting(t, "reserve", jarl.Admission{MaxDelay: 50 * time.Millisecond})
	defer l.end(t)
	for range 3 {
		l.ask(t)
	}
	leave := l.stand(3)
	defer leave()
	l.waiting(t, 1)
	if got := l.ask(t); got != "" {
		t.Errorf("a client in line is told %q, want nothing", got)
	}
	l.waiting(t, 1)
}

// Only clients that are allowed take a place.
func TestAllow(t *testing.T) {
	var admits jarl.Admission
	if err := admits.AddAllowed("10.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	l := newListenerAdmitting(t, "reserve", admits)
	defer l.end(t)
	for range 20 {
		if got := l.ask(t); got != "" {
			t.Errorf("a client that is not allowed is told %q, want nothing", got)
		}
	}
	key := gatehouse.Key{Kind: gatehouse.Pace, Name: "api"}
	peek := gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: 3, Interval: time.Second},
	}
	if d, err := l.gate.Do(t.Context(), key, peek); err != nil || d.Remaining != 3 {
		t.Errorf("after them there are %d places, %v, want 3", d.Remaining, err)
	}
}

func TestAdmission(t *testing.T) {
	var a jarl.Admission
	for _, good := range []string{"127.0.0.1", "10.1.2.3/8", "::1", "fd00::/8"} {
		if err := a.AddAllowed(good); err != nil {
			t.Errorf("allow %s = %v, want nil", good, err)
		}
	}
	if got, want := a.String(), "127.0.0.1/32,10.0.0.0/8,::1/128,fd00::/8"; got != want {
		t.Errorf("they are %s, want %s", got, want)
	}
	for _, bad := range []string{"", "localhost", "10.0.0.0/33", "fe80::1%eth0", "10.0.0.0 "} {
		if a.AddAllowed(bad) == nil {
			t.Errorf("allow %q = nil, want an error", bad)
		}
	}
	a.Allow = make([]netip.Prefix, jarl.MaxAllowed)
	if a.AddAllowed("::1") == nil {
		t.Error("one more than may be = nil, want an error")
	}
	for _, bad := range []string{"", "0s", "-1s", "5", "1000000h"} {
		if a.SetMaxDelay(bad) == nil {
			t.Errorf("max-delay %q = nil, want an error", bad)
		}
	}
}

// newListenerAdmitting is newListener with 3 requests a second for those who are admitted.
func newListenerAdmitting(t *testing.T, mode string, admits jarl.Admission) *listener {
	t.Helper()
	limit := jarl.PaceLimit{Name: "api", Requests: 3, Period: time.Second}
	if err := limit.SetMode(mode); err != nil {
		t.Fatal(err)
	}
	l := &listener{admits: admits}
	l.begin(t, limit, memory.New(memory.Config{Now: l.now}), io.Discard)
	return l
}
