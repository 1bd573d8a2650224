// Package zone reads time zones by their IANA names, each once in a process: reading one takes longer
// than a hundred decisions, and a copy takes 5 KB.
package zone

import (
	"fmt"
	"path"
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
	if len(name) > maxName || name == "Local" || path.Clean(name) != name || !knownNames()[name] {
		return nil, unknownZone(name)
	}
	read, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	location, _ := zones.LoadOrStore(name, read)
	return location.(*time.Location), nil
}

func unknownZone(name string) error {
	return fmt.Errorf("zone %q is unknown, want an IANA name such as Europe/Berlin",
		name[:min(len(name), maxName)])
}
