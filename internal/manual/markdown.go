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

// repository is where links lead to what is not among the pages.
const repository = "https://github.com/gatehousehq/gatehouse/blob/main/"

// local begins links to a server on the usual address. In the manual they lead to the server that shows it.
const local = "http://localhost:5505/"

func markdown() goldmark.Markdown { return goldmark.New(goldmark.WithExtensions(extension.Table)) }

func parse(source []byte) ast.Node { return markdown().Parser().Parse(text.NewReader(source)) }

// walk visits a node and all below it.
func walk(node ast.Node, visit func(ast.Node)) {
	visit(node)
	for child := node.FirstChild(); child != nil; {
		next := child.NextSibling() // visit may take the child away
		walk(child, visit)
		child = next
	}
}

// A heading is where a page can be entered.
type heading struct{ ID, Text string }

// article makes HTML of a page's Markdown, and tells its headings of the second level.
func (m *Manual) article(s *source) (body string, headings []heading, err error) {
	document := parse(s.text)
	seen := make(map[string]int)
	walk(document, func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Heading:
			words := plain(node, s.text)
			id := anchor(words, seen)
			node.SetAttributeString("id", []byte(id))
			node.AppendChild(node, raw(
				`<a class="anchor" href="#`+id+`" aria-label="Link to this heading">#</a>`))
			if node.Level == 2 {
				headings = append(headings, heading{id, words})
			}
		case *ast.Link:
			node.Destination = []byte(m.link(s, string(node.Destination)))
		case *ast.AutoLink:
			m.retarget(s, node)
		case *ast.HTMLBlock, *ast.RawHTML: // comments for our tests
			node.Parent().RemoveChild(node.Parent(), node)
		}
	})
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, s.text, document); err != nil {
		return "", nil, fmt.Errorf("rendering %s: %w", s.file, err)
	}
	return out.String(), headings, nil
}

// raw is HTML that is written as it stands.
func raw(markup string) ast.Node {
	node := ast.NewString([]byte(markup))
	node.SetCode(true) // a raw one is still escaped
	return node
}

// link is where a link of a page leads in the manual.
func (m *Manual) link(from *source, to string) string {
	if rest, ok := strings.CutPrefix(to, local); ok {
		if page, ok := strings.CutPrefix(rest, "docs/"); ok {
			return relative(from.url, page)
		}
		return relative(from.url, "../"+rest)
	}
	if strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "mailto:") {
		return to
	}
	file, anchor, _ := strings.Cut(to, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	file = path.Join(path.Dir(from.file), file)
	switch {
	case m.sources[file] != nil:
		return relative(from.url, m.sources[file].url) + anchor
	case m.sources[file+"/README.md"] != nil:
		return relative(from.url, m.sources[file+"/README.md"].url)
	case m.pages[strings.TrimPrefix(file, "docs/")] != nil: // a picture
		return relative(from.url, strings.TrimPrefix(file, "docs/"))
	}
	return repository + file + anchor
}

// retarget lets a link that shows its own address lead to the server that shows the page, if it is one to the
// usual address.
func (m *Manual) retarget(s *source, node *ast.AutoLink) {
	url := string(node.URL(s.text))
	if !strings.HasPrefix(url, local) {
		return
	}
	link := `<a href="` + html.EscapeString(m.link(s, url)) + `">` + html.EscapeString(url) + `</a>`
	node.Parent().ReplaceChild(node.Parent(), node, raw(link))
}

// plain is the text of a node without its form.
func plain(node ast.Node, source []byte) string {
	var words strings.Builder
	walk(node, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			if n.SoftLineBreak() {
				words.WriteByte(' ')
			}
		case *ast.String:
			words.Write(n.Value)
		}
	})
	return words.String()
}

// anchor is the name of a heading, as GitHub has it: what leads there leads here too.
func anchor(words string, seen map[string]int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, words)
	seen[id]++
	if n := seen[id]; n > 1 {
		return fmt.Sprintf("%s-%d", id, n-1)
	}
	return id
}
