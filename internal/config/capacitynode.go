package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What aliases may unfold to. No file that is meant needs a hundredth of it.
const (
	maxSteps  = 1_000_000 // keys that are looked at
	maxMerges = 16        // mappings that are merged into each other
)

// mergeKey stands for the keys of another mapping.
const mergeKey = "<<"

// pairs visits the keys and values of a mapping: those that are among names, in whatever case, each once,
// and those of merged mappings behind them. Keys without a value are as if they were not there.
func (c *capacityFile) pairs(node *yaml.Node, names []string, of string) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			c.Fault(at(node), "%s is %s, want a mapping with %s: …", of, kindName(node), names[0])
			return
		}
		seen := make(map[string]bool)
		for _, mapping := range c.merged(node, 0) {
			for name, value := range c.keys(mapping, names, of) {
				value = unalias(value)
				before := seen[name]
				seen[name] = true
				if !before && !isNull(value) && !visit(name, value) {
					return
				}
			}
		}
	}
}

// keys visits the keys and values of this mapping alone.
func (c *capacityFile) keys(node *yaml.Node, names []string, of string) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		first := make(map[string]int)
		for i := 0; i+1 < len(node.Content) && c.step(node); i += 2 {
			key, value := unalias(node.Content[i]), node.Content[i+1]
			if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
				continue
			}
			name := strings.ToLower(key.Value)
			line := first[name]
			switch {
			case key.Kind != yaml.ScalarNode || !slices.Contains(names, name):
				c.Fault(at(key), "%s is no key of %s, want %s", keyName(key), of, oneOf(names))
			case line > 0:
				c.Fault(at(key), "%s is set twice, first in line %d", name, line)
			default:
				first[name] = key.Line
				if !visit(name, value) {
					return
				}
			}
		}
	}
}

// oneOf is "a", or "one of a, b or c".
func oneOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + list(names)
}

// merged is the mapping and those it merges, the first of which wins.
func (c *capacityFile) merged(node *yaml.Node, depth int) []*yaml.Node {
	all := []*yaml.Node{node}
	for i := 0; i+1 < len(node.Content) && c.step(node); i += 2 {
		key, value := node.Content[i], unalias(node.Content[i+1])
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!merge" {
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, source := range sources {
			all = append(all, c.merge(key, unalias(source), depth)...)
		}
	}
	return all
}

// merge is what a merge key adds.
func (c *capacityFile) merge(key, source *yaml.Node, depth int) []*yaml.Node {
	switch {
	case source.Kind != yaml.MappingNode:
		c.Fault(at(key), "%s is %s, want a mapping, or a list of them", mergeKey, kindName(source))
	case depth == maxMerges:
		c.Fault(at(key), "%s merges mappings more than %d deep", mergeKey, maxMerges)
	default:
		return c.merged(source, depth+1)
	}
	return nil
}

// step counts what is looked at, and reports false when that is too much.
func (c *capacityFile) step(node *yaml.Node) bool {
	c.steps++
	if c.steps <= maxSteps {
		return true
	}
	if c.steps == maxSteps+1 {
		c.Fault(at(node), "aliases unfold to more than %d keys", maxSteps)
	}
	return false
}

// unalias is the node an alias stands for. It may contain the alias: whoever goes down counts.
func unalias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

// textTags are what a text may look like when nobody wrote quotes around it.
var textTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// scalarOf is the text of one value.
func (c *capacityFile) scalarOf(name string, node *yaml.Node, want string) (text string, ok bool) {
	switch {
	case node.Kind != yaml.ScalarNode:
		c.Fault(at(node), "%s is %s, want %s", name, kindName(node), want)
	case !slices.Contains(textTags, node.ShortTag()):
		c.Fault(at(node), "%s has the tag %s, want %s", name, quote(node.Tag), want)
	default:
		return node.Value, true
	}
	return "", false
}

// text reads a text, with or without quotes.
func (c *capacityFile) text(name string, node *yaml.Node) (string, bool) {
	return c.scalarOf(name, node, "a text")
}

// number reads a number.
func (c *capacityFile) number(name string, node *yaml.Node) (float64, bool) {
	text, ok := c.scalarOf(name, node, "a number")
	if !ok {
		return 0, false
	}
	n, ok := parseNumber(node, text)
	if !ok {
		c.Fault(at(node), "%s is %s, want a number", name, shown(node))
	}
	return n, ok
}

// decimal is how numbers are written. Some readers of YAML take 010 for eight and others for ten, so
// nothing begins with a zero but 0 itself and fractions.
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][\d_]*)?(\.\d*)?([eE][-+]?\d+)?$`)

// parseNumber reads a number that is not in quotes.
func parseNumber(node *yaml.Node, text string) (float64, bool) {
	if tag := node.ShortTag(); tag != "!!int" && tag != "!!float" || !decimal.MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return n, err == nil
}

// shown is a wrong number in a fault, as it is written: in quotes if it was.
func shown(node *yaml.Node) string {
	if node.Style&^yaml.TaggedStyle == 0 && len(node.Value) <= maxQuoted {
		return node.Value
	}
	return quote(node.Value)
}
