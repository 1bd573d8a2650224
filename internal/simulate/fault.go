package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFaults are shown of one file.
const maxFaults = 50

// A fault is something in the file that cannot be, and where.
type fault struct {
	line, column int
	text         string
}

// A reader takes a file apart and notes its faults.
type reader struct {
	faults []fault
}

// fault notes that something cannot be. The text begins with its subject.
func (r *reader) fault(node *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fault{max(node.Line, 1), max(node.Column, 1), fmt.Sprintf(format, args...)})
}

// err tells all faults in the order of the file.
func (r *reader) err(name string) error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b fault) int {
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
	var text strings.Builder
	for i, fault := range r.faults {
		if i == maxFaults {
			fmt.Fprintf(&text, "and %d more\n", len(r.faults)-i)
			break
		}
		fmt.Fprintf(&text, "%s:%d:%d: %s\n", name, fault.line, fault.column, fault.text)
	}
	return errors.New(strings.TrimSuffix(text.String(), "\n"))
}

// fields say how the value of each key of a mapping is read.
type fields map[string]func(*yaml.Node)

// mapping reads a mapping: known keys only, none twice, and all that are required.
func (r *reader) mapping(node *yaml.Node, known fields, required ...string) {
	if node.Kind != yaml.MappingNode {
		r.fault(node, "%s here, want settings: %s", kindName(node), known.names())
		return
	}
	first := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		read := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || read == nil:
			r.fault(key, "%q is no setting here, want one of %s", key.Value, known.names())
		case first[key.Value] > 0:
			r.fault(key, "%s is set twice, first in line %d", key.Value, first[key.Value])
		default:
			first[key.Value] = key.Line
			read(value)
		}
	}
	for _, name := range required {
		if first[name] == 0 {
			r.fault(node, "%s is missing", name)
		}
	}
}

func (f fields) names() string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// list reads the items of a list.
func (r *reader) list(read func(*yaml.Node)) func(*yaml.Node) {
	return func(node *yaml.Node) {
		if node.Kind != yaml.SequenceNode {
			r.fault(node, "%s here, want a list", kindName(node))
			return
		}
		for _, item := range node.Content {
			read(item)
		}
	}
}

// kindName is what a node is, in a sentence.
func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which is not known here"
	default:
		return fmt.Sprintf("the single value %q", node.Value)
	}
}
