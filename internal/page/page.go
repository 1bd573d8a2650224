// Package page is the page that shows people what goes on: its HTML, styles and scripts, and the libraries
// that these use. All of it is in the program, so that it works offline.
package page

import (
	"embed"
	"path"
	"sync"

	"github.com/gatehousehq/gatehouse/internal/manual"
)

//go:embed assets/*.html assets/*.css assets/*.js assets/*.svg assets/LICENSES.txt
var assets embed.FS

// types are the Content-Types of assets, by how their names end.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".js": "text/javascript; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}

// New returns what finds an asset by its name; "" is the page itself. Assets are compressed when they are
// first asked for, once.
func New() func(name string) (manual.Page, bool) {
	var mu sync.Mutex
	ready := make(map[string]manual.Page)
	return func(name string) (manual.Page, bool) {
		if name == "" {
			name = "index.html"
		}
		// Held while an asset is compressed, so that each is compressed once.
		mu.Lock()
		defer mu.Unlock()
		if p, ok := ready[name]; ok {
			return p, true
		}
		// Only names of embedded files are found, so that a name needs no further check.
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return manual.Page{}, false
		}
		p, err := manual.Compress(manual.Page{Type: types[path.Ext(name)], Body: body})
		if err != nil {
			return manual.Page{}, false
		}
		ready[name] = p
		return p, true
	}
}
