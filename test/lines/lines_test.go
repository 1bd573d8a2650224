package main

import (
	"strings"
	"testing"
)

func TestCodeLines(t *testing.T) {
	for _, sample := range []struct {
		want int
		text string
	}{
		{0, ""},
		{0, "// Package a is nothing.\n\n/* and\n\nmore */\n"},
		{1, "package a"},
		{2, "package a // first\n\nvar b int /* second\n*/\n"},
		{4, "package a\n\nconst text = `one\n\n// two\n`\n"},
		{4, "package a\n\nfunc f() {\n\t// nothing yet\n\t;\n}\n"},
	} {
		if got := codeLines([]byte(sample.text)); got != sample.want {
			t.Errorf("lines of code in %q = %d, want %d", sample.text, got, sample.want)
		}
	}
}

func TestTally(t *testing.T) {
	count := make(tally)
	for _, name := range []string{
		"a.go", "b.go", "a_test.go", "README.md", "store/disk/disk.go", "store/storetest/run.go",
		"internal/front/grpc/doormanpb/a.pb.go", "internal/tools/portable/main.go", "test/sim/doc.go",
		"internal/await/await.go", "control/testdata/a.go",
	} {
		count.add(name, []byte("package a\n"))
	}
	want := "      2  .\n      1  store/disk\n      3  in total\n"
	if got := count.String(); got != want {
		t.Errorf("tally =\n%s, want\n%s", got, want)
	}
}

// The helpers are still there: a folder that has moved must not be counted by mistake.
func TestTree(t *testing.T) {
	t.Chdir("../..")
	count := make(tally)
	err := count.addTree()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{".", "gate", "cmd/gatehouse"} {
		if count[folder] == 0 {
			t.Errorf("%s has no lines, want some", folder)
		}
	}
	for folder := range count {
		if strings.Contains(folder, "test") {
			t.Errorf("%s is counted, want no tests", folder)
		}
	}
}
