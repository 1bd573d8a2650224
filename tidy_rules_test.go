package gatehouse_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func checkClock(f *goFile, report reporter) {
	if f.test || within(f.folder, clockFolders) {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if f.names(n, "time", "Now") {
			report(n.Pos(), "time.Now is read, want the time as a parameter")
		}
		return true
	})
}

func checkPure(f *goFile, report reporter) {
	if f.test || !within(f.folder, pureFolders) {
		return
	}
	for _, spec := range f.syntax.Imports {
		if name := importPath(spec); within(name, pureForbids) {
			report(spec.Pos(), "%s imports %s, want values without locks, clocks and I/O", f.folder, name)
		}
	}
}

func checkStandard(f *goFile, report reporter) {
	if f.test || !within(f.folder, standardFolders) && !slices.Contains(standardAlone, f.folder) {
		return
	}
	for _, spec := range f.syntax.Imports {
		name := importPath(spec)
		host, _, _ := strings.Cut(name, "/")
		if strings.Contains(host, ".") && !within(name, []string{module}) {
			report(spec.Pos(), "%s imports %s, want only the standard library and ourselves", f.folder, name)
		}
	}
}

func checkImports(f *goFile, report reporter) {
	if f.test {
		return
	}
	allowed, known := allowedImports(f.folder)
	for _, spec := range f.syntax.Imports {
		name := importPath(spec)
		if !within(name, []string{module}) {
			continue
		}
		folder := path.Join(".", strings.TrimPrefix(name, module))
		switch {
		case !known:
			report(spec.Pos(), "%s imports %s, want a row for it in the table direction", f.folder, folder)
		case !slices.Contains(allowed, anything) && !within(folder, allowed):
			report(spec.Pos(), "%s imports %s, want only %q of this module", f.folder, folder, allowed)
		}
	}
}

// allowedImports is the row of the folder or of the nearest above it.
func allowedImports(folder string) (allowed []string, known bool) {
	for {
		if allowed, known = direction[folder]; known || !strings.Contains(folder, "/") {
			return allowed, known
		}
		folder = path.Dir(folder)
	}
}

// An export is one exported top-level name or method.
type export struct {
	name    *ast.Ident
	method  bool
	isType  bool
	grouped bool // one of a block, whose comment may speak for all
	doc     string
}

// exports are the exported names the file declares.
func (f *goFile) exports() []export {
	var all []export
	for _, decl := range f.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil || ast.IsExported(receiver(decl.Recv.List[0].Type)) {
				all = append(all, export{name: decl.Name, method: decl.Recv != nil, doc: decl.Doc.Text()})
			}
		case *ast.GenDecl:
			all = append(all, declared(decl)...)
		}
	}
	return slices.DeleteFunc(all, func(e export) bool { return !e.name.IsExported() })
}

// declared are the names of one type, const or var declaration.
func declared(decl *ast.GenDecl) []export {
	var all []export
	block := decl.Lparen.IsValid()
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc.Text()
			if !block {
				doc = decl.Doc.Text()
			}
			all = append(all, export{name: spec.Name, isType: true, doc: doc})
		case *ast.ValueSpec:
			doc := decl.Doc.Text() + spec.Doc.Text() + spec.Comment.Text()
			for _, name := range spec.Names {
				all = append(all, export{name: name, grouped: block || len(spec.Names) > 1, doc: doc})
			}
		}
	}
	return all
}

// receiver is the name of the type a method belongs to.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

var (
	firstWord = regexp.MustCompile(`^[\pL_][\pL\pN_]*`)
	article   = regexp.MustCompile(`^(A|An|The) `)
	address   = regexp.MustCompile(`https?://`) // cannot be broken over two lines
)

func checkDocs(f *goFile, report reporter) {
	if f.test {
		return
	}
	for _, e := range f.exports() {
		doc := e.doc
		if e.isType {
			doc = article.ReplaceAllString(doc, "")
		}
		if e.grouped && doc == "" {
			report(e.name.Pos(), "%s has no comment, nor has its block, want one", e.name)
		}
		if !e.grouped && firstWord.FindString(doc) != e.name.Name {
			report(e.name.Pos(), "%s has no comment that starts with it, want one", e.name)
		}
	}
}

// exportFindings are the packages that show too many names.
func exportFindings(files []*goFile) []finding {
	names := map[string][]string{}
	for _, f := range files {
		if f.test || f.syntax.Name.Name == "main" || slices.Contains(crowdedFolders, f.folder) {
			continue
		}
		for _, e := range f.exports() {
			if !e.method {
				names[f.folder] = append(names[f.folder], e.name.Name)
			}
		}
	}
	var found []finding
	for folder, shown := range names {
		if len(shown) > maxExports {
			text := fmt.Sprintf("%d exported names, want at most %d: %s",
				len(shown), maxExports, strings.Join(shown, " "))
			found = append(found, finding{"exports", folder, 0, text})
		}
	}
	return found
}

func checkFunction(f *goFile, report reporter) {
	for _, decl := range f.syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && f.lines(function) > maxFunction {
			report(function.Pos(), "%s has %d lines, want at most %d",
				function.Name, f.lines(function), maxFunction)
		}
	}
}

func checkNesting(f *goFile, report reporter) {
	ast.Walk(nesting{report: report}, f.syntax)
}

// nesting walks a tree and knows how many blocks it is inside of.
type nesting struct {
	depth   int
	chained ast.Stmt // the else-if of the if it is inside of, which is no deeper than that
	report  reporter
}

// Visit is one step of ast.Walk.
func (v nesting) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.FuncLit:
		return nesting{report: v.report}
	case *ast.IfStmt:
		if v.chained == ast.Stmt(n) {
			v.depth--
		}
		v.chained = n.Else
	case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
	default:
		return v
	}
	v.depth++
	if v.depth == maxNesting+1 {
		v.report(n.Pos(), "a block %d deep, want at most %d", v.depth, maxNesting)
	}
	return v
}

func checkParameters(f *goFile, report reporter) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		function, ok := n.(*ast.FuncType)
		if ok && function.Params.NumFields() > maxParameters {
			report(n.Pos(), "%d parameters, want at most %d, then a struct",
				function.Params.NumFields(), maxParameters)
		}
		return true
	})
}

func checkFile(f *goFile, report reporter) {
	if n := strings.Count(f.text, "\n"); n > maxFile {
		report(token.NoPos, "%d lines, want at most %d", n, maxFile)
	}
}

func checkColumns(f *goFile, report reporter) {
	start := f.fset.File(f.syntax.FileStart)
	for i, line := range strings.Split(f.text, "\n") {
		columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
		if columns > maxColumns && !address.MatchString(line) {
			report(start.LineStart(i+1), "%d columns, want at most %d", columns, maxColumns)
		}
	}
}

func checkInit(f *goFile, report reporter) {
	for _, decl := range f.syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && function.Recv == nil && function.Name.Name == "init" {
			report(function.Pos(), "an init function, want it called by whoever needs it")
		}
	}
}

func checkVariables(f *goFile, report reporter) {
	for _, decl := range f.syntax.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.VAR {
			continue
		}
		for _, spec := range block.Specs {
			spec := spec.(*ast.ValueSpec)
			if !embeds(block.Doc) && !embeds(spec.Doc) && !constant(f, spec) {
				report(spec.Pos(), "variable %s, want only tables, errors, compiled patterns", spec.Names[0])
			}
		}
	}
}

// embeds reports whether the comment fills the variable below it from a file.
func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constant reports whether the variables are what Go has no constants for, or a check without a name.
func constant(f *goFile, spec *ast.ValueSpec) bool {
	named := func(name *ast.Ident) bool { return name.Name != "_" }
	if !slices.ContainsFunc(spec.Names, named) {
		return true
	}
	changes := func(value ast.Expr) bool { return !isTable(value) && !isMade(f, value) }
	return len(spec.Values) > 0 && !slices.ContainsFunc(spec.Values, changes)
}

// isTable reports whether the value is a literal list or map.
func isTable(value ast.Expr) bool {
	literal, ok := value.(*ast.CompositeLit)
	if !ok {
		return false
	}
	switch literal.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// isMade reports whether the value is an error, a compiled pattern or a parsed template.
func isMade(f *goFile, value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	if name, ok := call.Fun.(*ast.Ident); ok {
		return name.Name == "Errorf"
	}
	return f.names(call.Fun, "errors", "New") || f.names(call.Fun, "fmt", "Errorf") ||
		f.names(call.Fun, module, "Errorf") || f.names(call.Fun, "regexp", "MustCompile") ||
		f.names(call.Fun, "html/template", "Must") || f.names(call.Fun, "text/template", "Must")
}

// outsideWords belong to places a reader of this repository cannot see. They are cut in two here,
// so that this file does not hold them.
var outsideWords = []string{
	"/wor" + "k/", "../sha" + "red", "spec" + " §", "design" + " §", "clau" + "de", "suba" + "gent",
}

// wordFindings are the lines of all text files, of whatever kind, that hold one of outsideWords.
func wordFindings(t *testing.T) []finding {
	t.Helper()
	if _, err := os.Stat(".git"); err != nil {
		return nil // a copy without its history: nothing says which files belong to it
	}
	git := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "-co", "--exclude-standard")
	list, err := git.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var found []finding
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not yet from the index
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.ContainsRune(text, 0) {
			found = append(found, wordsIn(name, string(text))...)
		}
	}
	return found
}

// wordsIn are the lines of one file that hold one of outsideWords.
func wordsIn(name, text string) []finding {
	var found []finding
	for i, line := range strings.Split(strings.ToLower(text), "\n") {
		for _, word := range outsideWords {
			if strings.Contains(line, word) {
				text := fmt.Sprintf("%q, want words a reader can look up here", word)
				found = append(found, finding{"words", name, i + 1, text})
			}
		}
	}
	return found
}
