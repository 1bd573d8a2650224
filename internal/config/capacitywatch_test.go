//go:build unix

package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/config"
)

// patience is how long a test waits for what should come at once.
const patience = 30 * time.Second

// A listener hears what WatchCapacity tells.
type listener struct {
	t      *testing.T
	reload chan os.Signal
	told   chan news
}

// news is templates and their version, or why there are none.
type news struct {
	amount  float64 // the capacity of the last template
	version string
	err     error
}

// watch watches a source until the test ends.
func watch(t *testing.T, source string) *listener {
	t.Helper()
	l := &listener{t, make(chan os.Signal), make(chan news, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- config.WatchCapacity(ctx, config.CapacityWatch{
			Source: source,
			Reload: l.reload,
			Apply: func(templates capacity.Templates, version string) {
				l.told <- news{amount: templates[len(templates)-1].Capacity, version: version}
			},
			Failed: func(err error) { l.told <- news{err: err} },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("WatchCapacity = %v, want none after the end of the context", err)
		}
	})
	return l
}

// next is what is told next.
func (l *listener) next() news {
	l.t.Helper()
	select {
	case n := <-l.told:
		return n
	case <-time.After(patience):
		l.t.Fatalf("nothing was told for %v", patience)
		return news{}
	}
}

// applies expects templates next, and returns their version.
func (l *listener) applies(amount float64) string {
	l.t.Helper()
	n := l.next()
	if n.err != nil || n.amount != amount {
		l.t.Fatalf("told %v of %q, %v, want the capacity %v", n.amount, n.version, n.err, amount)
	}
	return n.version
}

// settles expects templates, whatever is told before: a file that is written in place may be read half.
func (l *listener) settles(amount float64) {
	l.t.Helper()
	for {
		if n := l.next(); n.err == nil && n.amount == amount {
			return
		}
	}
}

// fails expects a failure with this in its text.
func (l *listener) fails(text string) {
	l.t.Helper()
	if n := l.next(); n.err == nil || !strings.Contains(n.err.Error(), text) {
		l.t.Fatalf("told %v of %q, %v, want a failure with %q", n.amount, n.version, n.err, text)
	}
}

// amounting is a configuration in which everything has this capacity.
func amounting(amount float64) string {
	return fmt.Sprintf("resources:\n- identifier_glob: '*'\n  capacity: %v\n"+
		"  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}\n", amount)
}

// put has a file hold a text at once, as most programs do: under another name first.
func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(t, os.Rename(path+".new", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsReadWhenItIsExchanged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "capacity.yml")
	put(t, path, amounting(1))
	l := watch(t, path)
	first := l.applies(1)
	if !strings.HasPrefix(first, path+", 2") {
		t.Errorf("the version = %q, want the path and the time of the file", first)
	}
	put(t, path, amounting(2))
	if second := l.applies(2); second == first {
		t.Errorf("the version = %q before and after", first)
	}
	put(t, filepath.Join(filepath.Dir(path), "other.yml"), amounting(3)) // is nothing to us
	put(t, path, amounting(4))
	l.applies(4)
}

func TestAFileIsReadWhenItIsWrittenInPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "capacity.yml")
	put(t, path, amounting(1))
	l := watch(t, "file:"+path)
	l.applies(1)
	must(t, os.WriteFile(path, []byte(amounting(2)), 0o600))
	l.settles(2)

	// The first half of one is refused, and not for good.
	text := amounting(3)
	half := strings.Index(text, "  algorithm")
	must(t, os.WriteFile(path, []byte(text[:half]), 0o600))
	l.settlesFailing(path + ":2:3: the template \"*\" has no algorithm")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteString(text[half:])
	must(t, err)
	must(t, file.Close())
	l.applies(3)
}

// What was applied last stays in force: nothing else is applied.
func TestABadVersionIsToldAndTheLastGoodOneStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "capacity.yml")
	put(t, path, amounting(1))
	l := watch(t, path)
	l.applies(1)
	put(t, path, amounting(-1))
	l.fails(path + ":3:13: capacity is -1, want a number from 0 on")
	put(t, path, "resources: [{identifier_glob: *}]")
	l.fails(path + ":1:32: not YAML: did not find expected alphabetic")
	must(t, os.Remove(path))
	l.fails("no such file or directory")
	put(t, path, amounting(2))
	l.applies(2)
	must(t, os.Rename(path, path+".old"))
	l.fails("no such file or directory")
	must(t, os.Rename(path+".old", path))
	l.applies(2)
}

// A server can be started before its configuration is there.
func TestASourceThatIsNotThereIsWaitedFor(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(folder, "capacity.yml")
	l := watch(t, path)
	l.fails("capacity configuration: stat " + path + ": no such file or directory")
	must(t, os.MkdirAll(folder, 0o700))
	put(t, path, amounting(1))
	l.settles(1)

	// The folders can go, and come again.
	must(t, os.RemoveAll(filepath.Dir(folder)))
	l.fails("no such file or directory")
	must(t, os.MkdirAll(folder, 0o700))
	put(t, path, amounting(2))
	l.settles(2)
	must(t, os.Rename(folder, folder+"2"))
	l.fails("no such file or directory")
	must(t, os.Mkdir(folder, 0o700))
	put(t, path, amounting(3))
	l.settles(3)
}

// Kubernetes lays a file out as a link to a link to a folder, and exchanges the one in the middle.
func TestAFileIsReadWhenALinkOnTheWayToItChanges(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "capacity.yml")
	for _, n := range []float64{1, 2, 3} {
		must(t, os.Mkdir(filepath.Join(folder, fmt.Sprint("..", n)), 0o700))
		put(t, filepath.Join(folder, fmt.Sprint("..", n), "capacity.yml"), amounting(n))
	}
	must(t, os.Symlink("..1", filepath.Join(folder, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "capacity.yml"), path))
	l := watch(t, path)
	l.applies(1)
	for _, n := range []float64{2, 3} {
		must(t, os.Symlink(fmt.Sprint("..", n), filepath.Join(folder, "..data_tmp")))
		must(t, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
		l.applies(n)
	}
	put(t, filepath.Join(folder, "..3", "capacity.yml"), amounting(4)) // where the links lead now
	l.applies(4)

	// The same through links to whole folders, above the file.
	outside := t.TempDir()
	must(t, os.Symlink(folder, filepath.Join(outside, "current")))
	far := watch(t, filepath.Join(outside, "current", ".", "capacity.yml"))
	far.applies(4)
	must(t, os.Symlink(filepath.Join(folder, "..1"), filepath.Join(outside, "next")))
	must(t, os.Rename(filepath.Join(outside, "next"), filepath.Join(outside, "current")))
	far.applies(1)

	// A circle is no file.
	must(t, os.Remove(filepath.Join(outside, "current")))
	must(t, os.Symlink("current", filepath.Join(outside, "current")))
	far.settlesFailing("too many")
}

// settlesFailing expects a failure with this in its text, whatever is told before.
func (l *listener) settlesFailing(text string) {
	l.t.Helper()
	for {
		if n := l.next(); n.err != nil && strings.Contains(n.err.Error(), text) {
			return
		}
	}
}

func TestTheSignalReadsAFileAgainAndTellsInAnyCase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "capacity.yml")
	l := watch(t, path)
	l.fails("no such file")
	l.reload <- syscall.SIGHUP
	l.fails("no such file")
	put(t, path, amounting(1))
	first := l.applies(1)
	l.reload <- syscall.SIGHUP
	if second := l.applies(1); second != first {
		t.Errorf("the version = %q, then %q, want the same", first, second)
	}
	close(l.reload) // stops nothing
	put(t, path, amounting(2))
	l.applies(2)
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pipe, large := filepath.Join(folder, "pipe"), filepath.Join(folder, "large")
	must(t, syscall.Mkfifo(pipe, 0o600))
	must(t, os.WriteFile(large, make([]byte, config.MaxSize+1), 0o600))
	for source, want := range map[string]string{
		folder:          "capacity configuration: " + folder + " is a directory, want a configuration",
		pipe:            "capacity configuration: " + pipe + " is not a regular file",
		large:           "capacity configuration: " + large + " is larger than 1048576 bytes",
		pipe + "/below": "not a directory",
	} {
		if _, _, err := config.LoadCapacity(t.Context(), source); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("LoadCapacity(%s) = %v, want %q", source, err, want)
		}
	}
}

func TestSourcesAreToldApart(t *testing.T) {
	t.Chdir(t.TempDir())
	const colons = "colons:in:name:good:idea:capacity.yml"
	put(t, colons, amounting(1))
	put(t, "etcd:capacity.yml", amounting(2))
	for source, amount := range map[string]float64{
		colons: 1, "file:" + colons: 1, "./" + colons: 1, "file:etcd:capacity.yml": 2,
	} {
		templates, version, err := config.LoadCapacity(t.Context(), source)
		if err != nil || templates[0].Capacity != amount || !strings.Contains(version, "capacity.yml, 2") {
			t.Errorf("LoadCapacity(%s) = %v of %q, %v, want the capacity %v",
				source, templates, version, err, amount)
		}
		watch(t, source).applies(amount)
	}
	for source, want := range map[string]string{
		"":                      `source "" is no path, want file:PATH or etcd://host:port/key`,
		"file:":                 `source "file:" is no path`,
		"etcd:/capacity.yml":    `scheme is "", want etcd://`,
		"etcd:capacity.yml":     `scheme is "", want etcd://`,
		"etcds://u:secret@h/k":  `source begins with "etcds://", want file:PATH or etcd://host:port/key`,
		"etcd://h:1":            "no key, want a path behind the hosts",
		"etcd://u:secret@h:x/k": `port of host "h:x" is "x", want 1 to 65535`,
		"etcd://h/k?ttl=10s":    `parameter "ttl" is unknown, want none`,
	} {
		_, _, err := config.LoadCapacity(t.Context(), source)
		watched := config.WatchCapacity(t.Context(), config.CapacityWatch{Source: source})
		for _, err := range []error{err, watched} {
			if err == nil || !strings.HasPrefix(err.Error(), "capacity configuration: ") ||
				!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("the source %q is refused with %v, want %q", source, err, want)
			}
		}
	}
}
