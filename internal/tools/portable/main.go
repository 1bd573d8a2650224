// Command portable finds out whether all packages of a module compile for some operating systems, as far as
// their types tell. It asks no compiler, so that it takes seconds:
//
//	cd tools && go run ./portable .. darwin windows
package main

import (
	"fmt"
	"os"

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
	config := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir: folder,
		// Without cgo, whose files need a C compiler for the other system.
		Env: append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
	}
	all, err := packages.Load(config, "./...")
	if err != nil {
		return err
	}
	// No package at all is a wrong folder, and must not look like success.
	if n := packages.PrintErrors(all); n > 0 || len(all) == 0 {
		return fmt.Errorf("%d packages have %d errors", len(all), n)
	}
	fmt.Printf("%s for %s: the types of %d packages fit\n", folder, system, len(all))
	return nil
}
