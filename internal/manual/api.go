package manual

import (
	"net/http"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/openapi"
)

// apiURL is the page on which the API can be tried.
const apiURL = "api/"

// An apiPage is the content of that page.
type apiPage struct {
	About []string // paragraphs
	Tags  []apiTag
}

type apiTag struct {
	openapi.Tag
	Page       string // about the kind, "" where there is none
	Operations []apiOperation
}

type apiOperation struct {
	openapi.Operation
	Send string // the method that is used where there are two
}

// addAPI adds the description of the API, under the paths where tools look for it, and the page of forms.
func (m *Manual) addAPI() (err error) {
	m.api, err = openapi.New()
	if err != nil {
		return err
	}
	description := renderOnce(func() (Page, error) {
		body, err := m.api.JSON()
		return Page{Type: "application/json", Body: body}, err
	})
	m.pages["openapi.json"] = description
	// Tools that were made for bouncer find it at bouncer's path, and those that want YAML are redirected:
	// JSON is YAML too.
	m.pages["doc.json"] = description
	m.addRedirect("openapi.yaml", "openapi.json")
	m.addRedirect("api", apiURL)
	m.pages[apiURL] = renderOnce(m.renderAPI)
	return nil
}

// renderAPI returns the page of forms, with one section for each kind.
func (m *Manual) renderAPI() (Page, error) {
	f := m.newFrame(apiURL, nil)
	f.Title = "Try the API"
	f.Scripts = []string{"page.js", "api.js"}
	shown := apiPage{About: strings.Split(openapi.About(), "\n\n")}
	for _, tag := range m.api.Tags {
		t := apiTag{Tag: tag}
		// Capacity and the server's own pages have no page of a controller.
		if s := m.sources["docs/controllers/"+tag.Name+".md"]; s != nil {
			t.Page = relativeLink(apiURL, s.url)
		}
		for i, op := range m.api.Operations {
			if op.Tag != tag.Name {
				continue
			}
			// Most operations are a GET and a POST that do the same. They share a form, which sends the POST:
			// no browser or proxy repeats that by itself.
			same := i > 0 && m.api.Operations[i-1].Path == op.Path
			if same && strings.EqualFold(op.Method, http.MethodPost) {
				t.Operations[len(t.Operations)-1].Send = op.Method
				continue
			}
			t.Operations = append(t.Operations, apiOperation{op, op.Method})
		}
		shown.Tags = append(shown.Tags, t)
	}
	f.API = shown
	return f.executeTemplate("api")
}
