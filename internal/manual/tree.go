package manual

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// home is the page that everything begins with. Its lists are the tree of pages: each heading is a section,
// and the first link of each item leads to a page in it.
const home = "docs/README.md"

// A section is a heading of the home page and the pages listed there.
type section struct {
	title string
	pages []*source
}

// addIndex makes a page that lists those of a folder which has no README.md.
func (m *Manual) addIndex(folder, label string) {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n", label)
	for _, s := range m.inside(folder) {
		fmt.Fprintf(&text, "- [%s](%s)\n", s.label, path.Base(s.file))
	}
	m.add(folder+"/README.md", []byte(text.String()))
}

// inside are the pages of a folder, in the order of their files.
func (m *Manual) inside(folder string) (all []*source) {
	for file, s := range m.sources {
		if path.Dir(file) == folder && path.Base(file) != "README.md" {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *source) int { return strings.Compare(a.file, b.file) })
	return all
}

// plant makes the tree. A page that is not on the home page stands at the end.
func (m *Manual) plant() {
	start := m.sources[home]
	m.order = []*source{start}
	var now *section
	document := parse(start.text)
	for node := document.FirstChild(); node != nil; node = node.NextSibling() {
		switch node := node.(type) {
		case *ast.Heading:
			if node.Level > 1 {
				now = &section{title: plain(node, start.text)}
				m.tree = append(m.tree, now)
			}
		case *ast.List:
			for item := node.FirstChild(); item != nil && now != nil; item = item.NextSibling() {
				m.plantLink(now, firstLink(item), start.text)
			}
		}
	}
	rest := &section{title: "More"}
	for _, s := range m.everything() {
		if !slices.Contains(m.order, s) {
			m.plantPage(rest, s)
		}
	}
	if len(rest.pages) > 0 {
		m.tree = append(m.tree, rest)
	}
}

// plantLink puts the page that a link leads to into a section. The pages of a folder stand below its index.
func (m *Manual) plantLink(in *section, link *ast.Link, text []byte) {
	if link == nil {
		return
	}
	file := path.Join("docs", string(link.Destination))
	folder := m.sources[file+"/README.md"]
	if s := m.sources[file]; s != nil && !slices.Contains(m.order, s) {
		s.label = plain(link, text)
		m.plantPage(in, s)
	} else if folder != nil {
		m.plantPage(in, folder)
		for _, s := range m.inside(file) {
			s.above = folder
			m.order = append(m.order, s)
		}
	}
}

func (m *Manual) plantPage(in *section, s *source) {
	in.pages = append(in.pages, s)
	m.order = append(m.order, s)
}

// everything is all pages in the order of their files.
func (m *Manual) everything() (all []*source) {
	for _, s := range m.sources {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *source) int { return strings.Compare(a.file, b.file) })
	return all
}

// firstLink is the first link in a node, nil where there is none.
func firstLink(node ast.Node) (found *ast.Link) {
	walk(node, func(n ast.Node) {
		if link, ok := n.(*ast.Link); ok && found == nil {
			found = link
		}
	})
	return found
}

// beside are the pages before and behind one, nil at the ends.
func (m *Manual) beside(s *source) (before, behind *source) {
	i := slices.Index(m.order, s)
	if i > 0 {
		before = m.order[i-1]
	}
	if i >= 0 && i+1 < len(m.order) {
		behind = m.order[i+1]
	}
	return before, behind
}
