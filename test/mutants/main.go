// Command bugs plants each of the bugs beside it in a copy of this repository, one after the other, and says
// which of them the simulation finds. It is run by make bugs, in the root of the repository.
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

// missed is how many bugs may stay unfound.
const missed = 1

func main() {
	seeds := flag.String("seeds", "40", "how many seeds are played with each bug")
	only := flag.String("only", "", "the beginning of the names of those that are tried; empty is all")
	flag.Parse()
	if err := run(context.Background(), *seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
}

// A bug is one patch.
type bug struct {
	name, path string
	what       string
	test       []string // the arguments of go test
}

// bugs reads the patches. Before the patch itself stand two lines: what it does, and, if the simulation is
// not what should find it, "test:" and what should.
func bugs(only string) ([]bug, error) {
	paths, err := filepath.Glob(filepath.Join(folder, only+"*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no patch that begins with %q: %w", folder, only, err)
	}
	slices.Sort(paths)
	var all []bug
	for _, path := range paths {
		text, err := os.ReadFile(path) // #nosec G304 -- one of our own
		if err != nil {
			return nil, err
		}
		b := bug{name: strings.TrimSuffix(filepath.Base(path), ".patch"), test: []string{"./test/sim"}}
		if b.path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
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

// run plants them all. It is an error if too many are not found, or if one does not fit any more.
func run(ctx context.Context, seeds, only string) error {
	all, err := bugs(only)
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
	t := tester{ctx, tree, seeds}
	if out, ok := t.test("./test/sim"); !ok {
		return fmt.Errorf("the simulation fails without any bug, want that mended first:\n%.2000s", out)
	}
	fmt.Println("| bug | found by |\n|---|---|")
	var unfound, broken []string
	for _, b := range all {
		out, found, err := t.plant(b)
		by := "**not found**"
		switch {
		case err != nil:
			by = "could not be tried: " + err.Error()
			broken = append(broken, b.name)
		case found:
			by = finders(b, out)
		default:
			unfound = append(unfound, b.name)
		}
		fmt.Printf("| %s: %s | %s |\n", b.name, b.what, by)
	}
	fmt.Printf("\n%d of %d found\n", len(all)-len(unfound)-len(broken), len(all))
	if len(broken) > 0 {
		return fmt.Errorf("%v could not be tried, want them made anew", broken)
	}
	if len(unfound) > missed {
		return fmt.Errorf("%v were not found, want at most %d of them", unfound, missed)
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
		text, err := os.ReadFile(name) // #nosec G304 -- of the repository
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
		if err := os.WriteFile(path, text, 0o600); err != nil { // #nosec G703 -- below a folder of ours
			return err
		}
	}
	return nil
}

// A tester runs tests in a copy of the repository.
type tester struct {
	ctx   context.Context
	tree  string
	seeds string
}

// command runs something in the copy.
func (t tester) command(name string, args ...string) (out string, ok bool) {
	command := exec.CommandContext(t.ctx, name, args...) // #nosec G204 -- git or go
	command.Dir = t.tree
	command.Env = append(os.Environ(), "SIM_SEEDS="+t.seeds)
	text, err := command.CombinedOutput()
	return string(text), err == nil
}

// test reports whether tests pass. The limit is for bugs that make something hang.
func (t tester) test(args ...string) (out string, ok bool) {
	const limit = "5m"
	return t.command("go", append([]string{"test", "-count=1", "-failfast", "-timeout", limit}, args...)...)
}

// plant plants a bug, looks whether it is found, and takes it out.
func (t tester) plant(b bug) (out string, found bool, err error) {
	if out, ok := t.command("git", "apply", b.path); !ok {
		return "", false, fmt.Errorf("%s does not fit the code any more, want it made anew:\n%s", b.name, out)
	}
	out, ok := t.test(b.test...)
	if strings.Contains(out, "[build failed]") {
		return "", false, fmt.Errorf("%s does not compile:\n%s", b.name, out)
	}
	if reverted, ok := t.command("git", "apply", "-R", b.path); !ok {
		return "", false, fmt.Errorf("%s cannot be taken out:\n%s", b.name, reverted)
	}
	return out, !ok, nil
}

var (
	oracleName = regexp.MustCompile(`: oracle ([^:]+(?:: [a-z -]+)?): [a-z]+/`)
	testName   = regexp.MustCompile(`--- FAIL: (Test\w+)`)
)

// finders are the oracles, or the tests, that found a bug.
func finders(b bug, out string) string {
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
