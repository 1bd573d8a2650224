package redis

import (
	"errors"
	"testing"

	"github.com/gatehousehq/gatehouse/store/cas"
)

// A Redis whose INFO leaves the policy out has refused to tell it: the server warns
// that it is unknown. Any other error would have it ask again later and say nothing.
func TestInfoWithoutAPolicy(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"# Memory\r\nused_memory:1\r\nmaxmemory_policy:allkeys-lru\r\n": "allkeys-lru",
		"# Memory\r\nused_memory:1\r\n":                                 "",
	} {
		if got := policyOf(info); got != want {
			t.Errorf("the policy in %q = %q, want %q", info, got, want)
		}
	}
	if !errors.Is(errNoPolicy, cas.ErrRefused) {
		t.Errorf("%v is not %v", errNoPolicy, cas.ErrRefused)
	}
}
