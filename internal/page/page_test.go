package page

import (
	"io/fs"
	"strings"
	"testing"
)

// Everything that a browser fetches is below 150 KB, and nothing of it needs another server or a policy that
// allows scripts inside of HTML.
func TestAssets(t *testing.T) {
	find := New()
	total, packed := 0, 0
	names, err := fs.Glob(assets, "assets/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no assets, %v", err)
	}
	for _, name := range names {
		name = strings.TrimPrefix(name, "assets/")
		p, ok := find(name)
		if !ok || p.Type == "" || p.Tag == "" {
			t.Errorf("%s is %q with the tag %q, want a type and a tag", name, p.Type, p.Tag)
		}
		if strings.HasSuffix(name, ".txt") {
			continue // which no page needs
		}
		total, packed = total+len(p.Body), packed+len(p.Gzipped)
	}
	if total > 150_000 {
		t.Errorf("the page is %d bytes, want at most 150,000", total)
	}
	t.Logf("the page is %d bytes, compressed %d", total, packed)
	page, _ := find("")
	for _, bad := range []string{"<script>", "<style", "style=", "onclick=", "//"} {
		if strings.Contains(string(page.Body), bad) {
			t.Errorf("the page has %q in it, want nothing inline and nothing from elsewhere", bad)
		}
	}
	if _, ok := find("../page.go"); ok {
		t.Error("a file beside the assets is found")
	}
}
