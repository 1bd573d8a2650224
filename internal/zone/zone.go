// Package zone reads time zones by their IANA names, each once in a process: reading one takes longer
// than a hundred decisions, and a copy takes 5 KB.
package zone

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"
)

// maxName is longer than any name there is, the longest of which has 32 bytes.
const maxName = 64

// zones are the locations that were read, by name. Only names that exist come in, each in one
// spelling, so that there are no more than some hundreds.
var zones sync.Map

// knownNames are the names of all zones, listed once. To ask the system for each name that is unknown would
// cost as much as ten decisions or more.
var knownNames = sync.OnceValue(allNames)

// Load returns the time zone of a name such as Europe/Berlin; "" is UTC. The error's
// text is for the client that gave the name.
func Load(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if location, ok := zones.Load(name); ok {
		return location.(*time.Location), nil
	}
	// Local would depend on the server's setting, and an unclean path is another spelling of a zone. Only
	// known names are cached, which bounds the map.
	if len(name) <= maxName && name != "Local" && path.Clean(name) == name && knownNames()[name] {
		if read, err := time.LoadLocation(name); err == nil {
			location, _ := zones.LoadOrStore(name, read)
			return location.(*time.Location), nil
		}
	}
	return nil, fmt.Errorf("zone %q is unknown, want an IANA name such as Europe/Berlin",
		name[:min(len(name), maxName)])
}

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
