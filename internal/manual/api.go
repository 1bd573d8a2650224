package manual

import (
	"net/http"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/openapi"
)

// apiURL is the page on which the API can be tried.
const apiURL = "api/"

// apiPage is what that page shows.
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
	Send    string // the method that is used where there are two
	Fields  []openapi.RequestParameter
	Answers []apiAnswer
}

type apiAnswer struct {
	Status int
	Text   string
}

// addAPI adds the description of the API, under the names that tools look for, and the page.
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
	m.pages["doc.json"] = description // where bouncer has its own
	m.addRedirect("openapi.yaml", "openapi.json")
	m.addRedirect("api", apiURL)
	m.pages[apiURL] = renderOnce(m.renderAPI)
	return nil
}

func (m *Manual) renderAPI() (Page, error) {
	f := m.newFrame(apiURL, nil)
	f.Title = "Try the API"
	f.Scripts = []string{"page.js", "api.js"}
	shown := apiPage{About: strings.Split(openapi.About(), "\n\n")}
	for _, tag := range m.api.Tags {
		t := apiTag{Tag: tag}
		if s := m.sources["docs/controllers/"+tag.Name+".md"]; s != nil {
			t.Page = relativeLink(apiURL, s.url)
		}
		for i, op := range m.api.Operations {
			if op.Tag != tag.Name {
				continue
			}
			same := i > 0 && m.api.Operations[i-1].Path == op.Path
			if same && strings.EqualFold(op.Method, http.MethodPost) { // it is what is sent
				t.Operations[len(t.Operations)-1].Send = op.Method
				continue
			}
			t.Operations = append(t.Operations, m.apiOperation(op))
		}
		shown.Tags = append(shown.Tags, t)
	}
	f.API = shown
	return f.executeTemplate("api")
}

func (m *Manual) apiOperation(op openapi.Operation) apiOperation {
	o := apiOperation{Operation: op, Send: op.Method}
	for _, name := range op.Parameters {
		o.Fields = append(o.Fields, m.api.Parameter(name))
	}
	for _, r := range op.Responses {
		o.Answers = append(o.Answers, apiAnswer{r.Status, m.api.Answer(r.Component)})
	}
	return o
}
