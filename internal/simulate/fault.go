package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// maxFaults is how many faults of one file are shown.
const maxFaults = 50

// A scenarioFault is an error in the file, and where it is.
type scenarioFault struct {
	line, column int
	text         string
}

// A scenarioReader reads a file and collects its faults.
type scenarioReader struct {
	faults []scenarioFault
}

// addFault adds a fault at a node. The text begins with its subject.
func (r *scenarioReader) addFault(node *yaml.Node, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.faults = append(r.faults, scenarioFault{max(node.Line, 1), max(node.Column, 1), text})
}

// joinFaults returns all faults in the order of the file as one error, nil if there are none.
func (r *scenarioReader) joinFaults(name string) error {
	if len(r.faults) == 0 {
		return nil
	}
	// Faults were found in the order of the checks, not of the file.
	slices.SortStableFunc(r.faults, func(a, b scenarioFault) int {
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
	var text strings.Builder
	for i, fault := range r.faults {
		// A file of another format would have a fault in each line.
		if i == maxFaults {
			fmt.Fprintf(&text, "and %d more\n", len(r.faults)-i)
			break
		}
		fmt.Fprintf(&text, "%s:%d:%d: %s\n", name, fault.line, fault.column, fault.text)
	}
	return errors.New(strings.TrimSuffix(text.String(), "\n"))
}

// describe says what a node is, with its text if it has one: a scenario has no secrets.
func describe(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode {
		return fmt.Sprintf("the single value %q", node.Value)
	}
	return yamlnode.Kind(node)
}

// fieldReaders has a function for each key of a mapping, which reads its value.
type fieldReaders map[string]func(*yaml.Node)

// readMapping reads a mapping. Its keys must be known, none may come twice, and the required ones must be
// there.
func (r *scenarioReader) readMapping(node *yaml.Node, known fieldReaders, required ...string) {
	if node.Kind != yaml.MappingNode {
		r.addFault(node, "%s here, want settings: %s", describe(node), known.sortedNames())
		return
	}
	// The line of each key that was read; 0 for the others.
	first := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		read := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || read == nil:
			r.addFault(key, "%q is no setting here, want one of %s", key.Value, known.sortedNames())
		case first[key.Value] > 0:
			r.addFault(key, "%s is set twice, first in line %d", key.Value, first[key.Value])
		default:
			first[key.Value] = key.Line
			read(value)
		}
	}
	for _, name := range required {
		if first[name] == 0 {
			r.addFault(node, "%s is missing", name)
		}
	}
}

func (f fieldReaders) sortedNames() string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// readList returns a function that reads the items of a list.
func (r *scenarioReader) readList(read func(*yaml.Node)) func(*yaml.Node) {
	return func(node *yaml.Node) {
		if node.Kind != yaml.SequenceNode {
			r.addFault(node, "%s here, want a list", describe(node))
			return
		}
		for _, item := range node.Content {
			read(item)
		}
	}
}
