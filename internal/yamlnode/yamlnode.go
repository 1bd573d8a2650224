// Package yamlnode reads YAML files as nodes, and collects what is wrong with them, with its place.
package yamlnode

import "go.yaml.in/yaml/v4"

// Kind describes what a node is, such as "a list".
func Kind(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which is not known here"
	default:
		return "a single value"
	}
}
