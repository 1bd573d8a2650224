package gatehouse_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// The rules about words and reasons: what a reader finds out only by reading everything twice.

const (
	// maxOneWord is how many of a hundred unexported functions may be named by one bare word, tests aside.
	// This may only fall.
	maxOneWord = 25
	// maxMute is how many lines a function may have without a comment inside, in explainedFolders.
	maxMute = 24
)

// explainedFolders hold what is hard: there a long function says somewhere why.
var explainedFolders = []string{"control", "gate", "store", "internal/front"}

// homonyms are the names of types that may stand in several packages, and why.
var homonyms = map[string]string{
	"Config":      "each package that is configured has one, as in Go's own libraries",
	"Policy":      "what is in force: of users, of a limit",
	"Store":       "what keeps state, by the package it is in: memory, disk, redis",
	"Server":      "what listens, by the protocol it speaks",
	"Gate":        "an interface belongs to its caller: what each front asks of a gate",
	"Decision":    "a decision, by what is decided",
	"Backend":     "an interface belongs to its caller",
	"Election":    "an interface belongs to its caller",
	"Limiter":     "a limiter, by the package it is in",
	"Semaphore":   "a semaphore, by the package it is in",
	"Client":      "a client, by the protocol it speaks",
	"metrics":     "each package that counts has one",
	"shard":       "one of many parts with a lock of its own",
	"waiter":      "whoever waits, by the package it is in",
	"line":        "the requests that wait under one name",
	"Request":     "what a caller asks for: of a gate a decision, of a capacity server a lease",
	"T":           "what a helper needs of testing.T",
	"Hold":        "what is held: by a program, and in a history that is judged",
	"GrantRecord": "what is remembered of a grant: as others see it, and as the state that keeps it",
	"Window":      "slidingwindow has the names of the library it stands in for",
}

// checkEffects finds an if whose init changes what was there before: a reader looks for a condition there.
func checkEffects(f *goFile, report reporter) {
	if f.test {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.IfStmt); ok && hasEffect(s.Init) {
			report(s.Pos(), "an if whose init changes something, want that in a statement of its own")
		}
		return true
	})
}

// hasEffect reports whether a statement sets what was there before, an error aside.
func hasEffect(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(left ast.Expr) bool {
			name, ok := left.(*ast.Ident)
			return !ok || name.Name != "err" && name.Name != "_"
		})
	}
	return false
}

// checkMute finds long functions without a comment inside.
func checkMute(f *goFile, report reporter) {
	if f.test || !within(f.folder, explainedFolders) {
		return
	}
	for _, decl := range f.syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Body == nil || f.lines(function.Body) <= maxMute {
			continue
		}
		inside := func(g *ast.CommentGroup) bool {
			return g.Pos() > function.Body.Pos() && g.End() < function.Body.End()
		}
		if !slices.ContainsFunc(f.syntax.Comments, inside) {
			report(function.Pos(), "%s has %d lines and no comment, want the reason of its hardest step",
				function.Name, f.lines(function.Body))
		}
	}
}

// nameFindings are the types whose name stands in several packages without a reason, and the share of
// functions that are named by one word, if it is too high.
func nameFindings(files []*goFile) []finding {
	var found []finding
	for name, folders := range typeFolders(files) {
		if len(folders) > 1 && homonyms[name] == "" {
			text := fmt.Sprintf("type %s is in %s, want one meaning per word, or a reason in homonyms",
				name, strings.Join(folders, ", "))
			found = append(found, finding{"homonyms", folders[0], 0, text})
		}
	}
	functions, oneWord := functionNames(files)
	if 100*oneWord > maxOneWord*functions && len(files) > 1 {
		text := fmt.Sprintf("%d of %d unexported functions are named by one word, want at most %d %%",
			oneWord, functions, maxOneWord)
		found = append(found, finding{"oneword", ".", 0, text})
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// typeFolders are the folders that declare each type, tests aside.
func typeFolders(files []*goFile) map[string][]string {
	folders := map[string][]string{}
	for _, f := range files {
		for _, name := range f.typeNames() {
			if !slices.Contains(folders[name], f.folder) {
				folders[name] = append(folders[name], f.folder)
			}
		}
	}
	return folders
}

// typeNames are the names of the types that a file declares, tests aside.
func (f *goFile) typeNames() (names []string) {
	for _, decl := range f.syntax.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || f.test || block.Tok != token.TYPE {
			continue
		}
		for _, spec := range block.Specs {
			names = append(names, spec.(*ast.TypeSpec).Name.Name)
		}
	}
	return names
}

// functionNames counts the unexported functions and methods, tests aside, and those named by one word.
func functionNames(files []*goFile) (functions, oneWord int) {
	for _, f := range files {
		for _, decl := range f.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || f.test || !isUnexported(function.Name.Name) {
				continue
			}
			functions++
			if !strings.ContainsFunc(function.Name.Name, unicode.IsUpper) {
				oneWord++
			}
		}
	}
	return functions, oneWord
}

// isUnexported reports whether a function is only called in its package, by a name of our choice.
func isUnexported(name string) bool {
	return !ast.IsExported(name) && name != "main" && name != "init" && name != "_"
}
