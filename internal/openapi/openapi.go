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

	Parameters []string           // by their names among the components
	Fields     []RequestParameter // what these parameters are
	Responses  []Response
	Body       *Body // nil where no body is read
}

// A Response is a status and what it means: by its name among the components, and in words.
type Response struct {
	Status      int
	Component   string
	Description string
}

// A Body is the JSON that a request carries: the name of its schema among the components, and an example.
type Body struct {
	Schema, Example string
	Optional        bool // the request may have no body
}

// A RequestParameter is what a request says in its path or its query.
type RequestParameter struct {
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
		Parameters map[string]RequestParameter `json:"parameters"`
		Responses  map[string]Response         `json:"responses"`
	}
	if err := json.Unmarshal(components, &known); err != nil {
		return nil, fmt.Errorf("reading components.json: %w", err)
	}
	texts, err := readOperations()
	if err != nil {
		return nil, err
	}
	d := &Document{Tags: texts.Tags, Operations: texts.allOperations()}
	for i := range d.Operations {
		op := &d.Operations[i]
		for _, name := range op.Parameters {
			// An operation that names what is not there would only be found by a generator.
			field, ok := known.Parameters[name]
			if !ok {
				return nil, fmt.Errorf("components.json lacks parameter %s of %s", name, op.ID)
			}
			op.Fields = append(op.Fields, field)
		}
		for j, r := range op.Responses {
			// The words of a response are the same for all operations that have it.
			op.Responses[j].Description = known.Responses[r.Component].Description
		}
	}
	return d, nil
}

// JSON returns the document in OpenAPI 3.0.3, which more generators read than 3.1.
func (d *Document) JSON() ([]byte, error) {
	// The components are inserted as they stand in the file, with their order and their descriptions.
	text, err := json.MarshalIndent(struct {
		OpenAPI    string          `json:"openapi"`
		Info       apiInfo         `json:"info"`
		Servers    []any           `json:"servers"`
		Tags       []Tag           `json:"tags"`
		Paths      pathOperations  `json:"paths"`
		Components json.RawMessage `json:"components"`
		Security   []tokenForm     `json:"security"`
	}{
		"3.0.3", apiInfo{"Gatehouse", "1", About()}, []any{map[string]string{"url": "/"}},
		d.Tags, d.Operations, components,
		// Any of these will do; the first is without a token.
		[]tokenForm{{}, {"bearer": {}}, {"basic": {}}},
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return append(text, '\n'), nil
}

// A tokenForm is a way to send a token, by its name among the components.
type tokenForm map[string][]string

type apiInfo struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

// pathOperations are operations that JSON shows by path and method, in their order. A map would sort them.
type pathOperations []Operation

// MarshalJSON implements json.Marshaler.
func (p pathOperations) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	for i, op := range p {
		object, err := json.Marshal(op.jsonObject())
		if err != nil {
			return nil, err
		}
		// Operations of one path follow one another and share an object. A new path closes the one before.
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

type componentRef struct {
	Ref string `json:"$ref"`
}

func refTo(section, name string) componentRef {
	return componentRef{"#/components/" + section + "/" + name}
}

type operationObject struct {
	ID          string                  `json:"operationId"`
	Tags        []string                `json:"tags"`
	Summary     string                  `json:"summary"`
	Description string                  `json:"description,omitempty"`
	Parameters  []componentRef          `json:"parameters,omitempty"`
	Body        any                     `json:"requestBody,omitempty"`
	Responses   map[string]componentRef `json:"responses"`
}

func (op *Operation) jsonObject() operationObject {
	o := operationObject{
		ID: op.ID, Tags: []string{op.Tag}, Summary: op.Summary, Description: op.Description,
		Responses: make(map[string]componentRef, len(op.Responses)),
	}
	for _, name := range op.Parameters {
		o.Parameters = append(o.Parameters, refTo("parameters", name))
	}
	for _, r := range op.Responses {
		// Statuses are strings in OpenAPI, so the map needs no order of its own: JSON sorts it.
		o.Responses[fmt.Sprint(r.Status)] = refTo("responses", r.Component)
	}
	if op.Body != nil {
		// The example is JSON already, and must not be quoted again.
		media := map[string]any{
			"schema": refTo("schemas", op.Body.Schema), "example": json.RawMessage(op.Body.Example),
		}
		o.Body = map[string]any{"required": !op.Body.Optional,
			"content": map[string]any{"application/json": media}}
	}
	return o
}
