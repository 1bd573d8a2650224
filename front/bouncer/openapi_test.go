package bouncer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/front/doorman"
	"github.com/gatehousehq/gatehouse/internal/form"
	"go.yaml.in/yaml/v4"
)

// An apiDocument is what openapi.yaml says, as far as it can be held against the code.
type apiDocument struct {
	Paths      map[string]apiPath `yaml:"paths"`
	Components struct {
		Parameters map[string]struct {
			Name string `yaml:"name"`
			In   string `yaml:"in"`
		} `yaml:"parameters"`
	} `yaml:"components"`
}

// An apiPath holds its operations by method, in lower case. Whatever else stands there, such as
// parameters, which Swagger UI would show without their names, fails to be read.
type apiPath map[string]apiOperation

type apiOperation struct {
	ID         string         `yaml:"operationId"`
	Tags       []string       `yaml:"tags"`
	Summary    string         `yaml:"summary"`
	Parameters []apiRef       `yaml:"parameters"`
	Responses  map[string]any `yaml:"responses"`
}

// An apiRef points at a component. A parameter that is written out in place has none.
type apiRef struct {
	Ref string `yaml:"$ref"`
}

// listNames are the parameters of a list.
var listNames = []string{"after", "limit", "id"}

// routeOperations are those of the routes that the program brings. TestOpenAPIHasTheRoutes holds them against
// the front that answers there.
var routeOperations = map[string][]string{
	"post /v1/capacity/get":     {"capacity"},
	"post /v1/capacity/release": {"capacity"},
	"get /capacity":             {"capacity", "after", "format", "limit", "resource"},
	"get /capacity/{name}":      {"capacity", "name", "after", "format", "limit"},
	"get /debug/status":         {"capacity"},
	"get /debug/resources":      {"capacity", "resource"},
}

func TestOpenAPIHasTheRoutes(t *testing.T) {
	server, err := doorman.New(doorman.Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	got := make(map[string]bool)
	for pattern := range server.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		if strings.HasSuffix(path, "/") {
			path += "{name}"
		}
		line := strings.ToLower(method) + " " + path
		got[line] = true
		if routeOperations[line] == nil {
			t.Errorf("%s: not in openapi.yaml", line)
		}
	}
	if len(got) != len(routeOperations) {
		t.Errorf("the routes are %v, want those of %v", got, routeOperations)
	}
}

func readOpenAPI(t *testing.T) (doc apiDocument) {
	t.Helper()
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return doc
}

// apiOperations are all operations that there are, as "get /v1/event/{name}/wait", each with its
// tag and the names of its parameters.
func apiOperations() map[string][]string {
	all := make(map[string][]string)
	for page := range pages {
		all["get "+page] = []string{"server"}
	}
	maps.Copy(all, routeOperations)
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		maps.Copy(all, kindOperations(kind, "/"))
		maps.Copy(all, kindOperations(kind, "/v1/"))
	}
	return all
}

// kindOperations are those of one kind, below one root.
func kindOperations(kind gatehouse.Kind, root string) map[string][]string {
	list := root + kind.String()
	all := map[string][]string{"get " + list: append([]string{kind.String()}, listNames...)}
	for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
		line := "get " + list + "/{name}/" + op.String()
		if op == gatehouse.OpDelete {
			line = "delete " + list + "/{name}"
		}
		if kind.Has(op) {
			all[line] = append([]string{kind.String(), "name"}, form.Names()...)
		}
	}
	return all
}

// apiParameters are the names of the parameters that refs point at.
func (doc *apiDocument) apiParameters(t *testing.T, where string, refs []apiRef) (names []string) {
	t.Helper()
	for _, ref := range refs {
		id := strings.TrimPrefix(ref.Ref, "#/components/parameters/")
		p := doc.Components.Parameters[id]
		in := "query"
		if id == "name" {
			in = "path"
		}
		if p.Name != id || p.In != in {
			t.Errorf("%s: parameter %q is %q in %q, want %q in %q", where, ref.Ref, p.Name, p.In, id, in)
		}
		names = append(names, p.Name)
	}
	return names
}

func TestOpenAPIHasAllThereIsAndNothingElse(t *testing.T) {
	doc := readOpenAPI(t)
	want := apiOperations()
	for path, item := range doc.Paths {
		for method, op := range item {
			line := method + " " + path
			got := append(slices.Clone(op.Tags), doc.apiParameters(t, line, op.Parameters)...)
			if !slices.Equal(got, want[line]) {
				t.Errorf("%s: tag and parameters are %q, want %q", line, got, want[line])
			}
			delete(want, line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(want)) {
		t.Errorf("%s: not in openapi.yaml", line)
	}
}

func TestOpenAPIPathsAreRead(t *testing.T) {
	for path, item := range readOpenAPI(t).Paths {
		for method := range item {
			if routeOperations[method+" "+path] != nil {
				continue
			}
			var r request
			uri := strings.Replace(path, "{name}", "myapp", 1)
			_, p := r.read([]byte(strings.ToUpper(method)), []byte(uri), []byte("key=me"))
			if p != nil {
				t.Errorf("%s %s: status %d %s, want it read", method, path, p.status, p.detail)
			}
		}
	}
}

func TestOpenAPIOperationsSayWhatTheyAre(t *testing.T) {
	seen := make(map[string]string)
	for path, item := range readOpenAPI(t).Paths {
		for method, op := range item {
			line := method + " " + path
			if op.Summary == "" || len(op.Responses) == 0 || op.ID == "" {
				t.Errorf("%s: summary %q, %d responses, operationId %q, want all of them",
					line, op.Summary, len(op.Responses), op.ID)
			}
			if seen[op.ID] != "" {
				t.Errorf("%s: operationId %q is also that of %s", line, op.ID, seen[op.ID])
			}
			seen[op.ID] = line
		}
	}
}

func TestOpenAPIRefsResolve(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	refs := apiRefs(doc, nil)
	if len(refs) == 0 {
		t.Fatal("no $ref found, want many")
	}
	slices.Sort(refs)
	for _, ref := range slices.Compact(refs) {
		if !apiHas(doc, ref) {
			t.Errorf("$ref %q points at nothing", ref)
		}
	}
}

// apiRefs appends to refs every $ref at or below node.
func apiRefs(node any, refs []string) []string {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if ref, ok := value.(string); ok && key == "$ref" {
				refs = append(refs, ref)
			}
			refs = apiRefs(value, refs)
		}
	case []any:
		for _, value := range node {
			refs = apiRefs(value, refs)
		}
	}
	return refs
}

// apiHas reports whether there is something in doc where ref points.
func apiHas(doc any, ref string) bool {
	inside, ok := strings.CutPrefix(ref, "#/")
	for part := range strings.SplitSeq(inside, "/") {
		node, isMap := doc.(map[string]any)
		ok = ok && isMap && node[part] != nil
		doc = node[part]
	}
	return ok
}
