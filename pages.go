package gatehouse

import (
	"embed"
	"io/fs"
)

//go:embed README.md CHANGELOG.md
var pages embed.FS

// Pages returns README.md and CHANGELOG.md, for the server to show beside its documentation.
func Pages() fs.FS { return pages }
