package manual

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
)

//go:embed assets
var assets embed.FS

// layout is the frame of every page.
func layout() (*template.Template, error) { return template.ParseFS(assets, "assets/*.html") }

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

// A frame is what stands around a page: the tree, and the ways on.
type frame struct {
	Title   string
	Base    string // from the page to the root of the manual
	Scripts []string
	Tree    []branch
	Before  *step
	Behind  *step

	Body template.HTML // of Markdown, which is ours
	API  any
}

// A branch is one section of the tree.
type branch struct {
	Title string
	Open  bool // the page is in it
	Steps []step
}

// A step leads to one page.
type step struct {
	URL, Label string
	Here       bool
	Headings   []heading // of the page that is shown
	Below      []step    // of the folder that is shown
}

// frameOf makes what stands around the page with this path.
func (m *Manual) frameOf(url string, headings []heading) frame {
	f := frame{Base: relative(url, "")}
	for _, section := range m.tree {
		b := branch{Title: section.title}
		for _, s := range section.pages {
			one := step{URL: relative(url, s.url), Label: s.label, Here: s.url == url}
			if one.Here {
				one.Headings = headings
			}
			below, shown := m.below(s, url)
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

// below are the pages that stand below an index; shown says that the one with this path is one of them.
func (m *Manual) below(index *source, url string) (steps []step, shown bool) {
	for _, s := range m.order {
		if s.above == index {
			steps = append(steps, step{URL: relative(url, s.url), Label: s.label, Here: s.url == url})
			shown = shown || s.url == url
		}
	}
	return steps, shown
}

// render makes the page of a source.
func (m *Manual) render(s *source) (Page, error) {
	body, headings, err := m.article(s)
	if err != nil {
		return Page{}, err
	}
	f := m.frameOf(s.url, headings)
	f.Title = title(s.text)
	f.Scripts = []string{"page.js"}
	f.Body = template.HTML(body) //nolint:gosec // made of our own pages
	before, behind := m.beside(s)
	if before != nil {
		f.Before = &step{URL: relative(s.url, before.url), Label: before.label}
	}
	if behind != nil {
		f.Behind = &step{URL: relative(s.url, behind.url), Label: behind.label}
	}
	return f.page("page")
}

// page executes one of the templates.
func (f *frame) page(name string) (Page, error) {
	templates, err := layout()
	if err != nil {
		return Page{}, fmt.Errorf("reading the layout of the documentation: %w", err)
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, f); err != nil {
		return Page{}, fmt.Errorf("writing the page %s of the documentation: %w", f.Title, err)
	}
	return Page{Type: "text/html; charset=utf-8", Body: out.Bytes()}, nil
}
