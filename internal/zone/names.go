package zone

import (
	_ "embed"
	"io/fs"
	"os"
	"strings"
)

// compiledIn are the names in the time zone database of the Go toolchain, which is part of the program.
//
//go:embed names.txt
var compiledIn string

// folders are where systems keep their time zones; package time looks there too.
var folders = []string{
	"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo",
}

// allNames lists the zones there are.
func allNames() map[string]bool {
	names := make(map[string]bool)
	// The names in the program come first; the system's may add newer ones.
	for name := range strings.Lines(compiledIn) {
		names[strings.TrimSpace(name)] = true
	}
	for _, folder := range append([]string{os.Getenv("ZONEINFO")}, folders...) {
		if folder == "" {
			continue
		}
		_ = fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names[strings.Clone(path)] = true
			}
			return nil // a folder that cannot be read has no zones for us
		})
	}
	return names
}
