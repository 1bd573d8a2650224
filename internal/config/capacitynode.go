package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The limits of what aliases may unfold to. No sensible file needs a hundredth of them.
const (
	maxSteps  = 1_000_000 // keys that are read
	maxMerges = 16        // mappings that are merged into each other
)

// mergeKey stands for the keys of another mapping.
const mergeKey = "<<"

// pairsOf iterates over the keys and values of a mapping whose keys are among names, in upper or lower case,
// each once. Those of merged mappings come after its own. Keys without a value are treated as missing.
func (c *capacityFile) pairsOf(
	node *yaml.Node, names []string, of string,
) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			c.Fault(yamlnode.At(node), "%s is %s, want a mapping with %s: …",
				of, yamlnode.Kind(node), names[0])
			return
		}
		seen := make(map[string]bool)
		// The mapping itself comes first, so its own keys win.
		for _, mapping := range c.withMerged(node, 0) {
			for name, value := range c.ownPairs(mapping, names, of) {
				value = resolveAlias(value)
				// A key of the mapping itself overrides the same key of a merged one, even with null.
				before := seen[name]
				seen[name] = true
				if !before && !yamlnode.IsNull(value) && !visit(name, value) {
					return
				}
			}
		}
	}
}

// ownPairs iterates over the keys and values of this mapping alone.
func (c *capacityFile) ownPairs(
	node *yaml.Node, names []string, of string,
) func(func(string, *yaml.Node) bool) {
	return func(visit func(string, *yaml.Node) bool) {
		first := make(map[string]int)
		for i := 0; i+1 < len(node.Content) && c.countStep(node); i += 2 {
			key, value := resolveAlias(node.Content[i]), node.Content[i+1]
			// Merge keys are the business of withMerged.
			if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
				continue
			}
			// Keys are accepted in any case, so two that differ in case alone are the same key twice.
			name := strings.ToLower(key.Value)
			line := first[name]
			switch {
			case key.Kind != yaml.ScalarNode || !slices.Contains(names, name):
				c.Fault(yamlnode.At(key), "%s is no key of %s, want %s", yamlnode.KeyName(key), of,
					oneOf(names))
			case line > 0:
				c.Fault(yamlnode.At(key), "%s is set twice, first in line %d", name, line)
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
	return "one of " + yamlnode.JoinNames(names)
}

// withMerged returns the mapping and those it merges, the first of which wins.
func (c *capacityFile) withMerged(node *yaml.Node, depth int) []*yaml.Node {
	all := []*yaml.Node{node}
	for i := 0; i+1 < len(node.Content) && c.countStep(node); i += 2 {
		key, value := node.Content[i], resolveAlias(node.Content[i+1])
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!merge" {
			continue
		}
		// YAML allows one mapping or a list of them.
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, source := range sources {
			all = append(all, c.mergedFrom(key, resolveAlias(source), depth)...)
		}
	}
	return all
}

// mergedFrom returns what a merge key adds.
func (c *capacityFile) mergedFrom(key, source *yaml.Node, depth int) []*yaml.Node {
	switch {
	case source.Kind != yaml.MappingNode:
		c.Fault(yamlnode.At(key), "%s is %s, want a mapping, or a list of them",
			mergeKey, yamlnode.Kind(source))
	case depth == maxMerges:
		c.Fault(yamlnode.At(key), "%s merges mappings more than %d deep", mergeKey, maxMerges)
	default:
		return c.withMerged(source, depth+1)
	}
	return nil
}

// countStep counts what is read, and reports false when that is too much: a few aliases of aliases can unfold
// to billions of keys.
func (c *capacityFile) countStep(node *yaml.Node) bool {
	c.steps++
	if c.steps <= maxSteps {
		return true
	}
	// Reported once, and not for each key that follows.
	if c.steps == maxSteps+1 {
		c.Fault(yamlnode.At(node), "aliases unfold to more than %d keys", maxSteps)
	}
	return false
}

// resolveAlias returns the node an alias stands for. That may contain the alias, so a caller that descends
// must count.
func resolveAlias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

// textTags are the types YAML may see in a text without quotes.
var textTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// scalarOf returns the text of one value.
func (c *capacityFile) scalarOf(name string, node *yaml.Node, want string) (text string, ok bool) {
	switch {
	case node.Kind != yaml.ScalarNode:
		c.Fault(yamlnode.At(node), "%s is %s, want %s", name, yamlnode.Kind(node), want)
	case !slices.Contains(textTags, node.ShortTag()):
		c.Fault(yamlnode.At(node), "%s has the tag %s, want %s", name, quote(node.Tag), want)
	default:
		return node.Value, true
	}
	return "", false
}

// readText reads a text, with or without quotes.
func (c *capacityFile) readText(name string, node *yaml.Node) (string, bool) {
	return c.scalarOf(name, node, "a text")
}

// readNumber reads a number.
func (c *capacityFile) readNumber(name string, node *yaml.Node) (float64, bool) {
	text, ok := c.scalarOf(name, node, "a number")
	if !ok {
		return 0, false
	}
	n, ok := parseNumber(node, text)
	if !ok {
		c.Fault(yamlnode.At(node), "%s is %s, want a number", name, showNumber(node))
	}
	return n, ok
}

// decimal is how numbers are written. Some readers of YAML take 010 for eight and others for ten, so nothing
// may begin with a zero except 0 itself and fractions.
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][\d_]*)?(\.\d*)?([eE][-+]?\d+)?$`)

// parseNumber parses a number that is not in quotes.
func parseNumber(node *yaml.Node, text string) (float64, bool) {
	if tag := node.ShortTag(); tag != "!!int" && tag != "!!float" || !decimal.MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return n, err == nil
}

// showNumber returns a wrong number as it is written, for a fault: in quotes if it was.
func showNumber(node *yaml.Node) string {
	if node.Style&^yaml.TaggedStyle == 0 && len(node.Value) <= yamlnode.MaxQuoted {
		return node.Value
	}
	return quote(node.Value)
}
