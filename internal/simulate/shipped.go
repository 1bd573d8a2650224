package simulate

import (
	"embed"
	"path"
	"strings"
)

//go:embed scenarios/*.yaml
var files embed.FS

// Shipped returns the names of the scenarios that are part of the program.
func Shipped() []string {
	entries, err := files.ReadDir("scenarios")
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), path.Ext(entry.Name())))
	}
	return names
}

// File returns the text of a scenario that is part of the program.
func File(name string) ([]byte, bool) {
	text, err := files.ReadFile("scenarios/" + name + ".yaml")
	return text, err == nil
}
