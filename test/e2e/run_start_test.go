package e2e

import (
	"strings"
	"testing"
)

// A guard is the same program again. What Go tells of its start shows that it does not pay for the server.
func TestGuardStartsEarly(t *testing.T) {
	t.Parallel()
	// Without a run at the other end of its pipes a guard ends at once.
	status, _, trace := gatehouse(t, []string{"GODEBUG=inittrace=1"}, "guard-of-run")
	if status != 0 || !strings.Contains(trace, "init encoding/json @") {
		t.Fatalf("a guard without a run ended with %d, and traced %q, want 0 and a trace", status, trace)
	}
	for _, late := range []string{
		"github.com/yuin/goldmark", "google.golang.org/protobuf/types", "github.com/prometheus",
		"go.etcd.io/etcd",
	} {
		if strings.Contains(trace, "init "+late) {
			t.Errorf("%s is initialized before the guard starts, want it after", late)
		}
	}
	_, _, trace = gatehouse(t, []string{"GODEBUG=inittrace=1"}, "--version")
	if !strings.Contains(trace, "init github.com/yuin/goldmark") {
		t.Errorf("the trace of the whole program is %q, want goldmark in it", trace)
	}
}
