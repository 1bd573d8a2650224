package slidingwindow_test

import (
	"fmt"
	"time"

	sw "github.com/gatehousehq/gatehouse/slidingwindow"
)

// The documented example of RussellLuo/slidingwindow, with another import path.
func Example_localWindow() {
	lim, _ := sw.NewLimiter(time.Second, 10, func() (sw.Window, sw.StopFunc) {
		// There is nothing to stop in a window that is not shared.
		return sw.NewLocalWindow()
	})

	ok := lim.Allow()
	fmt.Printf("ok: %v\n", ok)

	// Output:
	// ok: true
}
