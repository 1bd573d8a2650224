package params

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

func TestMillis(t *testing.T) {
	for _, test := range []struct {
		d           time.Duration
		ceil, floor int64
	}{
		{0, 0, 0},
		{1, 1, 0},
		{time.Millisecond, 1, 1},
		{1500 * time.Microsecond, 2, 1},
		{gatehouse.Forever, -1, -1},
	} {
		if got := CeilMillis(test.d); got != test.ceil {
			t.Errorf("CeilMillis(%s) = %d, want %d", test.d, got, test.ceil)
		}
		if got := FloorMillis(test.d); got != test.floor {
			t.Errorf("FloorMillis(%s) = %d, want %d", test.d, got, test.floor)
		}
	}
	if got := CeilMillis(-time.Second); got != 0 {
		t.Errorf("CeilMillis(-1s) = %d, want 0", got)
	}
}
