package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is read when nothing more has happened for settleTime, so that one that takes several steps, such
// as a new file that is written and then renamed, is read once; and maxSettleTime after its beginning at the
// latest.
const (
	settleTime    = 100 * time.Millisecond
	maxSettleTime = time.Second
)

// watchFile reports the templates of a file. It is read again when one of the names on the path to it
// changes: the file itself, a folder, or a link, which is how Kubernetes replaces it.
func (w *watcher) watchFile(ctx context.Context, path string) error {
	whole, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("capacity configuration: %w", err)
	}
	f := &pathWatcher{path: whole}
	// Without notices the file is still served, and read again on reload: a system may be out of watches.
	f.notices, err = fsnotify.NewWatcher()
	if err != nil {
		w.reportUnwatched(path, err)
	} else {
		f.events, f.errors = f.notices.Events, f.notices.Errors
		defer func() { _ = f.notices.Close() }()
	}
	asked := false
	for {
		if err := f.watchFolders(); err != nil { // before it is read: no change is missed between the two
			w.reportUnwatched(path, err)
		}
		w.report(readFile(path), asked)
		why := f.awaitChange(ctx, w.Reload)
		if why == causeEnded {
			return nil
		}
		// A reload is reported even if nothing has changed: the operator waits for the answer.
		asked = why == causeReload
	}
}

func (w *watcher) reportUnwatched(path string, err error) {
	err = fmt.Errorf("capacity configuration: changes of %s will go unnoticed: %w", path, err)
	w.reportFailure(err, false)
}

// A wakeCause says why a source should be read again.
type wakeCause uint8

const (
	causeChanged wakeCause = iota
	causeReload
	causeEnded // it should not: the context has ended
)

// A pathWatcher notices when a path may lead to another text.
type pathWatcher struct {
	path    string
	notices *fsnotify.Watcher // nil if there can be none
	events  <-chan fsnotify.Event
	errors  <-chan error
	trace   pathTrace
}

// watchFolders watches all folders in which the path can change.
func (f *pathWatcher) watchFolders() error {
	if f.notices == nil {
		return nil
	}
	// The path may change while its folders are added. Then they are added again, but not forever.
	for range maxLinks {
		f.trace = tracePath(f.path)
		above := f.trace.parentFolders()
		for _, folder := range f.notices.WatchList() {
			if !slices.Contains(f.trace.folders, folder) && !slices.Contains(above, folder) {
				_ = f.notices.Remove(folder) // or it is gone
			}
		}
		// Parents are watched to notice that a folder itself is replaced. Some may not be readable for this
		// process, which must not be a failure.
		for _, folder := range above {
			_ = f.notices.Add(folder) // those that may not be read stay unwatched
		}
		var failed error
		for _, folder := range f.trace.folders {
			if err := f.notices.Add(folder); err != nil && failed == nil {
				failed = err
			}
		}
		// All folders are watched now and the path is still the same, so no later change can be missed.
		if f.trace.equal(tracePath(f.path)) {
			return failed
		}
	}
	return nil
}

// awaitChange waits until the file should be read again.
func (f *pathWatcher) awaitChange(ctx context.Context, again <-chan os.Signal) wakeCause {
	// Both are nil, and so never ready, until something has happened.
	var settled, late <-chan time.Time
	for {
		happened := false
		select {
		case <-ctx.Done():
			return causeEnded
		case _, open := <-again:
			if open {
				return causeReload
			}
			again = nil
		case event := <-f.events:
			// Notices are about whole folders.
			happened = f.trace.concerns(event.Name)
		case err := <-f.errors: // notices were lost, whichever
			happened = err != nil
		case <-settled:
			return causeChanged
		case <-late:
			return causeChanged
		}
		// Folders have other files as well, whose changes do not matter.
		if !happened {
			continue
		}
		settled = time.After(settleTime)
		// Set once, at the first change: a file that changes all the time is still read.
		if late == nil {
			late = time.After(maxSettleTime)
		}
	}
}

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
