package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The keys of a capacity configuration, as doorman has them.
var (
	topKeys       = []string{"resources"}
	templateKeys  = []string{"identifier_glob", "capacity", "safe_capacity", "description", "algorithm"}
	algorithmKeys = []string{
		"kind", "lease_length", "refresh_interval", "learning_mode_duration", "parameters",
	}
	parameterKeys = []string{"name", "value"}
)

// needed lists the keys that each template, or its algorithm, must have, and what is wanted there.
var needed = []struct{ field, want string }{
	{"identifier_glob", "a resource's name, or a pattern such as db-*"},
	{"capacity", "a number from 0 on"},
	{"algorithm", "how the resource is shared: kind, lease_length and refresh_interval"},
	{"algorithm.lease_length", "whole seconds, at least 1"},
	{"algorithm.refresh_interval", "whole seconds, at least 1"},
}

// ParseCapacity reads templates from a text in doorman's format. They are valid if there is no error; an
// error lists all faults by line and column, one in a line.
func ParseCapacity(text []byte) (capacity.Templates, error) {
	return parseCapacity("", text)
}

// parseCapacity is ParseCapacity of a text that has a name, which begins the lines of its error.
func parseCapacity(name string, text []byte) (capacity.Templates, error) {
	c := capacityFile{File: File{Path: name}}
	if len(text) > MaxSize {
		c.Fault(yamlnode.Position{}, "the text has %d bytes, want at most %d", len(text), MaxSize)
		return nil, c.Err()
	}
	if node := c.faults.ParseDocument(text); node != nil {
		c.readTop(node)
	}
	// If the text is no list of templates at all, its faults would only be followed by "no template".
	if c.faults.Len() == 0 || len(c.positions) > 0 {
		c.checkValues()
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return c.templates, nil
}

// A capacityFile is a text of templates that is being read.
type capacityFile struct {
	File
	steps     int               // how many keys were looked at
	listAt    yamlnode.Position // of the templates
	templates capacity.Templates
	positions []fieldPositions // of the templates
}

// fieldPositions says where the fields of a template are.
type fieldPositions struct {
	at      yamlnode.Position
	byField map[string]yamlnode.Position
	// faulty are the fields that have a fault already. Their values are zero, and must not be checked.
	faulty map[string]bool
}

// find returns where a field is, or else the innermost part around it that is there.
func (p *fieldPositions) find(field string) yamlnode.Position {
	for {
		if at, ok := p.byField[field]; ok {
			return at
		}
		// A field that is not in the file is shown where the one around it is.
		dot := strings.LastIndexByte(field, '.')
		if dot < 0 {
			return p.at
		}
		field = field[:dot]
	}
}

// readTop reads the whole document.
func (c *capacityFile) readTop(node *yaml.Node) {
	if yamlnode.IsNull(node) {
		return // comments alone
	}
	for _, value := range c.pairsOf(node, topKeys, "the configuration") {
		// Package capacity has faults of the list as a whole, which are shown here.
		c.listAt = yamlnode.At(value)
		if value.Kind != yaml.SequenceNode {
			c.Fault(yamlnode.At(value), "resources is %s, want a list of templates", yamlnode.Kind(value))
			return
		}
		// Refused before any is read: each takes time and memory.
		if n := len(value.Content); n > capacity.MaxTemplates {
			c.Fault(yamlnode.At(value), "resources are %d, want at most %d", n, capacity.MaxTemplates)
			return
		}
		for _, entry := range value.Content {
			c.readTemplate(entry)
		}
	}
}

// checkValues adds the faults that package capacity finds in the values.
func (c *capacityFile) checkValues() {
	for _, f := range c.templates.Faults() {
		// A fault of the list as a whole is shown at its beginning. A field that could not be read has its
		// fault already, and its zero value would only add a wrong one.
		switch {
		case f.Index < 0:
			c.Fault(c.listAt, "%s", f.Text)
		case !c.positions[f.Index].faulty[f.Field]:
			c.Fault(c.positions[f.Index].find(f.Field), "%s", f.Text)
		}
	}
}

// readTemplate reads one template, and appends it even if it has faults: later faults are found by its index.
func (c *capacityFile) readTemplate(node *yaml.Node) {
	node = resolveAlias(node)
	// Positions are kept beside the template, because most faults are only found when all templates are read.
	t := capacity.Template{}
	p := fieldPositions{yamlnode.At(node), make(map[string]yamlnode.Position), make(map[string]bool)}
	for name, value := range c.pairsOf(node, templateKeys, "a template") {
		p.byField[name] = yamlnode.At(value)
		ok := true
		switch name {
		case "identifier_glob":
			t.Glob, ok = c.readText(name, value)
		case "capacity":
			t.Capacity, ok = c.readNumber(name, value)
		// A pointer, since 0 and "not given" differ.
		case "safe_capacity":
			var safe float64
			safe, ok = c.readNumber(name, value)
			if ok {
				t.Safe = &safe
			}
		case "description":
			t.Description, ok = c.readText(name, value)
		case "algorithm":
			ok = value.Kind == yaml.MappingNode
			c.readAlgorithm(&t.Algorithm, value, &p)
		}
		// The value of such a field is zero, so what package capacity says about it is dropped later.
		p.faulty[name] = !ok
	}
	// Missing keys are reported once: not for something that is no mapping, and not inside an algorithm that
	// could not be read.
	whole := node.Kind == yaml.MappingNode
	for _, need := range needed {
		above, key, inside := strings.Cut(need.field, ".")
		_, given := p.byField[need.field]
		if given {
			continue
		}
		p.faulty[need.field] = true
		switch {
		case !whole:
		case !inside:
			c.Fault(p.at, "the template %shas no %s, want %s", subjectOf(t.Glob), above, need.want)
		case !p.faulty[above]:
			c.Fault(p.find(above), "the algorithm has no %s, want %s", key, need.want)
		}
	}
	c.templates = append(c.templates, t)
	c.positions = append(c.positions, p)
}

// subjectOf returns a template's name, to be put in front of a verb.
func subjectOf(glob string) string {
	if glob == "" {
		return ""
	}
	return quote(glob) + " "
}

func (c *capacityFile) readAlgorithm(a *capacity.Algorithm, node *yaml.Node, p *fieldPositions) {
	for name, value := range c.pairsOf(node, algorithmKeys, "an algorithm") {
		// The names of fields are those that package capacity uses in its faults.
		field := "algorithm." + name
		p.byField[field] = yamlnode.At(value)
		ok := true
		switch name {
		case "kind":
			a.Kind, ok = c.readKind(value)
		case "lease_length":
			a.LeaseLength, ok = c.readSeconds(name, value)
		case "refresh_interval":
			a.RefreshInterval, ok = c.readSeconds(name, value)
		case "learning_mode_duration":
			var learning time.Duration
			learning, ok = c.readSeconds(name, value)
			if ok {
				a.Learning = &learning
			}
		case "parameters":
			c.readParameters(a, value, p)
		}
		// Its zero value must not be checked: that would be a second, wrong fault.
		p.faulty[field] = !ok
	}
}

// readKind reads the name of an algorithm, or its number.
func (c *capacityFile) readKind(node *yaml.Node) (capacity.AlgorithmKind, bool) {
	text, ok := c.scalarOf("kind", node, "a name such as FAIR_SHARE")
	if !ok {
		return 0, false
	}
	kind, err := capacity.ParseKind(text)
	// doorman's files are those of protocol buffers, in which an enumeration may be given by number.
	if node.ShortTag() == "!!int" {
		// ParseKind decides which numbers exist, so that a new kind needs no change here.
		n, bad := strconv.ParseUint(text, 10, 8)
		kind, err = capacity.AlgorithmKind(n), nil
		if bad == nil {
			_, err = capacity.ParseKind(kind.String())
		}
		if bad != nil || err != nil {
			c.Fault(yamlnode.At(node), "kind is number %s, want 0 to %d, or a name such as %s",
				node.Value, capacity.FairShare, capacity.FairShare)
			return 0, false
		}
	}
	if err != nil {
		c.Fault(yamlnode.At(node), "%v", err)
	}
	return kind, err == nil
}

func (c *capacityFile) readParameters(a *capacity.Algorithm, node *yaml.Node, p *fieldPositions) {
	if node.Kind != yaml.SequenceNode {
		c.Fault(yamlnode.At(node), "parameters is %s, want a list such as [{name: priority, value: strict}]",
			yamlnode.Kind(node))
		return
	}
	for i, entry := range node.Content {
		field := "algorithm.parameters[" + strconv.Itoa(i) + "]"
		// Entries of a list may be aliases, which pairsOf sees through in mappings alone.
		entry = resolveAlias(entry)
		p.byField[field] = yamlnode.At(entry)
		// For something that is no mapping, "name is missing" would only repeat the fault.
		p.faulty[field+".name"] = entry.Kind != yaml.MappingNode
		var parameter capacity.AlgorithmParameter
		for name, value := range c.pairsOf(entry, parameterKeys, "a parameter") {
			text, ok := c.readText(name, value)
			if name == "name" {
				parameter.Name = text
			} else {
				parameter.Value = text
			}
			p.byField[field+"."+name], p.faulty[field+"."+name] = yamlnode.At(value), !ok
		}
		a.Parameters = append(a.Parameters, parameter)
	}
}

// readSeconds reads a time. It refuses what a time.Duration cannot hold, and leaves all other rules to the
// templates.
func (c *capacityFile) readSeconds(name string, node *yaml.Node) (time.Duration, bool) {
	const wanted = "whole seconds such as 60"
	text, ok := c.scalarOf(name, node, wanted)
	if !ok {
		return 0, false
	}
	// 60.0 and 6e1 are whole seconds, too.
	n, ok := parseNumber(node, text)
	if !ok || n != float64(int64(n)) {
		c.Fault(yamlnode.At(node), "%s is %s, want %s", name, showNumber(node), wanted)
		return 0, false
	}
	// Checked before the conversion, which would overflow.
	const most = float64(gatehouse.MaxDuration / time.Second)
	if n < -most || n > most {
		c.Fault(yamlnode.At(node), "%s is %s, want at most %.0f, a hundred years",
			name, showNumber(node), most)
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}
