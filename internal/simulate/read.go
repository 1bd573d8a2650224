package simulate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// The defaults of optional settings. The timeouts are those of the real clients.
const (
	defaultSample         = 5 * time.Second
	defaultRecoveredShare = 0.95
	defaultTakeoverTime   = 10 * time.Second // a crash until the lock has run out and another is elected
	defaultTimeout        = 5 * time.Second
	defaultMinRefresh     = 5 * time.Second
	defaultTasks          = 3
)

// Read reads a scenario. name is the file's name, and stands before each fault.
func Read(name string, text []byte) (*Scenario, error) {
	base := filepath.Base(name)
	s := &Scenario{
		Name:           strings.TrimSuffix(base, filepath.Ext(base)),
		sampleEvery:    defaultSample,
		recoveredShare: defaultRecoveredShare,
		takeoverTime:   defaultTakeoverTime,
		network:        networkModel{timeout: defaultTimeout},
		oneName:        true,
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s has %d bytes, want a scenario of at most %d", name, len(text), MaxSize)
	}
	var r scenarioReader
	node := r.faults.ParseDocument(text)
	switch {
	case node != nil:
		r.readScenario(node, s)
	case r.faults.Len() == 0:
		r.faults.Add(yamlnode.Position{}, "nothing here, want a scenario")
	}
	// The checks across settings assume that each setting was read.
	if r.faults.Len() == 0 {
		r.checkScenario(node, s)
	}
	if err := r.faults.Err(name); err != nil {
		return nil, err
	}
	return s, nil
}

// A scenarioReader reads a file and collects its faults.
type scenarioReader struct{ faults yamlnode.FileFaults }

func (r *scenarioReader) readScenario(node *yaml.Node, s *Scenario) {
	r.readMapping(node, fieldReaders{
		"title":    readValue(r, &s.Title, parseText),
		"duration": readValue(r, &s.duration, parsePositiveTime),
		"sample":   readValue(r, &s.sampleEvery, parsePositiveTime),
		"measure":  readValue(r, &s.measureFrom, parseTime),
		"settled":  readValue(r, &s.recoveredShare, parseChance),
		"takes":    readValue(r, &s.takeoverTime, parseTime),
		"one_name": readValue(r, &s.oneName, parseBool),
		"resource": func(n *yaml.Node) { r.readResource(n, &s.resource) },
		"network":  func(n *yaml.Node) { r.readNetwork(n, &s.network) },
		"servers":  r.readList(func(n *yaml.Node) { r.readLevel(n, s) }),
		"clients":  r.readList(func(n *yaml.Node) { r.readGroup(n, s) }),
		"events":   r.readList(func(n *yaml.Node) { s.events = append(s.events, r.readEvent(n)) }),
		"mishaps":  func(n *yaml.Node) { r.readRandomEvents(n, &s.randomEvents) },
		"expect":   r.readList(func(n *yaml.Node) { r.readExpectation(n, s) }),
	}, "title", "duration", "resource", "servers", "clients")
}

// readResource reads a template, in the words of a server's configuration.
func (r *scenarioReader) readResource(node *yaml.Node, t *capacity.Template) {
	t.Glob = "*"
	// Pointers are set only if the key is there: nil stands for a setting that was left out.
	safe := func(n *yaml.Node) {
		t.Safe = new(float64)
		readValue(r, t.Safe, parseSafe)(n)
	}
	r.readMapping(node, fieldReaders{
		"capacity":      readValue(r, &t.Capacity, parseNumber),
		"safe_capacity": safe,
		"algorithm":     func(n *yaml.Node) { r.readAlgorithm(n, &t.Algorithm) },
	}, "capacity", "algorithm")
}

func (r *scenarioReader) readAlgorithm(node *yaml.Node, a *capacity.Algorithm) {
	// As safe_capacity: nil means that the setting was left out.
	learning := func(n *yaml.Node) {
		a.Learning = new(time.Duration)
		readValue(r, a.Learning, parseSeconds(0))(n)
	}
	parameter := func(n *yaml.Node) {
		var p capacity.AlgorithmParameter
		r.readMapping(n, fieldReaders{
			"name": readValue(r, &p.Name, parseText), "value": readValue(r, &p.Value, parseText),
		}, "name", "value")
		a.Parameters = append(a.Parameters, p)
	}
	r.readMapping(node, fieldReaders{
		"kind":                   readValue(r, &a.Kind, capacity.ParseKind),
		"lease_length":           readValue(r, &a.LeaseLength, parseSeconds(1)),
		"refresh_interval":       readValue(r, &a.RefreshInterval, parseSeconds(1)),
		"learning_mode_duration": learning,
		"parameters":             r.readList(parameter),
	}, "kind", "lease_length", "refresh_interval")
	// Such clients would lose their lease before each refresh.
	if a.LeaseLength < a.RefreshInterval {
		r.addFault(node, "lease_length is %v, want at least the refresh_interval of %v",
			a.LeaseLength, a.RefreshInterval)
	}
}

func (r *scenarioReader) readNetwork(node *yaml.Node, n *networkModel) {
	r.readMapping(node, fieldReaders{
		"delay":   readValue(r, &n.delay, parseSpan),
		"loss":    readValue(r, &n.loss, parseChance),
		"timeout": readValue(r, &n.timeout, parsePositiveTime),
		"skew":    readValue(r, &n.skew, parseTime),
	})
	// Otherwise every call might fail, and the run would show nothing but that.
	if n.delay.most >= n.timeout {
		r.addFault(node, "delay is up to %v, want less than the timeout of %v", n.delay.most, n.timeout)
	}
}

func (r *scenarioReader) readLevel(node *yaml.Node, s *Scenario) {
	l := serverLevel{count: 1, tasks: defaultTasks}
	r.readMapping(node, fieldReaders{
		"name":  readValue(r, &l.name, parseText),
		"count": readValue(r, &l.count, parseCount(MaxServers)),
		"tasks": readValue(r, &l.tasks, parseCount(maxTasks)),
	}, "name")
	s.levels = append(s.levels, l)
}

func (r *scenarioReader) readGroup(node *yaml.Node, s *Scenario) {
	g := clientGroup{minRefresh: defaultMinRefresh, position: len(s.groups)}
	r.readMapping(node, fieldReaders{
		"name":     readValue(r, &g.name, parseText),
		"of":       readValue(r, &g.of, parseText),
		"recipe":   readValue(r, &g.recipe, parseRecipe),
		"every":    readValue(r, &g.every, parsePositiveTime),
		"reset":    readValue(r, &g.reset, parsePositiveTime),
		"priority": readValue(r, &g.priority, parsePriority),
		"start":    readValue(r, &g.start, parseSpan),

		"minimum_refresh": readValue(r, &g.minRefresh, parsePositiveTime),
	}, "of", "recipe")
	if g.recipe.change != "" && g.every == 0 {
		r.addFault(node, "every is missing, want how often %s is done", g.recipe.change)
	}
	s.groups = append(s.groups, g)
}

func (r *scenarioReader) readRandomEvents(node *yaml.Node, m *randomEvents) {
	kind := func(n *yaml.Node) {
		h := r.readEvent(n)
		// All kinds are equally likely unless weights are given.
		if h.weight == 0 {
			h.weight = 1
		}
		m.kinds = append(m.kinds, h)
	}
	r.readMapping(node, fieldReaders{
		"from":  readValue(r, &m.from, parseTime),
		"every": readValue(r, &m.every, parsePositiveTime),
		"kinds": r.readList(kind),
	}, "every", "kinds")
	// The first comes after one interval, as all others do.
	if m.from == 0 {
		m.from = m.every
	}
}

// readEvent reads one event. A random event has a weight in place of a time.
func (r *scenarioReader) readEvent(node *yaml.Node) scheduledEvent {
	var h scheduledEvent
	// 0 is a value to change to, so that it was given must be noted.
	to := func(n *yaml.Node) {
		h.change.set = true
		readValue(r, &h.change.to, parseNumber)(n)
	}
	r.readMapping(node, fieldReaders{
		"at":      readValue(r, &h.at, parseTime),
		"do":      readValue(r, &h.kind, parseEventKind),
		"node":    readValue(r, &h.node, parseText),
		"clients": readValue(r, &h.clients, parseAmount),
		"to":      to,
		"add":     readValue(r, &h.change.add, parseNumber),
		"loss":    readValue(r, &h.loss, parseChance),
		"for":     readValue(r, &h.duration, parseSpan),
		"weight":  readValue(r, &h.weight, parseNumber),
	}, "do")
	return h
}

// addFault adds a fault at a node. The text begins with its subject.
func (r *scenarioReader) addFault(node *yaml.Node, format string, args ...any) {
	r.faults.Add(yamlnode.At(node), fmt.Sprintf(format, args...))
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
		r.addFault(node, "%s here, want settings: %s", describe(node), joinKeys(known))
		return
	}
	// The line of each key that was read; 0 for the others.
	first := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		read := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || read == nil:
			r.addFault(key, "%q is no setting here, want one of %s", key.Value, joinKeys(known))
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

// joinKeys returns the keys of a map in order: "a, b, c".
func joinKeys[K ~string, V any](known map[K]V) string {
	var names []string
	for name := range known {
		names = append(names, string(name))
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
