package http

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/activity"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
)

// TestGuards wants an entry in pageGuards for every page and every route of the program.
func TestGuards(t *testing.T) {
	paths := map[string]bool{
		docsPath: true, cyclesPath: true, whoamiPath: true, topPath: true, decisionsPath: true,
		assetsPath: true,
	}
	for path := range fixedPages {
		paths[path] = true
	}
	// All that a server can have, with capacity and the page.
	full := &Server{config: Config{
		Routes: new(grpcfront.Server).Routes(), Activity: new(activity.Monitor),
		About: func(bool) any { return nil },
	}}
	for pattern := range full.allRoutes() {
		_, path, _ := strings.Cut(pattern, " ")
		paths[path] = true
	}
	for path := range paths {
		g := guardOf(path)
		switch {
		case g == nil:
			t.Errorf("path %s has no entry in pageGuards, want one that says who may ask for it", path)
		case g.open == (g.level != gatehouse.NoLevel):
			t.Errorf("path %s is open and has a level, or neither, want one of them", path)
		case !g.open && access.Unknown().May(g.key.Kind, g.key.Name, g.level):
			t.Errorf("path %s is open to an unknown user", path)
		}
	}
	for path := range pageGuards {
		if !paths[path] {
			t.Errorf("pageGuards has %s, which is no path, want it gone", path)
		}
	}
}

// A browser has no token before the page has asked its user for one, so that the page is answered without a
// look at the token. It tells nothing; all that it shows it asks for with the token.
func TestIsPublic(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/healthz": true, "/readyz": true, assetsPath + "names.js": true,
		"": false, "/metrics": false, "/docs/": false, "/v1/names": false, whoamiPath: false,
		"/v1/lock/a/acquire": false,
	} {
		if got := isPublic([]byte(path)); got != want {
			t.Errorf("isPublic(%q) = %t, want %t", path, got, want)
		}
	}
}
