package config

import (
	"context"
	"fmt"

	"github.com/gatehousehq/gatehouse/internal/filewatch"
)

// watchFile reports the templates of a file. It is read again when one of the names on the path to it
// changes: the file itself, a folder, or a link, which is how Kubernetes replaces it.
func (w *watcher) watchFile(ctx context.Context, path string) error {
	err := filewatch.Watch(ctx, filewatch.Watching{
		Paths: []string{path},
		Again: w.Reload,
		// A reload is reported even if nothing has changed: the operator waits for the answer.
		Read:      func(asked bool) { w.report(readFile(path), asked) },
		Unwatched: func(err error) { w.reportUnwatched(path, err) },
	})
	if err != nil {
		return fmt.Errorf("capacity configuration: %w", err)
	}
	return nil
}

func (w *watcher) reportUnwatched(path string, err error) {
	err = fmt.Errorf("capacity configuration: changes of %s will go unnoticed: %w", path, err)
	// Not as an answer to a reload: it is news once.
	w.reportFailure(err, false)
}
