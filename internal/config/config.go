// Package config reads the server's configuration file, a YAML file of settings that have the names of
// flags, of listeners and of rules. It looks at the whole of it and reports every fault with its line and
// column, so that a file is either understood in full or not used.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The limits of a file, so that a wrong path such as that of a log is refused and not read for minutes,
// and of a server, which has a goroutine and a port for each listener.
const (
	MaxSize      = 1 << 20 // bytes
	MaxListeners = 100

	maxFaults = 50 // that are shown
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
	faults    []fileFault
	reported  map[fileFault]bool // the same
	addresses []placedAddress
	shares    []Position // of the rules that divide by Servers
}

// A Setting is one value, or several in a list, as they are written in the file.
type Setting struct {
	Name   string
	Values []string
	At     Position // of the value
}

// String returns the value as it is shown in a fault.
func (s Setting) String() string { return quote(strings.Join(s.Values, ", ")) }

// A Listener is one port and the limiter it serves.
type Listener struct {
	Address string
	Limit   jarl.PaceLimit
	Admits  jarl.Admission
	At      Position
}

// A Position is a place in the file, from line 1 and column 1 on.
type Position struct{ Line, Column int }

// A fileFault is an error in the file, and where it is.
type fileFault struct {
	at   Position
	text string
}

// Load reads a file. Faults in its content are not returned here but by Err; the error says that it could not
// be read.
func Load(path string, known Known) (*File, error) {
	text, err := readLimited(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	f := &File{Path: path, known: known}
	f.parse(text)
	return f, nil
}

func readLimited(path string) ([]byte, error) {
	file, err := os.Open(path) // the operator names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	// One byte more than allowed is enough to know that the file is too large.
	text, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, err
	}
	// The wrong file, most likely: a log, or an image of a disk.
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes, want a configuration file", path, MaxSize)
	}
	return text, nil
}

// parse parses the text.
func (f *File) parse(text []byte) {
	if node := f.parseDocument(text); node != nil {
		f.readTop(node)
	}
}

// parseDocument returns the one document of the text. It is nil if there is none, or after a fault.
func (f *File) parseDocument(text []byte) *yaml.Node {
	// A key that comes twice is found by pairsOf, which reports it with all other faults.
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithV4Defaults(), yaml.WithUniqueKeys(false))
	if err != nil {
		panic(err) // the options are ours
	}
	var document, second yaml.Node
	// A second document would be ignored silently otherwise.
	if f.loadDocument(loader, &document) && f.loadDocument(loader, &second) {
		f.Fault(positionOf(&second), "a second document begins here, want one")
		return nil
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil
	}
	return document.Content[0]
}

// scanningAlias is what the library was doing when a star had no name after it.
const scanningAlias = "while scanning an alias"

// loadDocument reads one document, and reports false if there is none.
func (f *File) loadDocument(loader *yaml.Loader, document *yaml.Node) bool {
	err := loader.Load(document)
	if err == nil || errors.Is(err, io.EOF) {
		return err == nil
	}
	// An error without a mark is shown at the beginning of the file.
	at, text := Position{1, 1}, err.Error()
	if failure, ok := errors.AsType[*yaml.LoadError](err); ok {
		at = Position{max(failure.Mark.Line, 1), max(failure.Mark.Column, 1)}
		text = "not YAML: " + failure.Message
		// The glob "*" without quotes is an alias in YAML, and the most likely mistake in these files.
		if failure.ContextMsg == scanningAlias || strings.HasPrefix(failure.Message, "unknown anchor") {
			text += `; a text that begins with a star needs quotes: "*"`
		}
	}
	f.Fault(at, "%s", text)
	return false
}

// Fault adds a fault, unless it is there already: a block to which aliases refer is read several times. The
// text begins with its subject.
func (f *File) Fault(at Position, format string, args ...any) {
	fault := fileFault{at, withoutPasswords(fmt.Sprintf(format, args...))}
	if f.reported == nil {
		f.reported = make(map[fileFault]bool)
	}
	if !f.reported[fault] {
		f.reported[fault] = true
		f.faults = append(f.faults, fault)
	}
}

// userinfo matches what stands before the host in an address with a scheme. In a value that was cut short,
// the host may be missing.
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s@/]*:[^\s@]*(@|…|$)`)

// withoutPasswords returns a text without what stands before a host in the addresses that it quotes.
func withoutPasswords(text string) string { return userinfo.ReplaceAllString(text, "${1}…${2}") }

// Err returns an error with all faults in the order of the file, nil if there are none.
func (f *File) Err() error {
	if len(f.faults) == 0 {
		return nil
	}
	// Faults were found in the order of the checks, not of the file.
	slices.SortStableFunc(f.faults, func(a, b fileFault) int {
		return cmp.Or(cmp.Compare(a.at.Line, b.at.Line), cmp.Compare(a.at.Column, b.at.Column))
	})
	var text strings.Builder
	if len(f.faults) > 1 {
		fmt.Fprintf(&text, "%s has %d faults:\n", cmp.Or(f.Path, "the text"), len(f.faults))
	}
	// Each line begins with path:line:column, which editors and terminals turn into links.
	path := f.Path
	if path != "" {
		path += ":"
	}
	for i, fault := range f.faults {
		if i == maxFaults {
			fmt.Fprintf(&text, "and %d more\n", len(f.faults)-i)
			break
		}
		fmt.Fprintf(&text, "%s%d:%d: %s\n", path, fault.at.Line, fault.at.Column, fault.text)
	}
	return errors.New(strings.TrimSuffix(text.String(), "\n"))
}

// jarlKey is a setting without a flag: a list of listeners.
const jarlKey = "jarl"

// readTop reads the whole document.
func (f *File) readTop(node *yaml.Node) {
	if isNull(node) {
		return // comments alone
	}
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
	setting := Setting{Name: name, At: positionOf(node)}
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
		f.Fault(positionOf(node), "%s is %s, want a list of %s", l.key, yamlnode.Kind(node), l.of)
		return
	}
	if len(node.Content) > l.most {
		f.Fault(positionOf(node), "%s has %d %s, want at most %d", l.key, len(node.Content), l.of, l.most)
		return
	}
	for _, entry := range node.Content {
		read(entry)
	}
}

// pairsOf iterates over the keys and values of a mapping whose keys are among names, each once. of says whose
// they are.
func (f *File) pairsOf(node *yaml.Node, names []string, of string) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			f.Fault(positionOf(node), "%s here, want settings such as %s: …", yamlnode.Kind(node), names[0])
			return
		}
		// The line of each key; the library does not complain about keys that come twice.
		first := make(map[string]int)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			line := first[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || !slices.Contains(names, key.Value):
				f.Fault(positionOf(key), "%s is no setting%s, want one of %s",
					keyName(key), of, joinNames(names))
			case line > 0:
				f.Fault(positionOf(key), "%s is set twice, first in line %d", key.Value, line)
			default:
				first[key.Value] = key.Line
				visit(key.Value, value)
			}
		}
	}
}

// readScalar returns the text of one value.
func (f *File) readScalar(name string, node *yaml.Node) (value string, ok bool) {
	switch {
	case node.Kind != yaml.ScalarNode:
		f.Fault(positionOf(node), "%s is %s, want one value", name, yamlnode.Kind(node))
	case node.Style&yaml.TaggedStyle != 0:
		f.Fault(positionOf(node), "%s has the tag %s, want a value without a tag", name, node.Tag)
	case isNull(node):
		f.Fault(positionOf(node), `%s has no value; "" is an empty one`, name)
	default:
		return node.Value, true
	}
	return "", false
}

// isNull reports whether nothing is written where a value could be.
func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" && node.Style&yaml.TaggedStyle == 0
}

func positionOf(node *yaml.Node) Position { return Position{node.Line, node.Column} }

// keyName returns how a key is shown in a fault.
func keyName(key *yaml.Node) string {
	if key.Kind != yaml.ScalarNode {
		return yamlnode.Kind(key)
	}
	return quote(key.Value)
}

// joinNames returns "a, b or c".
func joinNames(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
