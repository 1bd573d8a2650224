package filewatch

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxLinks is the number of links after which a path is given up, as on Linux.
const maxLinks = 40

// A pathTrace is what decides where a path leads. The trace of /etc/capacity/doorman.yml, as Kubernetes lays
// it out, is the links doorman.yml and ..data in /etc/capacity, and the file doorman.yml in
// /etc/capacity/..2026_11_21, where ..data leads.
type pathTrace struct {
	folders []string // to be watched, each once
	names   []string // what can change in them, in order
	passed  []string // all folders on the path, which may be replaced by others
}

// tracePaths is the trace of several paths, as one.
func tracePaths(paths []string) (all pathTrace) {
	for _, path := range paths {
		one := tracePath(path)
		for _, folder := range one.folders {
			if !slices.Contains(all.folders, folder) {
				all.folders = append(all.folders, folder)
			}
		}
		all.names = append(all.names, one.names...)
		all.passed = append(all.passed, one.passed...)
	}
	return all
}

// tracePath follows an absolute path, through all links, to the file or to what is missing.
func tracePath(path string) pathTrace {
	var w pathTrace
	here, rest := splitRoot(path)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		next := filepath.Join(here, rest[0]) // ".." and "." too
		rest = rest[1:]
		info, err := os.Lstat(next)
		// A folder on the path only leads on. Whatever else there is can be replaced, and is noted. A link is
		// followed; a file or a missing name ends the trace.
		switch {
		case err == nil && info.IsDir() && len(rest) > 0:
			here = next
			w.passed = append(w.passed, next)
			continue
		case err != nil || info.Mode()&os.ModeSymlink == 0:
			w.addName(here, next)
			return w
		}
		w.addName(here, next)
		links++
		// The link counts before it is followed, so a loop of links ends.
		target, err := os.Readlink(next)
		if err != nil {
			return w // it was exchanged just now, and that is noticed
		}
		// An absolute link starts again at the root, a relative one goes on from here.
		if filepath.IsAbs(target) {
			var more []string
			here, more = splitRoot(target)
			rest = append(more, rest...)
			continue
		}
		rest = append(pathParts(target), rest...)
	}
	return w
}

// splitRoot returns the root of an absolute path, and the names that follow.
func splitRoot(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), pathParts(path[len(volume):])
}

func pathParts(path string) []string {
	separates := func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) }
	return strings.FieldsFunc(path, separates)
}

func (w *pathTrace) addName(folder, name string) {
	if !slices.Contains(w.folders, folder) {
		w.folders = append(w.folders, folder)
	}
	w.names = append(w.names, name)
}

func (w *pathTrace) equal(o pathTrace) bool {
	return slices.Equal(w.folders, o.folders) && slices.Equal(w.names, o.names) &&
		slices.Equal(w.passed, o.passed)
}

// concerns reports whether a notice is about the trace: one of its names changed, or one of its folders.
func (w *pathTrace) concerns(name string) bool {
	return slices.Contains(w.names, name) || slices.Contains(w.passed, name)
}

// parentFolders returns the folders to be watched for others to be replaced in them, in addition to those
// that are watched anyway. Except on Linux, watching a folder costs a descriptor for each file in it, so it
// is nil there.
func (w *pathTrace) parentFolders() []string {
	var all []string
	if runtime.GOOS != "linux" {
		return nil
	}
	for _, folder := range w.passed {
		all = append(all, filepath.Dir(folder))
	}
	return all
}
