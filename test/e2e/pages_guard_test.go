package e2e

import (
	"strings"
	"testing"
)

// Every page says what it may do, that it must not be shown in a frame, and that it is what its type says.
func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/docs", "/docs/", "/docs/openapi.yaml", "/docs/nothing", "/healthz",
		"/readyz",
		"/.well-known/ready", "/metrics", "/capacity", "/capacity?format=json", "/capacity/nothing",
		"/debug/status"} {
		h := shared().get(t, path).header
		policy := h.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy,
			"frame-ancestors 'none'") ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the headers %v, want a policy without defaults and frames, and nosniff", path, h)
		}
	}
	if a := shared().get(t, "/docs/oauth2-redirect.html"); a.status != 404 {
		t.Errorf("the page for a login that there is not = %.100s, want 404", a)
	}
}
