package main

import (
	"os/exec"
	"testing"
)

// TestBugsStillFit wants each bug to be one that can be planted in the code as it is.
func TestBugsStillFit(t *testing.T) {
	t.Chdir("../..")
	all, err := readMutants("")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("%d bugs, want at least 20", len(all))
	}
	for _, b := range all {
		out, err := exec.CommandContext(t.Context(), "git", "apply", "--check", b.path).CombinedOutput()
		if err != nil {
			t.Errorf("%s does not fit the code any more, want it made anew: %v\n%s", b.name, err, out)
		}
		if b.what == "" {
			t.Errorf("%s does not say what it does", b.name)
		}
	}
}
