//go:build unix

package disk

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nothing in the directory is followed, overwritten or waited for that is no regular file.
func TestOddFilesAreRefused(t *testing.T) {
	const precious = "PRECIOUS DATA"
	link := func(path string) error {
		target := path + ".target"
		if err := os.WriteFile(target, []byte(precious), 0o600); err != nil {
			return err
		}
		return os.Symlink(target, path)
	}
	dangling := func(path string) error { return os.Symlink(path+".nowhere", path) }
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	folder := func(path string) error { return os.Mkdir(path, 0o700) }
	for _, c := range []struct {
		file string
		make func(path string) error
		want string
	}{
		{lockName, link, "is a link"}, {lockName, dangling, "is a link"}, {lockName, pipe, "is a pipe"},
		{lockName, folder, "is a directory"},
		{fileName, link, "is a link"}, {fileName, dangling, "is a link"}, {fileName, pipe, "is a pipe"},
		{fileName, folder, "is a directory"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(dir, Config{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a store with %s that %s = %v, want an error", c.file, c.want, err)
			if err == nil {
				_ = s.Close()
			}
		}
		if _, err := Check(dir); err == nil {
			t.Errorf("the check of a directory with %s that %s = nil, want an error", c.file, c.want)
		}
		if kept, err := os.ReadFile(path + ".target"); err == nil && string(kept) != precious {
			t.Errorf("the target of %s is %q, want it as it was", c.file, kept)
		}
		if _, err := os.Stat(path + ".nowhere"); err == nil {
			t.Errorf("the target of %s was made", c.file)
		}
	}
}

// A directory in which others may write is used, and warned of.
func TestOthersMayWrite(t *testing.T) {
	for mode, warned := range map[os.FileMode]bool{0o700: false, 0o755: false, 0o770: true, 0o707: true} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s, err := Open(dir, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "others may write"); got != warned {
			t.Errorf("mode %o: warned %t, want %t: %s", mode, got, warned, log.String())
		}
	}
}
