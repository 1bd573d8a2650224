// Command portable finds out whether all packages of a module compile for some operating systems, as far as
// their types tell. It asks no compiler, so that it takes seconds:
//
//	cd tools && go run ./portable .. darwin windows
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	well := true
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: portable FOLDER SYSTEM...")
		os.Exit(2)
	}
	folder := os.Args[1]
	// All systems are checked, also after one has failed.
	for _, system := range os.Args[2:] {
		if err := check(folder, system); err != nil {
			fmt.Fprintf(os.Stderr, "%s for %s: %v\n", folder, system, err)
			well = false
		}
	}
	if !well {
		os.Exit(1)
	}
}

// check loads all packages with the types of their whole source, but of what they import only the
// declarations.
func check(folder, system string) error {
	root, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	config := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir: folder,
		// Without cgo, whose files need a C compiler for the other system.
		Env: append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				cutBodies(file)
			}
			return file, err
		},
	}
	all, err := packages.Load(config, "./...")
	if err != nil {
		return err
	}
	n := 0
	for _, p := range all {
		for _, err := range p.Errors {
			fmt.Fprintln(os.Stderr, err)
			n++
		}
	}
	// No package at all is a wrong folder, and must not look like success.
	if n > 0 || len(all) == 0 {
		return fmt.Errorf("%d packages have %d errors", len(all), n)
	}
	fmt.Printf("%s for %s: the types of %d packages fit\n", folder, system, len(all))
	return nil
}

// cutBodies leaves of all functions only that they do not return. What is in them takes most of the time, and
// says nothing about their callers. Imports that are then unused are errors in what is imported, and those are
// not reported.
func cutBodies(file *ast.File) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if ok && function.Body != nil {
			call := &ast.CallExpr{Fun: ast.NewIdent("panic"), Args: []ast.Expr{ast.NewIdent("nil")}}
			function.Body = &ast.BlockStmt{List: []ast.Stmt{&ast.ExprStmt{X: call}}}
		}
	}
}
