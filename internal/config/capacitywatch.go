package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/etcdkey"
	"github.com/gatehousehq/gatehouse/internal/filewatch"
	"github.com/gatehousehq/gatehouse/internal/smallfile"
)

const (
	filePrefix = "file:"
	etcdPrefix = "etcd:"
)

// A CapacityWatch says where templates come from and which functions to call. All of them are called by the
// goroutine that called WatchCapacity, one after the other.
type CapacityWatch struct {
	// Source is etcd://host:port,host:port/key, or file:PATH, or just a path.
	Source string

	// Reload, if not nil, makes the source be read and reported again at each value.
	Reload <-chan os.Signal

	// Apply is called with templates that have no Faults, and with their version: where and when they are
	// from.
	Apply func(templates capacity.Templates, version string)

	// Failed is called with the reason when the source cannot be read or has faults. What was
	// applied last stays in force, until Apply is called again.
	Failed func(error)
}

// WatchCapacity reports the templates of a source, now and whenever they change, until the context ends. A
// source that is missing or has faults is reported as failed and waited for. It returns an error, and reports
// nothing, if the source cannot be valid now or later.
func WatchCapacity(ctx context.Context, watch CapacityWatch) error {
	// An address that cannot be read is an error at once. A server that is away is not: it may come back.
	s, err := parseSource(watch.Source)
	if err != nil {
		return err
	}
	w := &watcher{CapacityWatch: watch}
	if s.etcd != "" {
		etcdkey.Watch(ctx, etcdkey.KeyWatch{
			Address: s.etcd, Again: watch.Reload,
			Report: func(r etcdkey.Reading, asked bool) { w.report(keyReading(r), asked) },
		})
		return nil
	}
	return w.watchFile(ctx, s.path)
}

// CheckCapacity returns what is wrong with a source that can never be valid, nil otherwise. It reads nothing.
func CheckCapacity(source string) error {
	_, err := parseSource(source)
	return err
}

// LoadCapacity reads a source once. The version is where and when the templates are from.
func LoadCapacity(ctx context.Context, source string) (t capacity.Templates, version string, err error) {
	s, err := parseSource(source)
	if err != nil {
		return nil, "", err
	}
	var r sourceReading
	if s.etcd != "" {
		r = keyReading(etcdkey.Read(ctx, s.etcd))
	} else {
		r = readFile(s.path)
	}
	// The path may be a mistyped address, with a user and a password in it.
	t, err = r.parseTemplates()
	return t, r.version, withoutUser(err, s.path)
}

// A pathError is an error whose text does not show all of a path.
type pathError struct {
	error
	text string
}

// Error implements error.
func (e *pathError) Error() string { return e.text }

// Unwrap returns the whole error.
func (e *pathError) Unwrap() error { return e.error }

// withoutUser returns an error that does not show what stands before the last @ of a path: such a path was
// meant as an address, and has a password.
func withoutUser(err error, path string) error {
	at := strings.LastIndexByte(path, '@')
	if err == nil || at < 0 {
		return err
	}
	// The error stays the one below for errors.Is; only its text is another.
	return &pathError{err, strings.ReplaceAll(err.Error(), path, "…"+path[at:])}
}

// A capacitySource is where templates are: at an address of etcd, or in a file.
type capacitySource struct{ etcd, path string }

// parseSource parses the text of a source. A path may have colons in it, but one that begins as the others do
// needs file: in front.
func parseSource(text string) (capacitySource, error) {
	// A text without a known beginning is a path. The cases are in the order in which the beginnings are
	// looked for.
	path := strings.TrimPrefix(text, filePrefix)
	scheme, _, address := strings.Cut(text, "://")
	switch {
	case path == "":
		return capacitySource{}, fmt.Errorf("capacity configuration: source %q is no path, "+
			"want file:PATH or etcd://host:port/key", text)
	case path != text:
		return capacitySource{path: path}, nil
	case strings.HasPrefix(text, etcdPrefix):
		if err := etcdkey.Check(text); err != nil {
			return capacitySource{}, fmt.Errorf("capacity configuration: %w", err)
		}
		return capacitySource{etcd: text}, nil
	case address: // the rest may hold a password, and is not shown
		return capacitySource{}, fmt.Errorf("capacity configuration: source begins with %q, "+
			"want file:PATH or etcd://host:port/key", scheme+"://")
	}
	return capacitySource{path: path}, nil
}

// A sourceReading is what was found at a source.
type sourceReading struct {
	name    string // in front of lines and columns
	version string
	text    []byte
	err     error // why there is no text
}

// keyReading returns what was found at a key of etcd.
func keyReading(r etcdkey.Reading) sourceReading {
	return sourceReading{name: r.Version, version: r.Version, text: r.Text, err: r.Err}
}

func (r *sourceReading) parseTemplates() (capacity.Templates, error) {
	// A source that cannot be read is reported by the same way as one with faults.
	if r.err != nil {
		return nil, fmt.Errorf("capacity configuration: %w", r.err)
	}
	return parseCapacity(r.name, r.text)
}

// readFile reads a file. Its version has the time of its last change, and a part of its hash: two versions
// can come within one tick of a file system's clock.
func readFile(path string) sourceReading {
	var changed time.Time
	text, err := smallfile.Read(path, smallfile.Wanted{
		What: "a configuration file", Size: MaxSize, Check: func(info fs.FileInfo) error {
			changed = info.ModTime()
			return nil
		},
	})
	if err != nil {
		return sourceReading{err: err}
	}
	// Four bytes tell versions of one file apart; they are no protection against an attacker.
	sum := sha256.Sum256(text)
	version := fmt.Sprintf("%s, %s, %s", path,
		changed.UTC().Format(time.RFC3339), hex.EncodeToString(sum[:4]))
	return sourceReading{name: path, version: version, text: text}
}

// A watcher remembers what it reported last.
type watcher struct {
	CapacityWatch
	version string // that was applied last
	last    filewatch.LastReading
}

// report reports what was found, unless it is what was reported last. asked says that a reload was requested,
// which is always reported.
func (w *watcher) report(r sourceReading, asked bool) {
	templates, err := r.parseTemplates()
	if err != nil {
		w.reportFailure(err, asked)
		return
	}
	// A file that was only touched has another version. To apply the same again does no harm.
	changed := w.version != r.version
	w.version = r.version
	if w.last.IsNews(asked, changed, nil) {
		w.Apply(templates, r.version)
	}
}

// reportFailure reports a failure in the same way.
func (w *watcher) reportFailure(err error, asked bool) {
	if w.last.IsNews(asked, false, err) {
		w.Failed(err)
	}
}
