package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

func document(t *testing.T) *Document {
	t.Helper()
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Each kind's operations are there, by what the grammar says and not by the tables of this package.
func TestOperationsOfAllKinds(t *testing.T) {
	got := make(map[string]bool)
	for _, op := range document(t).Operations {
		got[op.Method+" "+op.Path] = true
	}
	for kind := gatehouse.TokenBucket; kind < gatehouse.Grant; kind++ { // which has paths of its own
		path := "/v1/" + kind.String()
		want := []string{"get " + path, "delete " + path + "/{name}"}
		for op := gatehouse.OpAcquire; op < gatehouse.OpDelete; op++ {
			if kind.Has(op) && !postsOnly(op) {
				want = append(want, "get "+path+"/{name}/"+op.String())
			}
			if kind.Has(op) && !op.Reads() {
				want = append(want, "post "+path+"/{name}/"+op.String())
			}
		}
		for _, line := range want {
			if !got[line] {
				t.Errorf("%s: not described", line)
			}
		}
	}
}

// postsOnly is whether an operation is an operator's, and no GET.
func postsOnly(op gatehouse.Op) bool {
	return op == gatehouse.OpEvict || op == gatehouse.OpBump || op == gatehouse.OpClose ||
		op == gatehouse.OpOpen
}

// Every operation says what it is under a name of its own, and what it answers; the tag is one there is.
func TestOperationsSayWhatTheyAre(t *testing.T) {
	d, seen := document(t), make(map[string]string)
	for _, op := range d.Operations {
		line := op.Method + " " + op.Path
		tagged := slices.ContainsFunc(d.Tags, func(tag Tag) bool { return tag.Name == op.Tag })
		good := len(op.Responses) > 0 && op.Responses[0].Status < 300
		if op.Summary == "" || op.ID == "" || !good || !tagged {
			t.Errorf("%s: summary %q, id %q, tag %q, responses %v, want all of them",
				line, op.Summary, op.ID, op.Tag, op.Responses)
		}
		if seen[op.ID] != "" {
			t.Errorf("%s: id %q is also that of %s", line, op.ID, seen[op.ID])
		}
		seen[op.ID] = line
		statuses := make(map[int]int)
		for _, r := range op.Responses {
			statuses[r.Status]++
		}
		for _, refused := range []int{401, 403, 429} {
			if public := slices.Contains(publicPaths, op.Path); statuses[refused] != boolToInt(!public) {
				t.Errorf("%s has %d responses of %d, want one unless it is public", line, statuses[refused],
					refused)
			}
		}
		inPath := strings.Contains(op.Path, "{name}")
		if inPath != slices.Contains(op.Parameters, "name") {
			t.Errorf("%s has parameters %v", line, op.Parameters)
		}
	}
}

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// The document is plain JSON without aliases, in which every reference leads to something, and every
// component is referred to.
func TestReferencesResolve(t *testing.T) {
	text, err := document(t).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, ref := range references(whole, nil) {
		used[ref] = true
		if !resolves(whole, ref) {
			t.Errorf("$ref %q leads to nothing", ref)
		}
	}
	sections, _ := whole["components"].(map[string]any)
	delete(sections, "securitySchemes") // which are referred to by their names alone
	for section := range sections {
		members, _ := sections[section].(map[string]any)
		for name := range members {
			if ref := "#/components/" + section + "/" + name; !used[ref] {
				t.Errorf("%s is not used", ref)
			}
		}
	}
}

// No parameter is called as a schema or a response, but for case: generators make types of all of them.
func TestParametersHaveNamesOfTheirOwn(t *testing.T) {
	var sections map[string]map[string]any
	if err := json.Unmarshal(components, &sections); err != nil {
		t.Fatal(err)
	}
	for name := range sections["parameters"] {
		for _, section := range []string{"schemas", "responses"} {
			if other := upperFirst(name); sections[section][other] != nil {
				t.Errorf("%s has %s, which is also the parameter %s", section, other, name)
			}
		}
	}
}

// No parameter has an example or a default: tools put those into a form, where they change what is asked.
func TestNothingIsFilledIn(t *testing.T) {
	var known struct {
		Parameters map[string]map[string]any `json:"parameters"`
	}
	if err := json.Unmarshal(components, &known); err != nil {
		t.Fatal(err)
	}
	for name, parameter := range known.Parameters {
		schema, _ := parameter["schema"].(map[string]any)
		for _, word := range []string{"example", "examples", "default"} {
			if parameter[word] != nil || schema[word] != nil {
				t.Errorf("parameter %s has %s, want none", name, word)
			}
		}
	}
}

// references appends to refs every $ref at or below node.
func references(node any, refs []string) []string {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if ref, ok := value.(string); ok && key == "$ref" {
				refs = append(refs, ref)
			}
			refs = references(value, refs)
		}
	case []any:
		for _, value := range node {
			refs = references(value, refs)
		}
	}
	return refs
}

// resolves reports whether there is something in the document where ref points.
func resolves(document any, ref string) bool {
	inside, ok := strings.CutPrefix(ref, "#/")
	for part := range strings.SplitSeq(inside, "/") {
		node, isMap := document.(map[string]any)
		ok = ok && isMap && node[part] != nil
		document = node[part]
	}
	return ok
}
