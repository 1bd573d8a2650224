// Package config reads the server's configuration file, a YAML file of settings that have the names of
// flags, of listeners and of rules. It looks at the whole of it and reports every fault with its line and
// column, so that a file is either understood in full or not used.
package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/internal/smallfile"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The limits of a file, so that a wrong path such as that of a log is refused and not read for minutes,
// and of a server, which has a goroutine and a port for each listener.
const (
	MaxSize      = 1 << 20 // bytes
	MaxListeners = 100
)

// Known lists the settings there are.
type Known struct {
	// Settings are the names of those that have a value, or a list of values.
	Settings []string
	// Addresses are those of them that are addresses to listen at; they may be empty.
	Addresses []string
}

// A File is the content of a configuration file.
type File struct {
	// Path is where it was read.
	Path string

	// Settings are in the order of the file, none of them twice.
	Settings []Setting

	// JARL are the listeners of that protocol.
	JARL []Listener

	// Rules say how names are kept in a store that servers share.
	Rules Rules

	// Servers is how many share the store; 0 when the file does not say.
	Servers int

	known     Known
	faults    yamlnode.FileFaults
	addresses []placedAddress
	shares    []yamlnode.Position // of the rules that divide by Servers
}

// A Setting is one value, or several in a list, as they are written in the file.
type Setting struct {
	Name   string
	Values []string
	At     yamlnode.Position // of the value
}

// String returns the value as it is shown in a fault.
func (s Setting) String() string { return quote(strings.Join(s.Values, ", ")) }

// A Listener is one port and the limiter it serves.
type Listener struct {
	Address string
	Limit   jarl.PaceLimit
	Admits  jarl.Admission
	At      yamlnode.Position
}

// Load reads a file. Faults in its content are not returned here but by Err; the error says that it could not
// be read.
func Load(path string, known Known) (*File, error) {
	wanted := smallfile.Wanted{What: "a configuration file", Size: MaxSize, Piped: true}
	text, err := smallfile.Read(path, wanted)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	f := &File{Path: path, known: known}
	// Faults are not this function's error: Err has all of them, with those that the caller adds.
	f.parse(text)
	return f, nil
}

// parse parses the text.
func (f *File) parse(text []byte) {
	if node := f.faults.ParseDocument(text); node != nil {
		f.readTop(node)
	}
}

// Fault adds a fault, unless it is there already. The text begins with its subject.
func (f *File) Fault(at yamlnode.Position, format string, args ...any) {
	f.faults.Add(at, fmt.Sprintf(format, args...))
}

// Err returns an error with all faults in the order of the file, nil if there are none.
func (f *File) Err() error { return f.faults.Err(f.Path) }

// jarlKey is a setting without a flag: a list of listeners.
const jarlKey = "jarl"

// readTop reads the whole document.
func (f *File) readTop(node *yaml.Node) {
	if yamlnode.IsNull(node) {
		return // comments alone
	}
	// The caller knows its settings; the rest has lists, and no flags.
	names := append(slices.Clone(f.known.Settings), jarlKey, rulesKey, serversKey)
	for name, value := range f.pairsOf(node, names, "") {
		switch name {
		case jarlKey:
			f.readList(value, listSetting{key: jarlKey, of: "listeners", most: MaxListeners}, f.readListener)
		case rulesKey:
			f.readList(value, listSetting{key: rulesKey, of: "rules", most: maxRules}, f.readRule)
		case serversKey:
			f.readServers(value)
		default:
			f.readSetting(name, value)
		}
	}
	// Checks across settings come last, when all of them are known.
	f.checkTogether()
	f.checkShares()
}

// readSetting reads a value or a list of values.
func (f *File) readSetting(name string, node *yaml.Node) {
	setting := Setting{Name: name, At: yamlnode.At(node)}
	nodes := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		nodes = node.Content
	}
	for _, n := range nodes {
		// One bad value drops the setting: a shorter list would be another setting.
		value, ok := f.readScalar(name, n)
		if !ok {
			return
		}
		setting.Values = append(setting.Values, value)
	}
	// An address is kept apart, to find two listeners at one port.
	if slices.Contains(f.known.Addresses, name) && len(setting.Values) == 1 && setting.Values[0] != "" {
		f.addAddress(name, setting.Values[0], setting.At)
	}
	f.Settings = append(f.Settings, setting)
}

// A listSetting is a setting without a flag: its name, what it lists, and the maximum number of items.
type listSetting struct {
	key, of string
	most    int
}

// readList calls read for each item of a list.
func (f *File) readList(node *yaml.Node, l listSetting, read func(*yaml.Node)) {
	if node.Kind != yaml.SequenceNode {
		f.Fault(yamlnode.At(node), "%s is %s, want a list of %s", l.key, yamlnode.Kind(node), l.of)
		return
	}
	// Before any entry is read, as each may add faults and addresses.
	if len(node.Content) > l.most {
		f.Fault(yamlnode.At(node), "%s has %d %s, want at most %d", l.key, len(node.Content), l.of, l.most)
		return
	}
	for _, entry := range node.Content {
		read(entry)
	}
}

// pairsOf iterates over the keys and values of a mapping whose keys are among names, each once. of says whose
// they are.
func (f *File) pairsOf(node *yaml.Node, names []string, of string) func(func(string, *yaml.Node) bool) {
	return f.faults.Pairs(node, names, of)
}

// readScalar returns the text of one value.
func (f *File) readScalar(name string, node *yaml.Node) (value string, ok bool) {
	return f.faults.Scalar(name, node)
}
