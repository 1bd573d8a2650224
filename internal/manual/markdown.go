package manual

import (
	"bytes"
	"fmt"
	"html"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// repositoryURL begins links to files of the repository that are not among the pages.
const repositoryURL = "https://github.com/gatehousehq/gatehouse/blob/main/"

// localServer begins links to a server at its default address. In the manual they lead to the server that
// shows the page.
const localServer = "http://localhost:5505/"

func newMarkdown() goldmark.Markdown { return goldmark.New(goldmark.WithExtensions(extension.Table)) }

func parseMarkdown(source []byte) ast.Node {
	return newMarkdown().Parser().Parse(text.NewReader(source))
}

// walkNodes calls visit for a node and then for all below it.
func walkNodes(node ast.Node, visit func(ast.Node)) {
	visit(node)
	for child := node.FirstChild(); child != nil; {
		// visit may remove the child, or replace it, and it has no sibling then.
		next := child.NextSibling()
		walkNodes(child, visit)
		child = next
	}
}

// A heading is a place in a page that a link can lead to.
type heading struct{ ID, Text string }

// renderArticle returns the HTML of a source, and its headings of the second level.
func (m *Manual) renderArticle(s *pageSource) (body string, headings []heading, err error) {
	document := parseMarkdown(s.text)
	seen := make(map[string]int)
	walkNodes(document, func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Heading:
			// The text is taken before the anchor is added, whose # would be part of it.
			words := plainText(node, s.text)
			id := anchorID(words, seen)
			node.SetAttributeString("id", []byte(id))
			node.AppendChild(node, rawHTML(
				`<a class="anchor" href="#`+id+`" aria-label="Link to this heading">#</a>`))
			if node.Level == 2 {
				headings = append(headings, heading{id, words})
			}
		case *ast.Link:
			node.Destination = []byte(m.resolveLink(s, string(node.Destination)))
		case *ast.AutoLink:
			m.retargetAutoLink(s, node)
		case *ast.HTMLBlock, *ast.RawHTML: // comments for our tests
			node.Parent().RemoveChild(node.Parent(), node)
		}
	})
	var out bytes.Buffer
	if err := newMarkdown().Renderer().Render(&out, s.text, document); err != nil {
		return "", nil, fmt.Errorf("rendering %s: %w", s.file, err)
	}
	return out.String(), headings, nil
}

// rawHTML returns a node whose markup is written as it stands.
func rawHTML(markup string) ast.Node {
	node := ast.NewString([]byte(markup))
	node.SetCode(true) // a raw one is still escaped
	return node
}

// resolveLink returns where a link of a page leads in the manual.
func (m *Manual) resolveLink(from *pageSource, to string) string {
	if rest, ok := strings.CutPrefix(to, localServer); ok {
		// The manual itself is below docs/.
		if page, ok := strings.CutPrefix(rest, "docs/"); ok {
			return relativeLink(from.url, page)
		}
		return relativeLink(from.url, "../"+rest)
	}
	if strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "mailto:") {
		return to
	}
	// What is left is a path in the repository, relative to the file of the page.
	file, anchor, _ := strings.Cut(to, "#")
	// Without an anchor there must be no # at the end.
	if anchor != "" {
		anchor = "#" + anchor
	}
	file = path.Join(path.Dir(from.file), file)
	switch {
	case m.sources[file] != nil:
		return relativeLink(from.url, m.sources[file].url) + anchor
	case m.sources[file+"/README.md"] != nil:
		return relativeLink(from.url, m.sources[file+"/README.md"].url)
	case m.pages[strings.TrimPrefix(file, "docs/")] != nil: // a picture
		return relativeLink(from.url, strings.TrimPrefix(file, "docs/"))
	}
	return repositoryURL + file + anchor
}

// retargetAutoLink replaces a link that shows its own address. If that is the default address of a server,
// the link leads to the server that shows the page, and still shows the address.
func (m *Manual) retargetAutoLink(s *pageSource, node *ast.AutoLink) {
	url := string(node.URL(s.text))
	if !strings.HasPrefix(url, localServer) {
		return
	}
	link := `<a href="` + html.EscapeString(m.resolveLink(s, url)) + `">` + html.EscapeString(url) + `</a>`
	node.Parent().ReplaceChild(node.Parent(), node, rawHTML(link))
}

// plainText returns the text of a node without its markup.
func plainText(node ast.Node, source []byte) string {
	var words strings.Builder
	walkNodes(node, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			// A line break in the source separates words.
			if n.SoftLineBreak() {
				words.WriteByte(' ')
			}
		case *ast.String:
			words.Write(n.Value)
		}
	})
	return words.String()
}

// anchorID returns the id of a heading, in the form that GitHub uses: a link that works there works here.
// seen counts the headings of the page with the same words.
func anchorID(words string, seen map[string]int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, words)
	// The first heading has the plain id, the second -1.
	seen[id]++
	if n := seen[id]; n > 1 {
		return fmt.Sprintf("%s-%d", id, n-1)
	}
	return id
}
