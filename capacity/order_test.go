package capacity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRowsByName adds and removes rows and compares with a map: how they are found, and their pages.
func TestRowsByName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newResource(thing)
		slow := map[string]int32{}
		number := rapid.IntRange(0, rapid.SampledFrom([]int{5, 5000}).Draw(t, "names"))
		removes := rapid.IntRange(1, 3).Draw(t, "removes")
		for range rapid.IntRange(0, 1500).Draw(t, "steps") {
			client := fmt.Sprintf("client-%d", number.Draw(t, "client"))
			i, ok := r.findLease(client)
			if want, known := slow[client]; ok != known || i != want {
				t.Fatalf("find(%s) = %d, %v, want %d, %v", client, i, ok, want, known)
			}
			if !ok {
				slow[client] = r.addLease(client)
			} else if len(slow)%4 < removes {
				r.removeLease(i)
				delete(slow, client)
			}
		}
		var names []string
		for client := range slow {
			names = append(names, client)
		}
		slices.Sort(names)
		after := fmt.Sprintf("client-%d", number.Draw(t, "after"))
		from, found := slices.BinarySearch(names, after)
		if found {
			from++
		}
		most := rapid.IntRange(0, 700).Draw(t, "most")
		var got []string
		for _, i := range r.byName.pageAfter(after, most) {
			got = append(got, r.records.at(i).client)
		}
		if want := names[from:min(from+most, len(names))]; !slices.Equal(got, want) {
			t.Fatalf("%d after %s = %v, want %v", most, after, got, want)
		}
		if len(r.byClient.slots) > max(minSlots, 8*len(slow)) || r.leaseCount() != len(slow) {
			t.Fatalf("%d slots for %d rows, want %d", len(r.byClient.slots), r.leaseCount(), len(slow))
		}
	})
}

// TestMemoryComesBack adds many rows and takes them away: parts, slots and entries go with them.
func TestMemoryComesBack(t *testing.T) {
	v := newBench(t, "FAIR_SHARE capacity=10")
	const n = 50_000
	for i := range n {
		v.want(name(i*7919%n), float64(i%100))
	}
	r := v.resources[thing]
	v.check()
	if parts := len(r.byName.parts); parts > n/maxPartLength*4 {
		t.Errorf("%d parts for %d leases", parts, n)
	}
	for i := range n - 10 {
		v.Release(v.now, name(i), thing)
	}
	v.check()
	if len(r.byName.parts) > 2 || len(r.byClient.slots) > 128 || len(r.expiries) > 100 {
		t.Errorf("%d parts, %d slots, %d entries for 10 leases, want few",
			len(r.byName.parts), len(r.byClient.slots), len(r.expiries))
	}
}
