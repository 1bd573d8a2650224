//go:build unix

package smallfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/smallfile"
)

// What is no file of the size is refused, and nothing waits for a pipe that nobody writes to.
func TestRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string]string{"full": "12345678", "large": "123456789"} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(in("pipe"), 0o600), os.Symlink("full", in("link"))); err != nil {
		t.Fatal(err)
	}
	refuse := func(fs.FileInfo) error { return errors.New("judged") }
	want := smallfile.Wanted{What: "a letter", Size: 8}
	piped, judged := want, want
	piped.Piped, judged.Check = true, refuse
	for _, c := range []struct {
		name, result string
		want         smallfile.Wanted
	}{
		{"full", "12345678", want}, {"link", "12345678", want}, {"full", "judged", judged},
		{"large", "large is larger than 8 bytes, want a letter", want},
		{"none", "no such file", want}, {"none", "no such file", piped},
		{".", "is a directory, want a letter", want},
		{".", "is a directory, want a letter", piped},
		{"pipe", "pipe is not a regular file, want a letter", want},
		{"/dev/null", "is not a regular file", want}, {"/dev/null", "", piped},
		{"/dev/zero", "is larger than 8 bytes", piped},
	} {
		path := c.name
		if !filepath.IsAbs(path) {
			path = in(path)
		}
		text, err := smallfile.Read(path, c.want)
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.result) {
			t.Errorf("Read(%s, %+v) = %q, want %q", c.name, c.want, got, c.result)
		}
	}
}
