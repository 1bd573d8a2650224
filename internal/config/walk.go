package config

import (
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

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
			f.readListeners(value)
		case rulesKey:
			f.readRules(value)
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
