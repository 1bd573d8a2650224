package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is read when nothing more happened for as long as quiet, so that one that takes several steps,
// such as a new file that is written and then renamed, is read once; but patience after its beginning at
// the latest.
const (
	quiet    = 100 * time.Millisecond
	patience = time.Second
)

// file tells about the templates of a file. It is read again when one of the names on the way to it
// changes: the file itself, a folder, or a link, which is how Kubernetes exchanges it.
func (w *watcher) file(ctx context.Context, path string) error {
	whole, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("capacity configuration: %w", err)
	}
	f := &follower{path: whole}
	f.notices, err = fsnotify.NewWatcher()
	if err != nil {
		w.unwatched(path, err)
	} else {
		f.events, f.errors = f.notices.Events, f.notices.Errors
		defer func() { _ = f.notices.Close() }()
	}
	asked := false
	for {
		if err := f.follow(); err != nil { // before it is read: no change is missed between the two
			w.unwatched(path, err)
		}
		w.tell(readFile(path), asked)
		why := f.change(ctx, w.Reload)
		if why == ended {
			return nil
		}
		asked = why == reload
	}
}

func (w *watcher) unwatched(path string, err error) {
	w.fail(fmt.Errorf("capacity configuration: changes of %s will go unnoticed: %w", path, err), false)
}

// A cause is why a source should be looked at again.
type cause uint8

const (
	changed cause = iota
	reload
	ended // it should not: the context ended
)

// A follower knows when a path may lead to another text.
type follower struct {
	path    string
	notices *fsnotify.Watcher // nil if there can be none
	events  <-chan fsnotify.Event
	errors  <-chan error
	way     way
}

// follow watches all folders in which the path's way can change.
func (f *follower) follow() error {
	if f.notices == nil {
		return nil
	}
	// The way may change while its folders are added, but not for ever.
	for range maxLinks {
		f.way = wayTo(f.path)
		above := f.way.above()
		for _, folder := range f.notices.WatchList() {
			if !slices.Contains(f.way.folders, folder) && !slices.Contains(above, folder) {
				_ = f.notices.Remove(folder) // or it is gone
			}
		}
		for _, folder := range above {
			_ = f.notices.Add(folder) // those that may not be read stay unwatched
		}
		var failed error
		for _, folder := range f.way.folders {
			if err := f.notices.Add(folder); err != nil && failed == nil {
				failed = err
			}
		}
		if f.way.equal(wayTo(f.path)) {
			return failed
		}
	}
	return nil
}

// change waits until the file should be read again.
func (f *follower) change(ctx context.Context, again <-chan os.Signal) cause {
	var settled, late <-chan time.Time
	for {
		happened := false
		select {
		case <-ctx.Done():
			return ended
		case _, open := <-again:
			if open {
				return reload
			}
			again = nil
		case event := <-f.events:
			happened = f.way.meets(event.Name)
		case err := <-f.errors: // notices were lost, whichever
			happened = err != nil
		case <-settled:
			return changed
		case <-late:
			return changed
		}
		if !happened {
			continue
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(patience)
		}
	}
}
