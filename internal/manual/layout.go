package manual

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
)

//go:embed assets
var assets embed.FS

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

// A pageFrame is what stands around a page: the tree, and the links to the page before and the one behind.
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

// linkTo returns the link to a page on the one at url.
func linkTo(s *pageSource, url string) pageLink {
	return pageLink{URL: relativeLink(url, s.url), Label: s.label, Here: s.url == url}
}

// newFrame returns the frame of the page at this path.
func (m *Manual) newFrame(url string, headings []heading) pageFrame {
	f := pageFrame{Base: relativeLink(url, "")}
	for _, section := range m.tree {
		b := treeBranch{Title: section.title}
		for _, s := range section.pages {
			// Links are relative, so that the manual works behind a proxy that puts it below another path.
			// The tree shows only what is near: the headings of this page, and the pages of its folder.
			one := linkTo(s, url)
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

// linksBelow returns links to the pages listed below an index. shown reports that the page at url is one of
// them.
func (m *Manual) linksBelow(index *pageSource, url string) (steps []pageLink, shown bool) {
	// In the order of the tree, as the map of sources has none.
	for _, s := range m.order {
		if s.index == index {
			steps = append(steps, linkTo(s, url))
			shown = shown || s.url == url
		}
	}
	return steps, shown
}

// renderSource returns the page of a source.
func (m *Manual) renderSource(s *pageSource) (Page, error) {
	body, headings, err := m.renderArticle(s)
	if err != nil {
		return Page{}, err
	}
	f := m.newFrame(s.url, headings)
	f.Title = pageTitle(s.text)
	f.Scripts = []string{"page.js"}
	f.Body = template.HTML(body) //nolint:gosec // made of our own pages
	// A page that is not in the tree, and the first and the last one, lack one of these or both.
	before, behind := m.neighbours(s)
	if before != nil {
		f.Before = new(linkTo(before, s.url))
	}
	if behind != nil {
		f.Behind = new(linkTo(behind, s.url))
	}
	return f.executeTemplate("page")
}

// executeTemplate returns the page that a template makes of the frame.
func (f *pageFrame) executeTemplate(name string) (Page, error) {
	// Parsed again for each page, which is rendered only once.
	templates, err := template.ParseFS(assets, "assets/*.html")
	if err != nil {
		return Page{}, fmt.Errorf("reading the layout of the documentation: %w", err)
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, f); err != nil {
		return Page{}, fmt.Errorf("writing the page %s of the documentation: %w", f.Title, err)
	}
	return Page{Type: "text/html; charset=utf-8", Body: out.Bytes()}, nil
}
