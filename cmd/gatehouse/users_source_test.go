package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFileModes tells which files are refused. Links are followed.
func TestFileModes(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "users.yaml")
	if err := os.WriteFile(file, []byte("users: [{name: a}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for mode, fine := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o640: true, 0o440: true, 0o644: false, 0o660: false, 0o602: false,
	} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, link} {
			if _, err := readUsersFile(name); (err == nil) != fine {
				t.Errorf("readUsersFile of a file of mode %04o = %v, want success %t", mode, err, fine)
			}
		}
	}
}
