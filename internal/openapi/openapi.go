// Package openapi describes the HTTP API: once, for the OpenAPI document and for the page on which it can be
// tried. The operations on controllers come from the grammar of the root package, so none can be missing.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

// components are the parameters, headers, schemas and responses that operations refer to.
//
//go:embed components.json
var components []byte

// A Document is the whole API.
type Document struct {
	Tags       []Tag
	Operations []Operation

	parameters map[string]Parameter
	answers    map[string]answer
}

// An answer is what a response means.
type answer struct {
	Description string `json:"description"`
}

// A Tag groups operations. Its name is that of a kind of controller, or capacity, or server.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// An Operation is one method of one path.
type Operation struct {
	ID, Tag, Method, Path string
	Summary, Description  string

	Parameters []string // by their names among the components
	Responses  []Response
	Body       *Body // nil where no body is read
}

// A Response is a status and, by its name among the components, what it means.
type Response struct {
	Status    int
	Component string
}

// A Body is the JSON that a request carries: the name of its schema among the components, and an example.
type Body struct {
	Schema, Example string
}

// A Parameter is what a request says in its path or its query.
type Parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"` // "path" or "query"
	Required    bool   `json:"required"`
	Description string `json:"description"`
	Schema      Schema `json:"schema"`
}

// A Schema is the type of a parameter. Enum is empty where any value of the type will do.
type Schema struct {
	Type string   `json:"type"`
	Enum []string `json:"enum"`
}

// New returns the document of this version's API.
func New() (*Document, error) {
	var known struct {
		Parameters map[string]Parameter `json:"parameters"`
		Responses  map[string]answer    `json:"responses"`
	}
	if err := json.Unmarshal(components, &known); err != nil {
		return nil, fmt.Errorf("reading components.json: %w", err)
	}
	d := &Document{Tags: tags(), parameters: known.Parameters, answers: known.Responses}
	d.Operations = append(kindOperations(), otherOperations()...)
	for _, op := range d.Operations {
		for _, name := range op.Parameters {
			if d.parameters[name].Name == "" {
				return nil, fmt.Errorf("components.json lacks parameter %s of %s", name, op.ID)
			}
		}
	}
	return d, nil
}

// Parameter returns the parameter of an operation by its name among the components.
func (d *Document) Parameter(name string) Parameter { return d.parameters[name] }

// Answer returns what a response means, by its name among the components.
func (d *Document) Answer(name string) string { return d.answers[name].Description }

// JSON returns the document in OpenAPI 3.0.3, which more generators read than 3.1.
func (d *Document) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(struct {
		OpenAPI    string          `json:"openapi"`
		Info       info            `json:"info"`
		Servers    []server        `json:"servers"`
		Tags       []Tag           `json:"tags"`
		Paths      paths           `json:"paths"`
		Components json.RawMessage `json:"components"`
	}{"3.0.3", info{"Gatehouse", "1", About()}, []server{{"/"}}, d.Tags, d.Operations, components}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return append(text, '\n'), nil
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type server struct {
	URL string `json:"url"`
}

// paths are operations that JSON shows by path and method, in their order. A map would sort them.
type paths []Operation

// MarshalJSON implements json.Marshaler.
func (p paths) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	for i, op := range p {
		object, err := json.Marshal(op.object())
		if err != nil {
			return nil, err
		}
		switch {
		case i == 0:
			fmt.Fprintf(&text, "{%q:{", op.Path)
		case p[i-1].Path == op.Path:
			text.WriteByte(',')
		default:
			fmt.Fprintf(&text, "},%q:{", op.Path)
		}
		fmt.Fprintf(&text, "%q:%s", op.Method, object)
	}
	text.WriteString("}}")
	return text.Bytes(), nil
}

type reference struct {
	Ref string `json:"$ref"`
}

func refer(section, name string) reference { return reference{"#/components/" + section + "/" + name} }

type object struct {
	ID          string               `json:"operationId"`
	Tags        []string             `json:"tags"`
	Summary     string               `json:"summary"`
	Description string               `json:"description,omitempty"`
	Parameters  []reference          `json:"parameters,omitempty"`
	Body        any                  `json:"requestBody,omitempty"`
	Responses   map[string]reference `json:"responses"`
}

func (op *Operation) object() object {
	o := object{
		ID: op.ID, Tags: []string{op.Tag}, Summary: op.Summary, Description: op.Description,
		Responses: make(map[string]reference, len(op.Responses)),
	}
	for _, name := range op.Parameters {
		o.Parameters = append(o.Parameters, refer("parameters", name))
	}
	for _, r := range op.Responses {
		o.Responses[fmt.Sprint(r.Status)] = refer("responses", r.Component)
	}
	if op.Body != nil {
		media := map[string]any{
			"schema": refer("schemas", op.Body.Schema), "example": json.RawMessage(op.Body.Example),
		}
		o.Body = map[string]any{"required": true, "content": map[string]any{"application/json": media}}
	}
	return o
}
