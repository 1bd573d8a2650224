package gatehouse_test

import (
	"cmp"
	"go/ast"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goExample  = regexp.MustCompile("(?s)```go\n(.*?)```")
	qualified  = regexp.MustCompile(`(?:^|[^\w.])([a-z]\w*)\.([A-Z]\w*)`)
	importName = map[string]string{"sw": "slidingwindow"} // of packages that pages import by another name
)

// Examples in Go on pages name what is in the packages of this module.
func TestNamesInExamples(t *testing.T) {
	names := exportedNames(t)
	found := 0
	for _, page := range examplePages(t) {
		var examples string
		for _, example := range goExample.FindAllStringSubmatch(readPage(t, page), -1) {
			examples += example[1]
		}
		for _, use := range qualified.FindAllStringSubmatch(examples, -1) {
			name := cmp.Or(importName[use[1]], use[1])
			known := names[name]
			if known == nil {
				continue // a package of others, or a variable
			}
			found++
			// A variable may have the name of a package, and then calls a method: both are known.
			if !known[use[2]] {
				t.Errorf("%s: an example has %s.%s, want a name that is in a package %s",
					page, use[1], use[2], name)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d names of this module were found, want at least 20", found)
	}
}

// examplePages are the pages that may have examples: decisions may tell of what was once.
func examplePages(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md"}
	err := filepath.WalkDir("docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") && !strings.Contains(name, "decisions") {
			pages = append(pages, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// exportedNames are those of functions, methods, types, fields, constants and variables, by the package.
func exportedNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names := make(map[string]map[string]bool)
	for _, f := range readGoFiles(t) {
		// Those of front have the names of packages of the standard library.
		if f.test || strings.HasPrefix(f.folder, "internal/front/") {
			continue
		}
		known := names[f.syntax.Name.Name]
		if known == nil {
			known = make(map[string]bool)
			names[f.syntax.Name.Name] = known
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				known[n.Name.Name] = true
				return false
			case *ast.TypeSpec:
				known[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					known[name.Name] = true
				}
			case *ast.Field:
				for _, name := range n.Names {
					known[name.Name] = true
				}
			}
			return true
		})
	}
	return names
}
