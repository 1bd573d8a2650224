package gatehouse_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The house rules, kept by a test. A finding reads "file.go:12: rule: what is wrong, want what".
// Generated code, testdata and folders with a go.mod of their own are not looked at.

// exceptions says where a rule bends, and why, by "rule file" ("exports folder" for that rule).
// An entry that is not needed any more fails the test: the table may only shrink.
var exceptions = map[string]string{
	"clock slidingwindow/clock.go":                 "Allow takes no time, as in the library it stands for",
	"exports slidingwindow":                        "it shows the names of the library it stands in for",
	"standard slidingwindow/redisstore/store.go":   "it speaks to Redis; its parent does not",
	"variables slidingwindow/background.go":        "one goroutine for a process needs one place in it",
	"clock internal/certstest/certstest.go":        "certificates for tests begin and end around now",
	"clock internal/telemetry/telemetry.go":        "metrics own a clock, as a store does",
	"clock limiter/clock.go":                       "a limiter owns its clock, as a store does",
	"variables internal/zone/zone.go":              "a time zone is read once, not once for each name",
	"parameters client/lease/interceptor.go":       "gRPC says what an interceptor is given",
	"parameters middleware/grpcmiddleware/grpc.go": "gRPC says what an interceptor is given",
	"parameters internal/election/faults_test.go":  "gRPC says what an interceptor is given",
	"parameters store/cas/etcd/lost_test.go":       "gRPC says what an interceptor is given",
	"clock internal/await/await.go":                "it looks again and again, for tests",
	"sleep internal/await/await.go":                "another process is asked, it sends no event",
	"sleep test/sim/net_test.go":                   "its connections are only used in virtual time",
	"sleep internal/redistest/proxy.go":            "it plays a network that is slow",
	"sleep test/e2e/run_rounds_test.go":            "a fault lasts for a time",
	"sleep test/holds/holds_test.go":               "a fault lasts for a time",
	"sleep test/holds/worker_test.go":              "it is a program that works for a time",
	"sleep internal/election/faults_test.go":       "it plays a network that is slow",
	"sleep test/e2e/tree_fleet_test.go":            "a client asks again when its lease says so",
	"variables internal/freeport/freeport.go":      "two tests must not be given the same port",
	"init internal/supervisor/guard/guard.go":      "a guard starts before the packages of the server",
	"variables internal/supervisor/guard/guard.go": "what init leaves for main",
}

const (
	module = "github.com/gatehousehq/gatehouse"

	maxExports    = 20  // names of a package: what a reader can keep in mind
	maxFunction   = 70  // lines: what fits on one screen
	maxNesting    = 3   // blocks of if, for, switch, select inside each other
	maxParameters = 4   // from the fifth on they belong in a struct
	maxFile       = 400 // lines
	maxColumns    = 110 // with tabs of tabColumns
	tabColumns    = 4
)

var (
	// clockFolders are where time.Now may be read: stores own the clock, commands hand it out, clients and
	// candidates run in other people's programs and have their own. Slices of work are of processor time.
	clockFolders = []string{
		"store", "cmd", "client", "hold", "middleware", "internal/asking", "internal/election",
		"internal/timeslice", "test",
	}
	// pureFolders hold values only, and so must not import what pureForbids.
	pureFolders = []string{"control", "capacity"}
	pureForbids = []string{"sync", "context", "net", "os", "log"}
	// standardFolders depend on nobody else's code.
	standardFolders = []string{".", "control", "gate", "limiter", "slidingwindow", "hold"}
	// standardAlone do too, but not what is below them.
	standardAlone = []string{"client", "middleware"}
	// crowdedFolders are the vocabulary and its controllers, and those of capacity: each kind brings names of
	// its own.
	crowdedFolders = []string{".", "control", "capacity"}
)

// rules look at one file each. The rules sleep, exports, homonyms, oneword and words stand apart.
var rules = []struct {
	name  string
	check func(f *goFile, report reporter)
}{
	{"clock", checkClock},
	{"pure", checkPure},
	{"standard", checkStandard},
	{"imports", checkImports},
	{"docs", checkDocs},
	{"function", checkFunction},
	{"nesting", checkNesting},
	{"parameters", checkParameters},
	{"file", checkFile},
	{"columns", checkColumns},
	{"init", checkInit},
	{"variables", checkVariables},
	{"effects", checkEffects},
	{"mute", checkMute},
}

// A reporter notes what is wrong at a place.
type reporter func(at token.Pos, format string, args ...any)

// A finding is one place that breaks a rule. Line 0 speaks of the whole file or folder.
type finding struct {
	rule, file string
	line       int
	text       string
}

// String is the finding as editors and terminals like to follow it.
func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.file, f.rule, f.text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.rule, f.text)
}

func TestTidy(t *testing.T) {
	files := readGoFiles(t)
	if len(files) == 0 {
		t.Fatal("no Go files found, want this repository")
	}
	found := append(goFindings(files), wordFindings(t)...)
	for _, name := range ruleNames() {
		t.Run(name, func(t *testing.T) {
			for _, f := range found {
				if f.rule == name && exceptions[f.rule+" "+f.file] == "" {
					t.Error(f)
				}
			}
		})
	}
	t.Run("exceptions", func(t *testing.T) {
		for entry := range exceptions {
			needed := func(f finding) bool { return f.rule+" "+f.file == entry }
			if !slices.ContainsFunc(found, needed) {
				t.Errorf("exception %q is not needed any more, want it gone", entry)
			}
		}
	})
}

// ruleNames are the names of all rules, in the order they are shown.
func ruleNames() []string {
	names := make([]string, 0, len(rules)+5)
	for _, r := range rules {
		names = append(names, r.name)
	}
	return append(names, "sleep", "exports", "homonyms", "oneword", "words")
}

// goFindings is what breaks the rules for Go code in files.
func goFindings(files []*goFile) []finding {
	var found []finding
	for _, f := range files {
		for _, r := range rules {
			r.check(f, func(at token.Pos, format string, args ...any) {
				found = append(found, finding{r.name, f.path, f.line(at), fmt.Sprintf(format, args...)})
			})
		}
	}
	return slices.Concat(found, sleepFindings(files), exportFindings(files), nameFindings(files))
}

// A goFile is one parsed file of the repository.
type goFile struct {
	path   string // from the root, with slashes
	folder string // "." is the root
	test   bool
	text   string
	fset   *token.FileSet
	syntax *ast.File
}

func parseGoFile(name, text string) (*goFile, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	test := strings.HasSuffix(name, "_test.go")
	return &goFile{name, path.Dir(name), test, text, fset, syntax}, nil
}

// readGoFiles parses every hand-written Go file of this module.
func readGoFiles(t *testing.T) []*goFile {
	t.Helper()
	var files []*goFile
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && leftOut(name):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".pb.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parseGoFile(filepath.ToSlash(name), string(text))
		if err != nil {
			return err
		}
		if !ast.IsGenerated(f.syntax) {
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// leftOut reports whether a folder is none of this module: hidden, test data or its own module.
func leftOut(folder string) bool {
	base := filepath.Base(folder)
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return base == "testdata" || strings.HasPrefix(base, ".") || err == nil
}

// line is the line of a place, and 0 for no place.
func (f *goFile) line(at token.Pos) int {
	return f.fset.Position(at).Line
}

// lines is the number of lines a node covers.
func (f *goFile) lines(n ast.Node) int {
	return f.line(n.End()) - f.line(n.Pos()) + 1
}

// names reports whether n is the name of a package, as in time.Now, whatever its import is called.
func (f *goFile) names(n ast.Node, pkg, name string) bool {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == f.localName(pkg)
}

// localName is what a package is called in this file, and empty if it is not imported.
func (f *goFile) localName(pkg string) string {
	for _, spec := range f.syntax.Imports {
		switch {
		case importPath(spec) != pkg:
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path.Base(pkg)
		}
	}
	return ""
}

func importPath(spec *ast.ImportSpec) string {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(err) // the parser took it
	}
	return name
}

// within reports whether name is one of folders or lies below one. Below "." there is nothing.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return name == folder || strings.HasPrefix(name, folder+"/")
	})
}
