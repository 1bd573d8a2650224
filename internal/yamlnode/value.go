package yamlnode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// addf adds a fault. The text begins with its subject.
func (f *FileFaults) addf(at Position, format string, args ...any) {
	f.Add(at, fmt.Sprintf(format, args...))
}

// Pairs iterates over the keys and values of a mapping whose keys are among names, each once. of says whose
// they are.
func (f *FileFaults) Pairs(node *yaml.Node, names []string, of string) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			f.addf(At(node), "%s here, want settings such as %s: …", Kind(node), names[0])
			return
		}
		// The line of each key; the library does not complain about keys that come twice.
		first := make(map[string]int)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			line := first[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || !slices.Contains(names, key.Value):
				f.addf(At(key), "%s is no setting%s, want %s", KeyName(key), of, wanted(names))
			case line > 0:
				f.addf(At(key), "%s is set twice, first in line %d", key.Value, line)
			default:
				first[key.Value] = key.Line
				visit(key.Value, value)
			}
		}
	}
}

// wanted says which of some names are wanted.
func wanted(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + JoinNames(names)
}

// Scalar returns the text of one value.
func (f *FileFaults) Scalar(name string, node *yaml.Node) (value string, ok bool) {
	switch {
	case node.Kind != yaml.ScalarNode:
		f.addf(At(node), "%s is %s, want one value", name, Kind(node))
	// A tag may mean another type than the text shows, such as !!binary.
	case node.Style&yaml.TaggedStyle != 0:
		f.addf(At(node), "%s has the tag %s, want a value without a tag", name, node.Tag)
	case IsNull(node):
		f.addf(At(node), `%s has no value; "" is an empty one`, name)
	default:
		return node.Value, true
	}
	return "", false
}

// IsNull reports whether nothing is written where a value could be.
func IsNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" && node.Style&yaml.TaggedStyle == 0
}

// KeyName returns how a key is shown in a fault.
func KeyName(key *yaml.Node) string {
	if key.Kind != yaml.ScalarNode {
		return Kind(key)
	}
	return Quote(key.Value)
}

// JoinNames returns "a, b or c".
func JoinNames(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// MaxQuoted is how much of a wrong value is shown, in bytes.
const MaxQuoted = 64

// Quote quotes a value of the file, but not the whole of a long one.
func Quote(text string) string {
	text = WithoutPasswords(text)
	if len(text) <= MaxQuoted {
		return strconv.Quote(text)
	}
	text = text[:MaxQuoted]
	// Do not cut a rune in two, but do not search through a text that is not UTF-8 at all.
	for !utf8.ValidString(text) && len(text) > MaxQuoted-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return strconv.Quote(text) + "…"
}
