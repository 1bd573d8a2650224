package capacity

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// oddNumbers are what a client may send by mistake or on purpose.
var oddNumbers = []float64{
	0, math.Copysign(0, -1), 1, -1, 0.1, 10, 1e6, 5e-324, 1e-300, 1e300, math.MaxFloat64, -math.MaxFloat64,
	math.Inf(1), math.Inf(-1), math.NaN(),
}

var oddInts = []int64{0, 1, 2, 100, -1, math.MaxInt32, math.MaxInt64, math.MinInt64}

var oddTimes = []time.Time{
	{}, time.Unix(1_000_000_000, 0), time.Unix(1_000_000_001, 5), time.Unix(-1<<40, 0), time.Unix(1<<40, 0),
	time.Unix(1_000_000_300, 0), time.Unix(1<<62, 0),
}

// TestNoNamePanics asks for resources with names of all kinds, with the usual template.
func TestNoNamePanics(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	names := []string{
		"", "/", "a/b", "*", "**", "?", "[", "[a", "[]", "[^", `\`, `a\`, "a*b", "..", "\x00", "\xff\xfe",
		"a b", "\n", "%s%d", "日本", strings.Repeat("x", 1<<20), strings.Repeat("*/", 1000),
	}
	for _, id := range names {
		for _, client := range []string{"", "c", "\xff", "a/b"} {
			r := &Request{Resource: id, Demands: []Demand{{Clients: 1, Wants: 5}}}
			if g := v.request(client, r); g.Resource != id {
				t.Errorf("Lease(%.20q) answers %.20q", id, g.Resource)
			}
		}
	}
	v.check()
	if got := len(v.Resources(v.now, "", 1000)); got != len(names)-1 { // all but the empty one
		t.Errorf("%d resources, want %d", got, len(names)-1)
	}
}

// TestOddNumbersDoNoHarm sends them in all places, and then lets two ordinary clients have their shares.
func TestOddNumbersDoNoHarm(t *testing.T) {
	for _, line := range []string{
		"FAIR_SHARE capacity=100", "FAIR_SHARE capacity=100 strict", "PROPORTIONAL_SHARE capacity=100",
		"PROPORTIONAL_SHARE capacity=100 strict", "STATIC capacity=50", "NO_ALGORITHM capacity=1",
		"FAIR_SHARE capacity=100 learning",
	} {
		v := newBench(t, line)
		for _, wants := range oddNumbers {
			for _, n := range oddInts {
				oddRequests(v, wants, n)
			}
			v.check()
		}
		v.request("odd", &Request{Resource: thing})
		v.Release(v.now, "odd", thing)
		v.now = v.now.Add(time.Hour)
		for range 3 {
			v.want("a", 50)
			v.want("b", 50)
		}
		if s := v.status(); s.Has != 100 || s.Wants != 100 || s.Clients != 2 {
			t.Errorf("%s: has %v, wants %v, %d clients afterwards; want 100, 100, 2",
				line, s.Has, s.Wants, s.Clients)
		}
	}
}

func oddRequests(v *workbench, wants float64, n int64) {
	for k := range 2 * len(oddTimes) * len(oddNumbers) {
		has, expiry := oddNumbers[k%len(oddNumbers)], oddTimes[k%len(oddTimes)]
		v.request("odd", &Request{
			Resource: thing, Server: k%2 == 0,
			Has:     Lease{Expiry: expiry, Refresh: -1, Capacity: has},
			Demands: []Demand{{Priority: n, Clients: n, Wants: wants}, {Clients: n, Wants: has}},
		})
	}
	v.want("a", 60)
}

// TestNaNIsWhatWasWantedBefore: an idle limiter sends it.
func TestNaNIsWhatWasWantedBefore(t *testing.T) {
	v := newBench(t, "PROPORTIONAL_SHARE capacity=100")
	nan := math.NaN()
	got := []float64{v.want("a", nan), v.want("a", 30), v.want("a", nan), v.want("b", 90), v.want("a", nan)}
	if want := []float64{0, 30, 30, 70, 30}; !slices.Equal(got, want) {
		t.Errorf("a, a, a, b, a have %v, want %v", got, want)
	}
	g := v.ask("a", 0, Demand{Priority: 3, Clients: 1, Wants: nan})
	if g.Lease.Capacity != 30 {
		t.Errorf("a has %v at another priority, want 30", g.Lease.Capacity)
	}
	if s := v.status(); s.Wants != 120 || s.Has != 100 {
		t.Errorf("sums %v, %v; want 120 wanted, 100 taken", s.Wants, s.Has)
	}
}

// TestOddTemplatesDoNoHarm uses templates that have faults, which nobody should configure.
func TestOddTemplatesDoNoHarm(t *testing.T) {
	lengths := []time.Duration{0, -1, 1, math.MaxInt64, math.MinInt64}
	for _, capacity := range oddNumbers {
		for k := range 5 * len(lengths) {
			length := lengths[k%len(lengths)]
			v := newBench(t, "FAIR_SHARE capacity=10 learning")
			v.configure(func(t *Template) {
				t.Capacity, t.Algorithm.Kind = capacity, AlgorithmKind(k/len(lengths)) // the last is unknown
				t.Algorithm.LeaseLength, t.Algorithm.RefreshInterval = length, length
				t.Algorithm.Learning = &length
			})
			v.want("a", 10)
			v.want("b", 5)
			v.Expire(v.now)
			v.now = v.now.Add(time.Hour)
			v.want("a", 1)
			v.check()
		}
	}
}

// TestClockJumps lets time go anywhere.
func TestClockJumps(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	for _, a := range oddTimes {
		for _, b := range oddTimes {
			v.now = a
			v.want("a", 10)
			v.now = b
			v.want("b", 10)
			v.Expire(v.now)
			v.Leases(v.now, thing, "", 10)
			v.Lead(v.now, time.Time{})
			v.Restore(v.now, []Saved{{thing, "a", a.Sub(b)}})
			v.want("a", 10)
			v.check()
		}
	}
}

// TestPages walks through resources and leases page by page.
func TestPages(t *testing.T) {
	v := newBench(t, "STATIC capacity=10")
	for i := range 25 {
		r := &Request{Resource: fmt.Sprintf("r%02d", i), Demands: []Demand{{Clients: 1, Wants: float64(i)}}}
		v.request("a", r)
		r.Resource = thing
		v.request(fmt.Sprintf("c%02d", i), r)
	}
	after, seen := "", []string{}
	for page := v.Resources(v.now, after, 10); len(page) > 0; page = v.Resources(v.now, after, 10) {
		for _, s := range page {
			seen, after = append(seen, s.ID), s.ID
		}
	}
	if len(seen) != 26 || !slices.IsSorted(seen) {
		t.Errorf("resources %v, want 26 in order", seen)
	}
	after, seen = "", nil
	for page := v.Leases(v.now, thing, after, 7); len(page) > 0; page = v.Leases(v.now, thing, after, 7) {
		for _, h := range page {
			seen, after = append(seen, h.Client), h.Client
			if want := min(10, h.Demands[0].Wants); h.Lease.Capacity != want || h.Taken != want {
				t.Errorf("%+v, want a lease of %v", h, want)
			}
			if !h.Lease.Expiry.Equal(v.now.Add(seconds(300))) || h.Lease.Refresh != seconds(5) {
				t.Errorf("lease %+v, want one of 300 s", h.Lease)
			}
		}
	}
	if len(seen) != 25 || !slices.IsSorted(seen) {
		t.Errorf("clients %v, want 25 in order", seen)
	}
	none := append(v.Resources(v.now, "", 0), v.Resources(v.now, "", -1)...)
	if len(none)+len(v.Leases(v.now, "none", "", 1)) > 0 {
		t.Error("pages of nothing are not empty")
	}
}

// FuzzLease runs any bytes as requests, with checks of all sums and trees, and of what was granted.
func FuzzLease(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07"))
	f.Add([]byte("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"))
	f.Add(binary.LittleEndian.AppendUint64(nil, math.MaxUint64))
	lines := []string{
		"FAIR_SHARE capacity=100 learning", "PROPORTIONAL_SHARE capacity=100 strict", "STATIC capacity=7",
		"FAIR_SHARE capacity=1e9 strict", "NO_ALGORITHM capacity=1",
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		v := newBench(t, lines[0])
		var list []Saved
		for len(input) >= 8 {
			var in [8]int
			for k := range in {
				in[k] = int(input[k])
			}
			input = input[8:]
			client := string(rune('a' + in[1]%9))
			switch in[0] % 16 {
			case 0:
				v.Release(v.now, client, thing)
			case 1:
				v.now = v.now.Add(seconds(float64(in[2])))
				v.Expire(v.now)
			case 2:
				v.template = newBench(t, lines[in[2]%len(lines)]).template
				v.configure(func(t *Template) { t.Algorithm.LeaseLength = seconds(float64(1 + in[3])) })
			case 3:
				list = v.Snapshot(v.now)
				v.Lead(v.now, time.Time{})
			case 4:
				v.Restore(v.now, list)
			default:
				fuzzedRequest(v, client, in)
			}
			v.check()
		}
	})
}

func fuzzedRequest(v *workbench, client string, in [8]int) {
	d := Demand{int64(in[2] % 3), oddInts[in[3]%len(oddInts)], float64(in[4])}
	if in[4] > 200 {
		d.Wants = oddNumbers[in[4]%len(oddNumbers)]
	}
	other := d
	other.Priority = oddInts[in[5]%len(oddInts)]
	r := &Request{
		Resource: thing, Server: in[6]%2 == 1, Demands: []Demand{d, other}[:1+in[6]%2],
	}
	r.Has.Expiry = v.now.Add(seconds(float64(in[7] - 100)))
	r.Has.Refresh = seconds(float64(in[5] % 3))
	r.Has.Capacity = oddNumbers[in[5]%len(oddNumbers)]
	g := v.request(client, r)
	i, _ := v.resources[thing].findLease(client)
	if wanted := v.resources[thing].leaseWants(i); g.Lease.Capacity > wanted {
		v.t.Fatalf("%s has %v, wants %v", client, g.Lease.Capacity, wanted)
	}
}
