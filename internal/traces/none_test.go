//go:build !otel

package traces_test

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/traces"
)

func TestNone(t *testing.T) {
	_, err := traces.Open(t.Context(), traces.Config{})
	if err == nil || !strings.Contains(err.Error(), "-tags otel") {
		t.Errorf("Open = %v, want an error that names the tag", err)
	}
}
