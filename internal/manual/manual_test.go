package manual

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/openapi"
)

// rendered is all pages by their paths, as they are answered; those that are elsewhere lead there.
func rendered(t *testing.T) (m *Manual, pages map[string]Page) {
	t.Helper()
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	pages = make(map[string]Page)
	for url := range m.pages {
		page, ok, err := m.Page(url)
		if err != nil || !ok {
			t.Fatalf("Page(%q) = %t, %v, want it", url, ok, err)
		}
		pages[url] = page
	}
	return m, pages
}

var (
	target  = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	inline  = regexp.MustCompile(`<style|<script[^>]*>[^<]|<[^>]+ (?:style|on[a-z]+)="`)
	refer   = regexp.MustCompile(`href="([^"]*)" aria-current`)
	comment = regexp.MustCompile(`raw HTML|<!--`)
)

// Each link of each page leads to a page and a place that are there, and each link out of the pages to a file
// of the repository or another site.
func TestLinksResolve(t *testing.T) {
	_, pages := rendered(t)
	links := 0
	for url, page := range pages {
		if page.Location != "" {
			if _, ok := pages[join(url, page.Location)]; !ok {
				t.Errorf("%s leads to %s, which is not there", url, page.Location)
			}
			continue
		}
		if !strings.HasPrefix(page.Type, "text/html") {
			continue
		}
		for _, found := range target.FindAllStringSubmatch(string(page.Body), -1) {
			links++
			checkLink(t, pages, url, found[1])
		}
	}
	for url, page := range pages {
		if page.Location == "" && page.Type == "" {
			t.Errorf("%s has no Content-Type", url)
		}
	}
	if links < 1000 {
		t.Errorf("there are %d links, want more", links)
	}
}

// join is the path to which a relative link leads.
func join(url, link string) string {
	to := path.Join("/", path.Dir("/"+url+"x"), link)
	if strings.HasSuffix(link, "/") && to != "/" {
		to += "/"
	}
	return to[1:]
}

func checkLink(t *testing.T, pages map[string]Page, url, link string) {
	t.Helper()
	if file, ours := strings.CutPrefix(link, repositoryURL); ours {
		file, _, _ = strings.Cut(file, "#")
		if _, err := os.Stat("../../" + file); err != nil {
			t.Errorf("%s links to %s: %v", url, link, err)
		}
		return
	}
	if link == "data:," || strings.Contains(link, "://") {
		return
	}
	if page, ours := strings.CutPrefix(link, relativeLink(url, "../")); ours {
		checkServerPage(t, "/"+page)
		return
	}
	to, place, _ := strings.Cut(link, "#")
	if to = join(url, to); link[0] == '#' {
		to = url
	}
	page, ok := pages[to]
	switch {
	case !ok || page.Location != "":
		t.Errorf("%s links to %s, which is not a page: %q", url, link, to)
	case place != "" && !strings.Contains(string(page.Body), ` id="`+place+`"`):
		t.Errorf("%s links to %s, which has no such heading", url, link)
	}
}

// checkServerPage wants a path to be one of the server's, beside the manual.
func checkServerPage(t *testing.T, url string) {
	t.Helper()
	document, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(document.Operations, func(op openapi.Operation) bool { return op.Path == url }) {
		t.Errorf("there is a link to %s, which is no page", url)
	}
}

// A policy that allows nothing inline holds for all pages, and nothing comes from elsewhere.
func TestPagesAreSelfContained(t *testing.T) {
	_, pages := rendered(t)
	for url, page := range pages {
		if !strings.HasPrefix(page.Type, "text/html") {
			continue
		}
		body := string(page.Body)
		if found := inline.FindString(body); found != "" {
			t.Errorf("%s has %q inline", url, found)
		}
		if found := comment.FindString(body); found != "" {
			t.Errorf("%s has %q, want such taken away", url, found)
		}
		for line := range strings.SplitSeq(body, "<") {
			fetched := strings.HasPrefix(line, "script") || strings.HasPrefix(line, "link") ||
				strings.HasPrefix(line, "img")
			if fetched && strings.Contains(line, "://") {
				t.Errorf("%s fetches <%s", url, line)
			}
		}
	}
}

// Every page is in the tree once, and is marked there where it is shown.
func TestTreeHasEveryPage(t *testing.T) {
	m, pages := rendered(t)
	for _, s := range m.sources {
		listed := 0
		for _, other := range m.order {
			if other == s {
				listed++
			}
		}
		if listed != 1 {
			t.Errorf("%s is in the tree %d times, want once", s.file, listed)
		}
		marked := refer.FindAllStringSubmatch(string(pages[s.url].Body), -1)
		if s.file != homeFile && (len(marked) != 1 || join(s.url, marked[0][1]) != s.url) {
			t.Errorf("%s marks %v in its tree, want itself", s.url, marked)
		}
	}
}

func TestBeside(t *testing.T) {
	m, _ := rendered(t)
	before, behind := m.neighbours(m.order[0])
	if before != nil || behind != m.order[1] {
		t.Errorf("beside the first are %v and %v", before, behind)
	}
	end := len(m.order) - 1
	if before, behind = m.neighbours(m.order[end]); before != m.order[end-1] || behind != nil {
		t.Errorf("beside the last are %v and %v", before, behind)
	}
}

// What Markdown has comes out as HTML.
func TestArticle(t *testing.T) {
	m, _ := rendered(t)
	s := &pageSource{file: "docs/stores/x.md", url: "stores/x", text: []byte("# A `b` c!\n\n" +
		"## Same\n\n## Same\n\n" +
		"<!-- tested -->\n```sh\n$ echo '<hi>'\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n" +
		"[up](../protocols/http.md#calls) [dir](../decisions) [code](../../go.mod) <http://localhost:5505/metrics> " +
		"<i>x</i> &amp; <https://example.com/>\n")}
	got, headings, err := m.renderArticle(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<h1 id="a-b-c">A <code>b</code> c!<a class="anchor" href="#a-b-c"`, `<h2 id="same-1">`,
		"<pre><code class=\"language-sh\">$ echo '&lt;hi&gt;'\n</code></pre>", "<th>a</th>", "<td>1</td>",
		`<a href="../protocols/http#calls">up</a>`, `<a href="../decisions/">dir</a>`,
		`<a href="` + repositoryURL + `go.mod">code</a>`,
		`<a href="../../metrics">http://localhost:5505/metrics</a>`,
		`x &amp; <a href="https://example.com/">`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the article lacks %s", want)
		}
	}
	want := []heading{{"same", "Same"}, {"same-1", "Same"}}
	if strings.Contains(got, "tested") || !slices.Equal(headings, want) {
		t.Errorf("headings are %v, article\n%s", headings, got)
	}
}
