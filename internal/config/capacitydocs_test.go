//go:build unix

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/config"
)

// fences are the blocks of code on a page, without the words behind the opening fence.
func fences(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	var blocks []string
	for i, part := range strings.Split(string(text), "\n```") {
		if i%2 == 1 {
			_, block, _ := strings.Cut(part, "\n")
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// What the page about the configuration shows is what happens.
func TestThePageAboutTheConfigurationIsRight(t *testing.T) {
	blocks := fences(t, filepath.Join("..", "..", "docs", "capacity-configuration.md"))
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of code, want a good file, a bad one and what is told of it",
			len(blocks))
	}
	templates := parse(t, blocks[0])
	for name, glob := range map[string]string{
		"emails": "emails", "db-ax": "db-[ab]*", "jobs/mail": "jobs/*",
		"db-c": "*", "jobs/mail/daily": "*", "jobs": "*",
	} {
		if found := templates.Find(name); found == nil || found.Glob != glob {
			t.Errorf("the page's example has %+v for %s, want %s", found, name, glob)
		}
	}
	if !templates[2].Algorithm.Strict() || templates[1].Algorithm.Strict() {
		t.Errorf("the page's example = %+v, want strict priorities for jobs/* alone", templates)
	}
	t.Chdir(t.TempDir())
	put(t, "capacity.yml", blocks[1])
	if _, _, err := config.LoadCapacity(t.Context(), "capacity.yml"); err == nil || err.Error() != blocks[2] {
		t.Errorf("the page's bad example is refused with:\n%v\nwant:\n%s", err, blocks[2])
	}
}
