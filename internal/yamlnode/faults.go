package yamlnode

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Position is a place in a file, from line 1 and column 1 on.
type Position struct{ Line, Column int }

// At returns where a node is.
func At(node *yaml.Node) Position { return Position{node.Line, node.Column} }

// FileFaults are what is wrong with one file. The zero FileFaults are none.
type FileFaults struct {
	list     []placedFault
	reported map[placedFault]bool // the same
}

// A placedFault is an error in a file, and where it is.
type placedFault struct {
	at   Position
	text string
}

// maxFaults is how many faults of one file are shown: a file of another format would have one in each line.
const maxFaults = 50

// Add adds a fault, unless it is there already: a block to which aliases refer is read several times. The
// text begins with its subject. What has no place is shown at the beginning of the file.
func (f *FileFaults) Add(at Position, text string) {
	fault := placedFault{Position{max(at.Line, 1), max(at.Column, 1)}, WithoutPasswords(text)}
	if f.reported == nil {
		f.reported = make(map[placedFault]bool)
	}
	if !f.reported[fault] {
		f.reported[fault] = true
		f.list = append(f.list, fault)
	}
}

// userinfo matches what stands before the host in an address with a scheme. In a value that was cut short,
// the host may be missing.
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s@/]*:[^\s@]*(@|…|$)`)

// WithoutPasswords returns a text without what stands before a host in the addresses that it quotes.
func WithoutPasswords(text string) string { return userinfo.ReplaceAllString(text, "${1}…${2}") }

// Len returns how many there are.
func (f *FileFaults) Len() int { return len(f.list) }

// Err returns an error with all faults in the order of the file, nil if there are none. path is the file's;
// it may be empty.
func (f *FileFaults) Err(path string) error {
	if len(f.list) == 0 {
		return nil
	}
	// Faults were found in the order of the checks, not of the file.
	slices.SortStableFunc(f.list, func(a, b placedFault) int {
		return cmp.Or(cmp.Compare(a.at.Line, b.at.Line), cmp.Compare(a.at.Column, b.at.Column))
	})
	var text strings.Builder
	if len(f.list) > 1 {
		fmt.Fprintf(&text, "%s has %d faults:\n", cmp.Or(path, "the text"), len(f.list))
	}
	// Each line begins with path:line:column, which editors and terminals turn into links.
	if path != "" {
		path += ":"
	}
	for i, fault := range f.list {
		// Those that are not shown are counted, so that the fiftieth is not taken for the last.
		if i == maxFaults {
			fmt.Fprintf(&text, "and %d more\n", len(f.list)-i)
			break
		}
		fmt.Fprintf(&text, "%s%d:%d: %s\n", path, fault.at.Line, fault.at.Column, fault.text)
	}
	return errors.New(strings.TrimSuffix(text.String(), "\n"))
}

// ParseDocument returns the one document of a text. It is nil if there is none, or after a fault.
func (f *FileFaults) ParseDocument(text []byte) *yaml.Node {
	// A key that comes twice is found by the callers, which report it with all other faults.
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithV4Defaults(), yaml.WithUniqueKeys(false))
	if err != nil {
		panic(err) // the options are ours
	}
	var document, second yaml.Node
	// A second document would be ignored silently otherwise.
	if f.loadDocument(loader, &document) && f.loadDocument(loader, &second) {
		f.Add(At(&second), "a second document begins here, want one")
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
func (f *FileFaults) loadDocument(loader *yaml.Loader, document *yaml.Node) bool {
	err := loader.Load(document)
	if err == nil || errors.Is(err, io.EOF) {
		return err == nil
	}
	at, text := Position{}, err.Error()
	if failure, ok := errors.AsType[*yaml.LoadError](err); ok {
		at = Position{failure.Mark.Line, failure.Mark.Column}
		text = "not YAML: " + failure.Message
		// The glob "*" without quotes is an alias in YAML, and the most likely mistake in these files.
		if failure.ContextMsg == scanningAlias || strings.HasPrefix(failure.Message, "unknown anchor") {
			text += `; a text that begins with a star needs quotes: "*"`
		}
	}
	f.Add(at, text)
	return false
}
