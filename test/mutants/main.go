// Command mutants plants each of the bugs in this folder in a copy of the repository, one after the other,
// and prints which of them the simulation finds. Run it by make bugs, in the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder is where the bugs are, seen from the root.
const folder = "test/mutants"

// maxUnfound is how many bugs may stay unfound.
const maxUnfound = 1

func main() {
	seeds := flag.String("seeds", "40", "how many seeds are played with each bug")
	only := flag.String("only", "", "the beginning of the names of those that are tried; empty is all")
	short := flag.Bool("short", false, "run the tests with -short, and so fewer seeds, as ./test.sh does")
	flag.Parse()
	if *short {
		*seeds = ""
	}
	if err := runMutants(context.Background(), *seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
}

// A mutant is one patch.
type mutant struct {
	name, path string
	what       string
	test       []string // the arguments of go test
}

// readMutants reads the patches. Before the patch itself stand two lines: what it does, and, if the
// simulation is not what should find it, "test:" and what should.
func readMutants(only string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(folder, only+"*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no patch that begins with %q: %w", folder, only, err)
	}
	slices.Sort(paths)
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path) // one of our own
		if err != nil {
			return nil, err
		}
		b := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), test: []string{"./test/sim"}}
		b.path, err = filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		// The lines before the patch itself, which git apply passes over.
		head, _, _ := strings.Cut(string(text), "\n--- ")
		for line := range strings.Lines(head) {
			if test, is := strings.CutPrefix(line, "test: "); is {
				b.test = strings.Fields(test)
			} else if b.what == "" {
				b.what = strings.TrimSpace(line)
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// runMutants plants them all. It is an error if too many are not found, or if one does not fit any more.
func runMutants(ctx context.Context, seeds, only string) error {
	all, err := readMutants(only)
	if err != nil {
		return err
	}
	tree, err := os.MkdirTemp("", "gatehouse-bugs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	if err := copyTree(ctx, tree); err != nil {
		return err
	}
	// Without any bug the tests must pass. Otherwise each bug would seem to be found.
	t := tester{ctx, tree, seeds}
	if out, ok := t.runTests("./test/sim"); !ok {
		return fmt.Errorf("the simulation fails without any bug, want that mended first:\n%.2000s", out)
	}
	fmt.Println("| bug | found by |\n|---|---|")
	// A row of a table for each, as it is done: it takes minutes.
	var unfound, broken []string
	for _, b := range all {
		out, found, err := t.plantMutant(b)
		by := "**not found**"
		switch {
		case err != nil:
			by = "could not be tried: " + err.Error()
			broken = append(broken, b.name)
		case found:
			by = findersOf(b, out)
		default:
			unfound = append(unfound, b.name)
		}
		fmt.Printf("| %s: %s | %s |\n", b.name, b.what, by)
	}
	fmt.Printf("\n%d of %d found\n", len(all)-len(unfound)-len(broken), len(all))
	if len(broken) > 0 {
		return fmt.Errorf("%v could not be tried, want them made anew", broken)
	}
	if len(unfound) > maxUnfound {
		return fmt.Errorf("%v were not found, want at most %d of them", unfound, maxUnfound)
	}
	return nil
}

// copyTree copies what belongs to the repository.
func copyTree(ctx context.Context, to string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "-co", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files, want it to be run in the root of the repository: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name) // of the repository
		if os.IsNotExist(err) {
			continue // deleted, but not yet from the index
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil { // below a folder of ours
			return err
		}
	}
	return nil
}

// A tester runs tests in a copy of the repository.
type tester struct {
	ctx   context.Context
	tree  string
	seeds string // as many as -short plays if it is empty
}

// runTool runs something in the copy.
func (t tester) runTool(name string, args ...string) (out string, ok bool) {
	command := exec.CommandContext(t.ctx, name, args...) // git or go
	command.Dir = t.tree
	command.Env = os.Environ()
	if t.seeds != "" {
		command.Env = append(command.Env, "SIM_SEEDS="+t.seeds)
	}
	text, err := command.CombinedOutput()
	return string(text), err == nil
}

// runTests reports whether tests pass. The limit is for bugs that make something hang.
func (t tester) runTests(args ...string) (out string, ok bool) {
	const limit = "5m"
	flags := []string{"test", "-count=1", "-failfast", "-timeout", limit}
	if t.seeds == "" {
		flags = append(flags, "-short")
	}
	return t.runTool("go", append(flags, args...)...)
}

// plantMutant plants a bug, looks whether it is found, and takes it out.
func (t tester) plantMutant(b mutant) (out string, found bool, err error) {
	if out, ok := t.runTool("git", "apply", b.path); !ok {
		return "", false, fmt.Errorf("%s does not fit the code any more, want it made anew:\n%s", b.name, out)
	}
	out, ok := t.runTests(b.test...)
	// A patch that does not compile would fail all tests, and seem to be found.
	if strings.Contains(out, "[build failed]") {
		return "", false, fmt.Errorf("%s does not compile:\n%s", b.name, out)
	}
	if reverted, ok := t.runTool("git", "apply", "-R", b.path); !ok {
		return "", false, fmt.Errorf("%s cannot be taken out:\n%s", b.name, reverted)
	}
	return out, !ok, nil
}

var (
	oracleName = regexp.MustCompile(`: oracle ([^:]+(?:: [a-z -]+)?): [a-z]+/`)
	testName   = regexp.MustCompile(`--- FAIL: (Test\w+)`)
)

// findersOf are the oracles, or the tests, that found a bug.
func findersOf(b mutant, out string) string {
	// The simulation names the oracle that failed, and other tests have names of their own.
	pattern := oracleName
	if b.test[0] != "./test/sim" {
		pattern = testName
	}
	var names []string
	for _, match := range pattern.FindAllStringSubmatch(out, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	switch {
	case len(names) > 0:
		slices.Sort(names)
		return strings.Join(names, ", ")
	case strings.Contains(out, "panic: test timed out"):
		return "something hangs"
	default:
		return "a panic"
	}
}
