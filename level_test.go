package gatehouse_test

import (
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// TestLevels wants a level for every operation of every kind, so that no new one is open by accident.
func TestLevels(t *testing.T) {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			level := kind.Level(op)
			if kind.Has(op) != (level != gatehouse.NoLevel) {
				t.Errorf("level of %s of a %s = %s, want one if it has that", op, kind,
					level)
			}
			// All else that may be done with the right to read is to wait.
			if reads := level == gatehouse.LevelRead && op != gatehouse.OpWait; kind.Has(op) &&
				op.Reads() != reads {
				t.Errorf("%s of a %s reads: %t, want %t", op, kind, op.Reads(), reads)
			}
		}
	}
	for op, want := range map[gatehouse.Op]gatehouse.Level{
		gatehouse.OpUndo: gatehouse.NoLevel, gatehouse.OpDelete: gatehouse.LevelManage,
		gatehouse.OpStats: gatehouse.LevelRead, gatehouse.OpAcquire: gatehouse.LevelUse,
	} {
		if got := gatehouse.Lock.Level(op); got != want {
			t.Errorf("level of %s of a lock = %s, want %s", op, got, want)
		}
	}
}

// TestParseLevel reads what levels are called.
func TestParseLevel(t *testing.T) {
	for level := gatehouse.LevelRead; level <= gatehouse.LevelManage; level++ {
		if got, ok := gatehouse.ParseLevel(level.String()); !ok || got != level {
			t.Errorf("ParseLevel(%s) = %s, %t, want the same", level, got, ok)
		}
	}
	for _, text := range []string{"", "nothing", "Use"} {
		if got, ok := gatehouse.ParseLevel(text); ok {
			t.Errorf("ParseLevel(%q) = %s, want none", text, got)
		}
	}
}
