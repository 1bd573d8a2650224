// Package filewatch notices that files have changed, however they are replaced: written, renamed, or by other
// links, as Kubernetes does it.
package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
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

// A Watching says which files are watched, and what is called. All functions are called by the goroutine that
// called Watch, one after the other.
type Watching struct {
	// Paths are the files that are read together.
	Paths []string

	// Again, if not nil, has them read at each value.
	Again <-chan os.Signal

	// Read reads the files. It is called once at the start, and whenever they may have changed; asked says
	// that Again was the reason.
	Read func(asked bool)

	// Unwatched is called with the reason when changes cannot be noticed. Again still works then.
	Unwatched func(error)
}

// Watch calls Read at once and after each change, until ctx ends. Its error is that of a path which cannot be
// made absolute.
func Watch(ctx context.Context, w Watching) error {
	f := new(pathWatcher)
	for _, path := range w.Paths {
		whole, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		f.paths = append(f.paths, whole)
	}
	// Without notices the files are still served, and read again when asked: a system may be out of watches.
	var err error
	f.notices, err = fsnotify.NewWatcher()
	if err != nil {
		w.Unwatched(err)
	} else {
		f.events, f.errors = f.notices.Events, f.notices.Errors
		defer func() { _ = f.notices.Close() }()
	}
	asked := false
	for {
		if err := f.watchFolders(); err != nil { // before they are read: no change is missed between the two
			w.Unwatched(err)
		}
		w.Read(asked)
		why := f.awaitChange(ctx, w.Again)
		if why == watchEnded {
			return nil
		}
		asked = why == readAgain
	}
}

// A noticeCause says why files should be read again.
type noticeCause uint8

const (
	filesChanged noticeCause = iota
	readAgain
	watchEnded // they should not: the context has ended
)

// A pathWatcher notices when paths may lead to another text.
type pathWatcher struct {
	paths   []string
	notices *fsnotify.Watcher // nil if there can be none
	events  <-chan fsnotify.Event
	errors  <-chan error
	trace   pathTrace // of all paths together
}

// watchFolders watches all folders in which the paths can change.
func (f *pathWatcher) watchFolders() error {
	if f.notices == nil {
		return nil
	}
	// A path may change while its folders are added. Then they are added again, but not forever.
	for range maxLinks {
		f.trace = tracePaths(f.paths)
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
		// All folders are watched now and the paths are still the same, so no later change can be missed.
		if f.trace.equal(tracePaths(f.paths)) {
			return failed
		}
	}
	return nil
}

// awaitChange waits until the files should be read again.
func (f *pathWatcher) awaitChange(ctx context.Context, again <-chan os.Signal) noticeCause {
	// Both are nil, and so never ready, until something has happened.
	var settled, late <-chan time.Time
	for {
		happened := false
		select {
		case <-ctx.Done():
			return watchEnded
		case _, open := <-again:
			if open {
				return readAgain
			}
			again = nil
		case event := <-f.events:
			// Notices are about whole folders.
			happened = f.trace.concerns(event.Name)
		case err := <-f.errors: // notices were lost, whichever
			happened = err != nil
		case <-settled:
			return filesChanged
		case <-late:
			return filesChanged
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
