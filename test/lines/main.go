// Command lines counts the lines of Go code that the product is made of, by folder and in total: those that
// are neither blank nor only comment, without tests, generated code and what only tests and tools need.
// Run it by make lines, in the root of the repository.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// helpers are folders that the product does not need, beside those whose name says so.
var helpers = []string{"test", "internal/tools", "internal/await", "internal/freeport"}

func main() {
	revision := flag.String("at", "", "the git revision to count; empty is the working tree")
	flag.Parse()
	count := make(tally)
	var err error
	if *revision == "" {
		err = count.addTree()
	} else {
		err = count.addRevision(context.Background(), *revision)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
	fmt.Print(count)
}

// A tally is the number of lines of each folder.
type tally map[string]int

// String is a line for each folder, and one for all of them.
func (t tally) String() string {
	var text strings.Builder
	total := 0
	for _, folder := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&text, "%7d  %s\n", t[folder], folder)
		total += t[folder]
	}
	fmt.Fprintf(&text, "%7d  in total\n", total)
	return text.String()
}

// add counts one file, if it belongs to the product. Name has slashes.
func (t tally) add(name string, text []byte) {
	if isProduct(name) {
		t[path.Dir(name)] += codeLines(text)
	}
}

// addTree counts the working tree, whether it is committed or not.
func (t tally) addTree() error {
	return filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && len(name) > 1 && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if !isProduct(filepath.ToSlash(name)) {
			return nil
		}
		text, err := os.ReadFile(name)
		t.add(filepath.ToSlash(name), text)
		return err
	})
}

// addRevision counts what is in a commit.
func (t tally) addRevision(ctx context.Context, revision string) error {
	git := exec.CommandContext(ctx, "git", "archive", "--format=tar", "--end-of-options", revision)
	git.Stderr = os.Stderr
	archive, err := git.Output()
	if err != nil {
		return fmt.Errorf("git archive %s: %w", revision, err)
	}
	files := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("git archive %s: %w", revision, err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return fmt.Errorf("git archive %s: %w", revision, err)
		}
		t.add(header.Name, text)
	}
}

// isProduct is whether a file is Go code that is written by hand and part of what people run or import.
func isProduct(name string) bool {
	if !strings.HasSuffix(name, ".go") ||
		strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
		return false
	}
	folder := path.Dir(name)
	if strings.HasSuffix(folder, "test") || strings.Contains(name, "testdata/") {
		return false
	}
	return !slices.ContainsFunc(helpers, func(helper string) bool {
		return strings.HasPrefix(name, helper+"/")
	})
}

// codeLines is how many lines of a file hold code: at least a part of a token.
func codeLines(text []byte) int {
	lines := bytes.Split(text, []byte("\n"))
	n := 0
	for i, code := range linesWithTokens(text) {
		// A raw string may have blank lines.
		if code && len(bytes.TrimSpace(lines[i-1])) > 0 {
			n++
		}
	}
	return n
}

// linesWithTokens has those lines of a file, counted from 1, in which there is something else than comments.
func linesWithTokens(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var tokens scanner.Scanner
	tokens.Init(file, text, nil, 0) // without comments
	lines := make(map[int]bool)
	for {
		at, tok, literal := tokens.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.SEMICOLON && literal != ";" {
			continue // the scanner puts it in where a line ends
		}
		for more := range strings.Count(literal, "\n") + 1 {
			lines[file.Line(at)+more] = true
		}
	}
}
