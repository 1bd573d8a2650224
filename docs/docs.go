// Package docs holds the pages of this folder, for the server to show.
package docs

import (
	"embed"
	"io/fs"
)

//go:embed *.md *.svg controllers decisions monitoring protocols stores
var files embed.FS

// Files returns the pages, in Markdown, and the pictures and files that they link to, by their paths below
// this folder.
func Files() fs.FS { return files }
