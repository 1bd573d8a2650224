// Package manual shows the documentation: pages of HTML made of the Markdown in docs/, with a tree of all
// pages at the side, and a page on which the HTTP API can be tried.
package manual

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/docs"
	"github.com/gatehousehq/gatehouse/internal/openapi"
)

// A Page is the answer at one path. All requests share its bytes, which must not be changed.
type Page struct {
	Type    string // the Content-Type
	Tag     string // the ETag
	Body    []byte
	Gzipped []byte // the same, compressed

	// Location is where the page is instead, relative to its own path; "" is here.
	Location string
}

// A Manual is all pages. Make one with New. It is safe for concurrent use.
type Manual struct {
	pages map[string]func() (Page, error)

	sources map[string]*pageSource // by their files
	tree    []*treeSection
	order   []*pageSource // of the tree, for the page before and the one behind
	api     *openapi.Document
}

// A pageSource is one page of Markdown.
type pageSource struct {
	file  string // in the repository, such as docs/controllers/gcra.md
	url   string // below the root of the manual, such as controllers/gcra
	label string // in the tree
	text  []byte
	index *pageSource // the index of its folder, if it is listed there and not in the tree
}

// New returns the manual. Pages are rendered when they are first asked for, once.
func New() (*Manual, error) {
	m := &Manual{pages: make(map[string]func() (Page, error)), sources: make(map[string]*pageSource)}
	if err := m.readFolder(gatehouse.Pages(), ""); err != nil {
		return nil, err
	}
	if err := m.readFolder(docs.Files(), "docs"); err != nil {
		return nil, err
	}
	// The tree needs all sources, and resolving the links in a page needs all paths. So nothing is rendered
	// before the manual is complete.
	m.addIndex("docs/decisions", "Decisions")
	m.buildTree()
	for _, s := range m.sources {
		m.pages[s.url] = renderOnce(func() (Page, error) { return m.renderSource(s) })
		m.addFileRedirects(s)
	}
	if err := m.addAPI(); err != nil {
		return nil, err
	}
	m.addRedirect("index.html", "./")
	if err := m.addAssets(); err != nil {
		return nil, err
	}
	return m, nil
}

// Page returns the page at a path below the root of the manual, which itself is "". ok is false where there
// is none.
func (m *Manual) Page(url string) (p Page, ok bool, err error) {
	// The map is not changed after New, so it needs no lock.
	page := m.pages[url]
	if page == nil {
		return Page{}, false, nil
	}
	p, err = page()
	return p, true, err
}

// renderOnce wraps render so that it is called at the first request only.
func renderOnce(render func() (Page, error)) func() (Page, error) {
	return sync.OnceValues(func() (Page, error) {
		p, err := render()
		if err != nil {
			return Page{}, err
		}
		return Compress(p)
	})
}

// Compress returns a page with its ETag, which is a hash of the body, and its compressed form.
func Compress(p Page) (Page, error) {
	// The tag is that of the plain body, so that both forms share it.
	hash := fnv.New64a()
	_, _ = hash.Write(p.Body) // never fails
	p.Tag = `"` + strconv.FormatUint(hash.Sum64(), 36) + `"`
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	_, err := to.Write(p.Body)
	if err = errors.Join(err, to.Close()); err != nil {
		return Page{}, fmt.Errorf("compressing a page of documentation: %w", err)
	}
	// Both stay for as long as the process lives, so they are kept without their spare capacity.
	p.Body, p.Gzipped = bytes.Clone(p.Body), bytes.Clone(packed.Bytes())
	return p, nil
}

// contentTypes are the Content-Types of files, by how their names end. The system's own table is not asked:
// it differs from system to system.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	".json": "application/json", ".yaml": "application/yaml",
}

// addFile adds a page that is sent as it is.
func (m *Manual) addFile(url string, body []byte) {
	m.pages[url] = renderOnce(func() (Page, error) {
		return Page{Type: contentTypes[path.Ext(url)], Body: body}, nil
	})
}

func (m *Manual) addRedirect(from, to string) {
	m.pages[from] = func() (Page, error) { return Page{Location: to}, nil }
}

// addFileRedirects redirects from the path of a source's file, and of its folder, to the page. So a link that
// works in the repository works in the manual.
func (m *Manual) addFileRedirects(s *pageSource) {
	// The targets are relative to the path that is redirected: an index is one level below its folder's name.
	folder, isIndex := strings.CutSuffix(s.url, "/")
	switch {
	case isIndex:
		m.addRedirect(s.url+"README.md", "./")
		m.addRedirect(folder, path.Base(folder)+"/")
	case s.url == "":
		m.addRedirect("README.md", "./")
	default:
		m.addRedirect(s.url+".md", path.Base(s.url))
	}
}

// readFolder adds all files of a folder of the repository: Markdown as sources, and others, such as pictures,
// as they are.
func (m *Manual) readFolder(files fs.FS, folder string) error {
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		// The folder is part of a source's name, as links are relative to files of the repository.
		switch path.Ext(name) {
		case ".md":
			m.addSource(path.Join(folder, name), text)
		default:
			m.addFile(name, text)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the pages of documentation: %w", err)
	}
	return nil
}

// addSource adds a page of Markdown. Its path is that of its file below docs/, without the ending; an index
// has the path of its folder.
func (m *Manual) addSource(file string, text []byte) {
	url := strings.TrimSuffix(strings.TrimPrefix(file, "docs/"), ".md")
	// The files at the root, such as README.md, are upper-case by custom. Their paths are not.
	switch {
	case path.Dir(file) == ".":
		url = strings.ToLower(url)
	case path.Base(url) == "README":
		url = strings.TrimSuffix(url, "README")
	}
	m.sources[file] = &pageSource{file: file, url: url, label: pageTitle(text), text: text}
}

// pageTitle returns the heading in the first line of a page.
func pageTitle(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "# ")
}

// relativeLink returns the link from one path of the manual to another.
func relativeLink(from, to string) string {
	// An empty link would lead to the page itself, and not to its folder.
	link := strings.Repeat("../", strings.Count(from, "/")) + to
	if link == "" {
		return "./"
	}
	return link
}
