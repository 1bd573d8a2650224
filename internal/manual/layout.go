package manual

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
)

//go:embed assets
var assets embed.FS

// parseLayout is the frame of every page.
func parseLayout() (*template.Template, error) { return template.ParseFS(assets, "assets/*.html") }

// addAssets adds the style and the scripts, under assets/.
func (m *Manual) addAssets() error {
	for _, name := range []string{"style.css", "page.js", "api.js"} {
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return fmt.Errorf("reading the style and scripts of the documentation: %w", err)
		}
		m.addFile("assets/"+name, body)
	}
	return nil
}

// A pageFrame is what stands around a page: the tree, and the ways on.
type pageFrame struct {
	Title   string
	Base    string // from the page to the root of the manual
	Scripts []string
	Tree    []treeBranch
	Before  *pageLink
	Behind  *pageLink

	Body template.HTML // of Markdown, which is ours
	API  any
}

// A treeBranch is one section of the tree.
type treeBranch struct {
	Title string
	Open  bool // the page is in it
	Steps []pageLink
}

// A pageLink leads to one page.
type pageLink struct {
	URL, Label string
	Here       bool
	Headings   []heading  // of the page that is shown
	Below      []pageLink // of the folder that is shown
}

// newFrame makes what stands around the page with this path.
func (m *Manual) newFrame(url string, headings []heading) pageFrame {
	f := pageFrame{Base: relativeLink(url, "")}
	for _, section := range m.tree {
		b := treeBranch{Title: section.title}
		for _, s := range section.pages {
			one := pageLink{URL: relativeLink(url, s.url), Label: s.label, Here: s.url == url}
			if one.Here {
				one.Headings = headings
			}
			below, shown := m.linksBelow(s, url)
			if one.Here || shown {
				one.Below = below
				b.Open = true
			}
			b.Steps = append(b.Steps, one)
		}
		f.Tree = append(f.Tree, b)
	}
	return f
}

// linksBelow are the pages that stand below an index; shown says that the one with this path is one of them.
func (m *Manual) linksBelow(index *pageSource, url string) (steps []pageLink, shown bool) {
	for _, s := range m.order {
		if s.index == index {
			steps = append(steps, pageLink{URL: relativeLink(url, s.url), Label: s.label, Here: s.url == url})
			shown = shown || s.url == url
		}
	}
	return steps, shown
}

// renderSource makes the page of a source.
func (m *Manual) renderSource(s *pageSource) (Page, error) {
	body, headings, err := m.renderArticle(s)
	if err != nil {
		return Page{}, err
	}
	f := m.newFrame(s.url, headings)
	f.Title = pageTitle(s.text)
	f.Scripts = []string{"page.js"}
	f.Body = template.HTML(body) //nolint:gosec // made of our own pages
	before, behind := m.neighbours(s)
	if before != nil {
		f.Before = &pageLink{URL: relativeLink(s.url, before.url), Label: before.label}
	}
	if behind != nil {
		f.Behind = &pageLink{URL: relativeLink(s.url, behind.url), Label: behind.label}
	}
	return f.executeTemplate("page")
}

// executeTemplate executes one of the templates.
func (f *pageFrame) executeTemplate(name string) (Page, error) {
	templates, err := parseLayout()
	if err != nil {
		return Page{}, fmt.Errorf("reading the layout of the documentation: %w", err)
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, f); err != nil {
		return Page{}, fmt.Errorf("writing the page %s of the documentation: %w", f.Title, err)
	}
	return Page{Type: "text/html; charset=utf-8", Body: out.Bytes()}, nil
}
