package gatehouse_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// What pages say of the code is compared with it here. The table of flags is compared with the program, in
// test/config_test.go.

// programs are the folders from which the table of imports begins: all that a user runs or imports.
var programs = []string{
	"cmd/gatehouse", "client", "client/lease", "hold", "limiter", "middleware",
	"middleware/grpcmiddleware", "slidingwindow", "slidingwindow/redisstore",
}

// The table of who imports whom in docs/architecture.md has a row for each package that programs need, and
// names in it exactly what that package imports.
func TestImportTable(t *testing.T) {
	imports := importedFolders(t)
	want := make(map[string]string)
	var add func(folder string)
	add = func(folder string) {
		if _, known := want[folder]; known {
			return
		}
		names := []string{}
		for _, imported := range imports[folder] {
			names = append(names, pageName(imported))
		}
		want[folder] = strings.Join(names, ", ")
		if len(names) == 0 {
			want[folder] = "none"
		}
		for _, imported := range imports[folder] {
			add(imported)
		}
	}
	for _, folder := range programs {
		add(folder)
	}
	var rows strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&rows, "| %s | %s |\n", pageName(folder), want[folder])
	}
	const head = "| package | imports of this module |\n|---|---|\n"
	_, table, _ := strings.Cut(readPage(t, "docs/architecture.md"), head)
	table, _, _ = strings.Cut(table, "\n\n")
	if table+"\n" != rows.String() {
		t.Errorf("the table of imports in docs/architecture.md is\n%s\nwant\n%s", table, rows.String())
	}
}

// importedFolders are the folders of this module that the files of each folder import, tests aside.
func importedFolders(t *testing.T) map[string][]string {
	t.Helper()
	imports := make(map[string][]string)
	for _, f := range readGoFiles(t) {
		if f.test {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name, ours := strings.CutPrefix(importPath(spec), module)
			if ours && (name == "" || name[0] == '/') {
				imports[f.folder] = append(imports[f.folder], path.Clean("."+name))
			}
		}
	}
	for folder, list := range imports {
		slices.Sort(list)
		imports[folder] = slices.Compact(list)
	}
	return imports
}

// pageName is a folder as the table has it.
func pageName(folder string) string {
	if folder == "." {
		return "root"
	}
	return "`" + folder + "`"
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The first page is short enough to be read: what is longer has a page in docs.
func TestReadmeLength(t *testing.T) {
	const most = 250
	if lines := strings.Count(readPage(t, "README.md"), "\n"); lines > most {
		t.Errorf("README.md has %d lines, want at most %d", lines, most)
	}
}

// The table of folders in CONTRIBUTING.md has each folder of Go code, by itself or by one above it, and none
// that is not there.
func TestFolderTable(t *testing.T) {
	_, table, _ := strings.Cut(readPage(t, "CONTRIBUTING.md"), "| folder | holds |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for line := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, quoted := range regexp.MustCompile("`([^`]+)/`").FindAllStringSubmatch(cell, -1) {
			rows = append(rows, quoted[1])
			if info, err := os.Stat(quoted[1]); err != nil || !info.IsDir() {
				t.Errorf("the table of folders in CONTRIBUTING.md has %s/, which is not there", quoted[1])
			}
		}
	}
	for _, f := range readGoFiles(t) {
		above := f.folder
		for above != "." && !slices.Contains(rows, above) {
			above = path.Dir(above)
		}
		if above == "." && f.folder != "." {
			t.Errorf("the table of folders in CONTRIBUTING.md lacks %s/", f.folder)
			rows = append(rows, f.folder)
		}
	}
}

// All kinds are named where a reader meets the project first.
func TestKindsAreNamed(t *testing.T) {
	for _, page := range []string{"doc.go", "README.md", "docs/controllers/README.md"} {
		text := readPage(t, page)
		for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
			if !regexp.MustCompile(`\b` + kind.String() + `\b`).MatchString(text) {
				t.Errorf("%s does not name the kind %s", page, kind)
			}
		}
	}
}

// link finds the targets of links in Markdown, those with a scheme included.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Each page is reached from the README by links, and each link within the repository leads to something: a
// file, and a heading in it where it names one.
func TestPagesAreReached(t *testing.T) {
	reached := map[string]bool{"README.md": true}
	for queue := []string{"README.md"}; len(queue) > 0; queue = queue[1:] {
		for _, to := range linksOf(t, queue[0]) {
			if !reached[to] {
				reached[to] = true
				queue = append(queue, to)
			}
		}
	}
	err := filepath.WalkDir("docs", func(name string, _ fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		if err == nil && strings.HasSuffix(name, ".md") && !reached[name] {
			t.Errorf("no links lead from README.md to %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// linksOf are the pages that a page links to. A link to a folder leads to all pages in it.
func linksOf(t *testing.T, page string) (pages []string) {
	t.Helper()
	for _, found := range link.FindAllStringSubmatch(readPage(t, page), -1) {
		if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
			continue
		}
		file, heading, _ := strings.Cut(found[1], "#")
		to := path.Join(path.Dir(page), file)
		if file == "" {
			to = page
		}
		info, err := os.Stat(to)
		switch {
		case err != nil:
			t.Errorf("%s links to %s, which is not there", page, found[1])
		case info.IsDir():
			inside, _ := filepath.Glob(to + "/*.md")
			for _, name := range inside {
				pages = append(pages, filepath.ToSlash(name))
			}
		case strings.HasSuffix(to, ".md"):
			if heading != "" && !slices.Contains(headingsOf(t, to), heading) {
				t.Errorf("%s links to %s, which has no such heading", page, found[1])
			}
			pages = append(pages, to)
		}
	}
	return pages
}

// notInAnchor is what GitHub leaves out of the anchor of a heading.
var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)

// headingsOf are the anchors of a page.
func headingsOf(t *testing.T, page string) (anchors []string) {
	t.Helper()
	code := false
	for line := range strings.Lines(readPage(t, page)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "# "); ok && !code && line[0] == '#' {
			text = link.ReplaceAllString(text, "]")
			text = notInAnchor.ReplaceAllString(strings.ToLower(text), "")
			anchors = append(anchors, strings.ReplaceAll(text, " ", "-"))
		}
	}
	return anchors
}
