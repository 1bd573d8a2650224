package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A whole release is exchanged at once, by renaming a folder far above the file.
func TestAFileIsReadWhenAFolderAboveIsExchanged(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	in := func(release string) string { return filepath.Join(above, release, "etc", "gatehouse") }
	for n, release := range []string{"current", "next", "last"} {
		must(t, os.MkdirAll(in(release), 0o700))
		put(t, filepath.Join(in(release), "capacity.yml"), amounting(float64(n+1)))
	}
	l := watch(t, filepath.Join(in("current"), "capacity.yml"))
	l.applies(1)
	for n, release := range []string{"next", "last"} {
		must(t, os.Rename(filepath.Join(above, "current"), filepath.Join(above, fmt.Sprint("old", n))))
		must(t, os.Rename(filepath.Join(above, release), filepath.Join(above, "current")))
		l.settles(float64(n + 2))
	}
	put(t, filepath.Join(in("current"), "capacity.yml"), amounting(4))
	l.applies(4)
}
