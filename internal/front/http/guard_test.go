package http

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
)

// TestGuards wants an entry in pageGuards for every page and every route of the program.
func TestGuards(t *testing.T) {
	paths := map[string]bool{
		docsPath: true, cyclesPath: true, whoamiPath: true, topPath: true, decisionsPath: true,
	}
	for path := range fixedPages {
		paths[path] = true
	}
	for pattern := range new(grpcfront.Server).Routes() {
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
		case !g.open && access.Nobody().May(g.key.Kind, g.key.Name, g.level):
			t.Errorf("path %s is open to nobody", path)
		}
	}
	for path := range pageGuards {
		if !paths[path] {
			t.Errorf("pageGuards has %s, which is no path, want it gone", path)
		}
	}
}
