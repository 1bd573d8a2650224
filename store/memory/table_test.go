package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gatehousehq/gatehouse/control"
)

// TestNameTable does the same to a table and to a map. Hashes that are alike in some bits, or in all, make
// names get into each other's way.
func TestNameTable(t *testing.T) {
	for seed, mask := range []uint64{^uint64(0), 0x3f << 32, numberMask<<32 | 7<<61, 0} {
		random := rand.New(rand.NewPCG(uint64(seed), 5))
		hashes := make(map[string]uint64)
		hashOf := func(name string) uint64 {
			if _, known := hashes[name]; !known {
				hashes[name] = random.Uint64() & mask
			}
			return hashes[name]
		}
		table, model := new(nameTable), make(map[string]uint32) // the numbers of its entries
		states := make(map[string]control.State)
		for range 20_000 {
			name := fmt.Sprint(random.IntN(300))
			number, known := model[name]
			e := table.find(hashOf(name), name)
			right := e == nil
			if known {
				right = e != nil && e.name == name && e.state == states[name] && e == table.entry(number)
			}
			switch {
			case !right:
				t.Fatalf("seed %d: find(%q) = %v, want number %d, %v", seed, name, e, number, known)
			case !known:
				model[name], states[name] = table.add(hashOf(name), name, hashOf), new(control.Counter)
				table.entry(model[name]).state = states[name]
			case random.IntN(2) == 0:
				table.drop(hashOf(name), number, hashOf)
				delete(model, name)
			}
		}
		seen := 0
		table.visitAll(func(e *nameEntry) {
			if _, known := model[e.name]; !known {
				t.Errorf("seed %d: visitAll shows %q, which was dropped", seed, e.name)
			}
			seen++
		})
		if seen != len(model) || table.used != seen {
			t.Errorf("seed %d: %d names shown, %d used, want %d", seed, seen, table.used, len(model))
		}
	}
}

// A check is at its instant or less than a unit before, and the earlier one comes first.
func TestNameChecks(t *testing.T) {
	const latest = 1<<63 - 1
	for _, at := range []int64{0, 1, checkUnit - 1, checkUnit, 1_800_000_000_000_000_000, latest} {
		c := newCheck(at, numberMask-1)
		if c.number() != numberMask-1 || c.at() > at || c.at() <= at-checkUnit {
			t.Errorf("newCheck(%d) = at %d, number %d", at, c.at(), c.number())
		}
		if at < latest && newCheck(at+checkUnit, 0).Before(c) {
			t.Errorf("a check %d after %d comes first", checkUnit, at)
		}
	}
	if c := newCheck(-5, 3); c.at() != 0 || c.number() != 3 {
		t.Errorf("newCheck(-5) = at %d, number %d, want 0 and 3", c.at(), c.number())
	}
}
