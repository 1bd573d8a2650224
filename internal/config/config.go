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

// Fault adds a fault. The text begins with its subject.
func (f *File) Fault(at Position, format string, args ...any) {
	f.faults = append(f.faults, fileFault{at, withoutPasswords(fmt.Sprintf(format, args...))})
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
		if a.at.Line != b.at.Line {
			return a.at.Line - b.at.Line
		}
		return a.at.Column - b.at.Column
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
