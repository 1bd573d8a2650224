package manual

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// homeFile is the first page. Its lists are the tree of pages: each heading is a section, and the first link
// of each item leads to a page in it.
const homeFile = "docs/README.md"

// A treeSection is a heading of the home page and the pages listed there.
type treeSection struct {
	title string
	pages []*pageSource
}

// addIndex adds a page that lists the pages of a folder without a README.md.
func (m *Manual) addIndex(folder, label string) {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n", label)
	for _, s := range m.pagesInside(folder) {
		fmt.Fprintf(&text, "- [%s](%s)\n", s.label, path.Base(s.file))
	}
	m.addSource(folder+"/README.md", []byte(text.String()))
}

// pagesInside returns the pages of a folder, in the order of their files.
func (m *Manual) pagesInside(folder string) (all []*pageSource) {
	for _, file := range slices.Sorted(maps.Keys(m.sources)) {
		// The index does not list itself.
		if path.Dir(file) == folder && path.Base(file) != "README.md" {
			all = append(all, m.sources[file])
		}
	}
	return all
}

// buildTree reads the tree from the home page. A page that is not listed there comes last, in a section of
// its own.
func (m *Manual) buildTree() {
	// There is no second list of pages to keep in order: order is what the tree has, from top to bottom.
	start := m.sources[homeFile]
	m.order = []*pageSource{start}
	var now *treeSection
	document := parseMarkdown(start.text)
	for node := document.FirstChild(); node != nil; node = node.NextSibling() {
		switch node := node.(type) {
		case *ast.Heading:
			// The heading of the first level is the title of the page.
			if node.Level > 1 {
				now = &treeSection{title: plainText(node, start.text)}
				m.tree = append(m.tree, now)
			}
		case *ast.List:
			for item := node.FirstChild(); item != nil && now != nil; item = item.NextSibling() {
				m.addLinkedPage(now, firstLink(item), start.text)
			}
		}
	}
	rest := &treeSection{title: "More"}
	for _, file := range slices.Sorted(maps.Keys(m.sources)) {
		if s := m.sources[file]; !slices.Contains(m.order, s) {
			m.addToSection(rest, s)
		}
	}
	// No empty section when the home page lists all.
	if len(rest.pages) > 0 {
		m.tree = append(m.tree, rest)
	}
}

// addLinkedPage adds the page that a link leads to, to a section. If that is a folder, its pages stand below
// its index.
func (m *Manual) addLinkedPage(in *treeSection, link *ast.Link, text []byte) {
	if link == nil {
		return
	}
	file := path.Join("docs", string(link.Destination))
	folder := m.sources[file+"/README.md"]
	// A page that is listed twice stays where it came first: it has one page before it and one behind it.
	if s := m.sources[file]; s != nil && !slices.Contains(m.order, s) {
		s.label = plainText(link, text)
		m.addToSection(in, s)
	} else if folder != nil {
		m.addToSection(in, folder)
		for _, s := range m.pagesInside(file) {
			s.index = folder
			m.order = append(m.order, s)
		}
	}
}

// addToSection adds a page at the end of a section.
func (m *Manual) addToSection(in *treeSection, s *pageSource) {
	in.pages = append(in.pages, s)
	m.order = append(m.order, s)
}

// firstLink returns the first link below a node, nil if there is none.
func firstLink(node ast.Node) (found *ast.Link) {
	// The other links of an item are part of its text.
	walkNodes(node, func(n ast.Node) {
		if link, ok := n.(*ast.Link); ok && found == nil {
			found = link
		}
	})
	return found
}

// neighbours returns the pages before and behind a page, nil at the ends.
func (m *Manual) neighbours(s *pageSource) (before, behind *pageSource) {
	i := slices.Index(m.order, s)
	if i > 0 {
		before = m.order[i-1]
	}
	if i >= 0 && i+1 < len(m.order) {
		behind = m.order[i+1]
	}
	return before, behind
}
