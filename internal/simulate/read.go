package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"go.yaml.in/yaml/v4"
)

// Defaults of what a scenario may leave out. The waiting times are those of the real clients.
const (
	defaultSample     = 5 * time.Second
	defaultSettled    = 0.95
	defaultTakes      = 10 * time.Second // a crash until the lock has run out and another is elected
	defaultTimeout    = 5 * time.Second
	defaultMinRefresh = 5 * time.Second
	defaultTasks      = 3
)

// Read reads a scenario. name is the file's and stands before what is wrong in it.
func Read(name string, text []byte) (*Scenario, error) {
	base := filepath.Base(name)
	s := &Scenario{
		Name:    strings.TrimSuffix(base, filepath.Ext(base)),
		sample:  defaultSample,
		settled: defaultSettled,
		takes:   defaultTakes,
		network: network{timeout: defaultTimeout},
		oneName: true,
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s has %d bytes, want a scenario of at most %d", name, len(text), MaxSize)
	}
	node, err := document(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	var r reader
	r.scenario(node, s)
	if len(r.faults) == 0 {
		r.check(node, s)
	}
	if err := r.err(name); err != nil {
		return nil, err
	}
	return s, nil
}

// document is the one document of a file. Its errors begin with the place.
func document(text []byte) (*yaml.Node, error) {
	// That a key comes twice is found by us, with all else.
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithV4Defaults(), yaml.WithUniqueKeys(false))
	if err != nil {
		panic(err) // the options are ours
	}
	var node, second yaml.Node
	err = loader.Load(&node)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("1:1: nothing here, want a scenario")
	}
	if failure, ok := errors.AsType[*yaml.LoadError](err); ok {
		return nil, fmt.Errorf("%d:%d: not YAML: %s",
			max(failure.Mark.Line, 1), max(failure.Mark.Column, 1), failure.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("1:1: not YAML: %w", err)
	}
	if loader.Load(&second) == nil {
		return nil, fmt.Errorf("%d:%d: a second document begins here, want one", second.Line, second.Column)
	}
	return node.Content[0], nil
}

func (r *reader) scenario(node *yaml.Node, s *Scenario) {
	r.mapping(node, fields{
		"title":    value(r, &s.Title, parseText),
		"duration": value(r, &s.duration, parsePositiveTime),
		"sample":   value(r, &s.sample, parsePositiveTime),
		"measure":  value(r, &s.from, parseTime),
		"settled":  value(r, &s.settled, parseChance),
		"takes":    value(r, &s.takes, parseTime),
		"one_name": value(r, &s.oneName, parseBool),
		"resource": func(n *yaml.Node) { r.resource(n, &s.resource) },
		"network":  func(n *yaml.Node) { r.network(n, &s.network) },
		"servers":  r.list(func(n *yaml.Node) { r.level(n, s) }),
		"clients":  r.list(func(n *yaml.Node) { r.group(n, s) }),
		"events":   r.list(func(n *yaml.Node) { s.happening = append(s.happening, r.event(n)) }),
		"mishaps":  func(n *yaml.Node) { r.mishaps(n, &s.mishaps) },
		"expect":   r.list(func(n *yaml.Node) { r.expectation(n, s) }),
	}, "title", "duration", "resource", "servers", "clients")
}

// resource has the words of a server's configuration.
func (r *reader) resource(node *yaml.Node, t *capacity.Template) {
	t.Glob = "*"
	safe := func(n *yaml.Node) {
		t.Safe = new(float64)
		value(r, t.Safe, parseSafe)(n)
	}
	r.mapping(node, fields{
		"capacity":      value(r, &t.Capacity, parseNumber),
		"safe_capacity": safe,
		"algorithm":     func(n *yaml.Node) { r.algorithm(n, &t.Algorithm) },
	}, "capacity", "algorithm")
}

func (r *reader) algorithm(node *yaml.Node, a *capacity.Algorithm) {
	learning := func(n *yaml.Node) {
		a.Learning = new(time.Duration)
		value(r, a.Learning, parseSeconds(0))(n)
	}
	parameter := func(n *yaml.Node) {
		var p capacity.Parameter
		r.mapping(n, fields{
			"name": value(r, &p.Name, parseText), "value": value(r, &p.Value, parseText),
		}, "name", "value")
		a.Parameters = append(a.Parameters, p)
	}
	r.mapping(node, fields{
		"kind":                   value(r, &a.Kind, parseKind),
		"lease_length":           value(r, &a.LeaseLength, parseSeconds(1)),
		"refresh_interval":       value(r, &a.RefreshInterval, parseSeconds(1)),
		"learning_mode_duration": learning,
		"parameters":             r.list(parameter),
	}, "kind", "lease_length", "refresh_interval")
	if a.LeaseLength < a.RefreshInterval {
		r.fault(node, "lease_length is %v, want at least the refresh_interval of %v",
			a.LeaseLength, a.RefreshInterval)
	}
}

func (r *reader) network(node *yaml.Node, n *network) {
	r.mapping(node, fields{
		"delay":   value(r, &n.delay, parseSpan),
		"loss":    value(r, &n.loss, parseChance),
		"timeout": value(r, &n.timeout, parsePositiveTime),
		"skew":    value(r, &n.skew, parseTime),
	})
	if n.delay.most >= n.timeout {
		r.fault(node, "delay is up to %v, want less than the timeout of %v", n.delay.most, n.timeout)
	}
}

func (r *reader) level(node *yaml.Node, s *Scenario) {
	l := level{count: 1, tasks: defaultTasks}
	r.mapping(node, fields{
		"name":  value(r, &l.name, parseText),
		"count": value(r, &l.count, parseCount(MaxServers)),
		"tasks": value(r, &l.tasks, parseCount(maxTasks)),
	}, "name")
	s.levels = append(s.levels, l)
}

func (r *reader) group(node *yaml.Node, s *Scenario) {
	g := group{minRefresh: defaultMinRefresh, place: len(s.groups)}
	r.mapping(node, fields{
		"name":     value(r, &g.name, parseText),
		"of":       value(r, &g.of, parseText),
		"recipe":   value(r, &g.recipe, parseRecipe),
		"every":    value(r, &g.every, parsePositiveTime),
		"reset":    value(r, &g.reset, parsePositiveTime),
		"priority": value(r, &g.priority, parsePriority),
		"start":    value(r, &g.start, parseSpan),

		"minimum_refresh": value(r, &g.minRefresh, parsePositiveTime),
	}, "of", "recipe")
	if g.recipe.change != "" && g.every == 0 {
		r.fault(node, "every is missing, want how often %s is done", g.recipe.change)
	}
	s.groups = append(s.groups, g)
}

func (r *reader) mishaps(node *yaml.Node, m *mishaps) {
	kind := func(n *yaml.Node) {
		h := r.event(n)
		if h.weight == 0 {
			h.weight = 1
		}
		m.kinds = append(m.kinds, h)
	}
	r.mapping(node, fields{
		"from":  value(r, &m.from, parseTime),
		"every": value(r, &m.every, parsePositiveTime),
		"kinds": r.list(kind),
	}, "every", "kinds")
	if m.from == 0 {
		m.from = m.every
	}
}

// event reads one happening. A mishap is one without a time and with a weight.
func (r *reader) event(node *yaml.Node) happening {
	var h happening
	to := func(n *yaml.Node) {
		h.change.set = true
		value(r, &h.change.to, parseNumber)(n)
	}
	r.mapping(node, fields{
		"at":      value(r, &h.at, parseTime),
		"do":      value(r, &h.do, parseDeed),
		"node":    value(r, &h.node, parseText),
		"clients": value(r, &h.clients, parseAmount),
		"to":      to,
		"add":     value(r, &h.change.add, parseNumber),
		"loss":    value(r, &h.lost, parseChance),
		"for":     value(r, &h.lasts, parseSpan),
		"weight":  value(r, &h.weight, parseNumber),
	}, "do")
	return h
}
