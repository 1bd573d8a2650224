package lease_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine is left behind by any test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
