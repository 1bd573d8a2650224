package gatehouse_test

import (
	"strings"
	"testing"
)

// samples are small files, without their package line, that break one rule, or none.
var samples = []struct{ rule, name, text string }{
	{"clock", "gate/a.go", `import "time"; func f() { time.Now() }`},
	{"clock", "internal/front/http/a.go", `import clock "time"; func f() { g(clock.Now) }`},
	{"", "store/memory/a.go", `import "time"; func f() { g(time.Now) }`},
	{"", "gate/a_test.go", `import "time"; func f() { time.Now() }`},
	{"sleep", "gate/a_test.go", `import "time"; func f() { time.Sleep(1) }`},
	{"sleep", "gate/a_test.go", `import "time"; func f() { <-time.After(1) }`},
	{"sleep", "gate/a_test.go", `import "time"; func f() { t := time.NewTicker(1); g(t) }`},
	{"sleep", "gate/a_test.go", `import "time"; func f() { select { case <-c: case <-time.After(1): } }`},
	{"sleep", "gate/a_test.go", `import ("context"; "time")
		func f() { ctx, stop := context.WithTimeout(c, 1); defer stop(); <-ctx.Done() }`},
	{"sleep", "gate/a_test.go", `import ("time"; "testing/synctest"); func pass() { <-time.After(1) }
		func TestA() { synctest.Test(t, func(t *testing.T) { pass() }); pass() }`},
	{"", "gate/a_test.go", `import ("time"; "testing/synctest"); func pass() { <-time.After(1) }
		func TestA() { synctest.Test(t, func(t *testing.T) { pass() }) }`},
	{"", "gate/a_test.go", `import ("time"; "testing/synctest"); func bubble(t *testing.T, do func()) {
		synctest.Test(t, func(t *testing.T) { do() }) }
		func TestA() { bubble(t, func() { <-time.After(1) }) }`},
	{"", "gate/a_test.go", `import "time"; func f() { select { case <-c: case <-time.After(patience): } }`},
	{"", "gate/a_test.go", `import ("time"; "testing/synctest")
		func f() { synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() }) }`},
	{"pure", "control/a.go", `import "sync/atomic"`},
	{"pure", "capacity/a.go", `import "log/slog"`},
	{"", "control/a_test.go", `import "os"`},
	{"standard", "gate/a.go", `import "golang.org/x/time/rate"`},
	{"", "store/cas/redis/a.go", `import "golang.org/x/time/rate"`},
	{"imports", "a.go", `import "github.com/gatehousehq/gatehouse/control"`},
	{"imports", "store/memory/a.go", `import "github.com/gatehousehq/gatehouse/gate"`},
	{"imports", "internal/front/resp/a.go", `import "github.com/gatehousehq/gatehouse/store/memory"`},
	{"imports", "newcomer/a.go", `import "github.com/gatehousehq/gatehouse"`},
	{"", "internal/front/resp/a.go", `import ("github.com/gatehousehq/gatehouse"
		"github.com/gatehousehq/gatehouse/gate")`},
	{"", "store/storetest/a.go", `import "github.com/gatehousehq/gatehouse/gate"`},
	{"", "gate/a_test.go", `import "github.com/gatehousehq/gatehouse/store/memory"`},
	{"docs", "gate/a.go", `func F() {}`},
	{"docs", "gate/a.go", "// Does something.\nfunc F() {}"},
	{"docs", "gate/a.go", "type (\n// A Line waits.\nLine int\n)\nfunc (l *Line) F() {}"},
	{"docs", "gate/a.go", "const (\nA = 1\n)"},
	{"", "gate/a.go", "type (\n// A Line waits.\nLine[T any] int\n)\n// F's end.\nfunc (l *Line[T]) F() {}"},
	{"", "gate/a.go", "const (\nA = 1 // of many\n)\ntype line int\nfunc (line) F() {}"},
	{"function", "cmd/a.go", "func f() {" + strings.Repeat("\n", maxFunction) + "}"},
	{"", "cmd/a.go", "func f() {" + strings.Repeat("\n", maxFunction-1) + "}"},
	{"nesting", "gate/a.go", `func f() { if a { for { switch { case b: select {} } } } }`},
	{"nesting", "gate/a.go", `func f() { if a {} else if b { for { for { for range c {} } } } }`},
	{"", "gate/a.go", `func f() { if a {} else if b {} else if c { for { for { g(func() { for {} }) } } } }`},
	{"parameters", "gate/a.go", `func f(a, b int, c, d, e string) {}`},
	{"", "gate/a.go", `func (s *line) f(a, b int, c, d string) {}`},
	{"file", "gate/a.go", strings.Repeat("\n", maxFile)},
	{"", "gate/a.go", strings.Repeat("\n", maxFile-1)},
	{"columns", "gate/a.go", "//\t" + strings.Repeat("x", maxColumns-5)},
	{"", "gate/a.go", "//\t" + strings.Repeat("ä", maxColumns-6)},
	{"", "gate/a.go", "// https://" + strings.Repeat("x", maxColumns)},
	{"effects", "gate/a.go", `func f() { if n = g(); n > 1 {} }`},
	{"effects", "gate/a.go", `func f() { if n++; n > 1 {} }`},
	{"", "gate/a.go", `func f() { if err = g(); err != nil {} else if n := g(); n > 1 {} }`},
	{"mute", "gate/a.go", "func f() {" + strings.Repeat("\n", maxMute) + "}"},
	{"", "gate/a.go", "func f() { // why" + strings.Repeat("\n", maxMute) + "}"},
	{"", "cmd/a.go", "func f() {" + strings.Repeat("\n", maxMute) + "}"},
	{"init", "gate/a.go", `func init() {}`},
	{"variables", "gate/a.go", `var n int`},
	{"variables", "gate/a.go", `import "sync"; var pool = sync.Pool{}`},
	{"", "gate/a.go", `import ("errors"; "regexp"); var _ I = line{}; var table = map[string]int{}
		var gone, shape = errors.New("gone"), regexp.MustCompile("x")`},
	{"", "gate/a.go", "import _ \"embed\"\n//go:embed page.html\nvar page []byte"},
	{"exports", "gate/a.go", "// All.\nconst (\n" + strings.Repeat("A = 1\n", maxExports+1) + ")"},
	{"", "gate/a.go", "// All.\nconst (\n" + strings.Repeat("A = 1\n", maxExports) + ")"},
	{"", "control/a.go", "// All.\nconst (\n" + strings.Repeat("A = 1\n", maxExports+1) + ")"},
}

func TestTidyFires(t *testing.T) {
	for _, sample := range samples {
		f, err := parseGoFile(sample.name, "package a\n"+sample.text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, found := range goFindings([]*goFile{f}) {
			got += found.rule
		}
		if got != sample.rule {
			t.Errorf("rules broken in %s %q = %q, want %q", sample.name, sample.text, got, sample.rule)
		}
	}
	for _, word := range outsideWords {
		found := wordsIn("a.md", "one\nsee "+strings.ToUpper(word))
		if len(found) != 1 || found[0].line != 2 {
			t.Errorf("words in a text with %q = %v, want one in line 2", word, found)
		}
	}
}
