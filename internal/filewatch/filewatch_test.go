package filewatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change that takes several steps is read once: 100 ms after the last, but a second after the first even
// if it does not end. The steps are 60 ms apart.
func TestAChangeIsReadOnceItHasEnded(t *testing.T) {
	t.Parallel()
	for steps, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 160 * time.Millisecond, 10: 640 * time.Millisecond, 1000: time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			events := make(chan fsnotify.Event)
			f := &pathWatcher{events: events, trace: pathTrace{names: []string{"/a"}}}
			ctx, cancel := context.WithCancel(t.Context())
			steadily := make(chan struct{})
			go func() {
				defer close(steadily)
				for step := 0; step < steps && ctx.Err() == nil; step++ {
					select {
					case events <- fsnotify.Event{Name: "/a"}:
						time.Sleep(60 * time.Millisecond)
					case <-ctx.Done():
					}
				}
			}()
			began := time.Now()
			if why := f.awaitChange(ctx, nil); why != filesChanged || time.Since(began) != want {
				t.Errorf("%d steps: cause %d after %v, want %d after %v",
					steps, why, time.Since(began), filesChanged, want)
			}
			cancel()
			<-steadily
		})
	}
}

func TestWhatIsNoChangeIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events, failures := make(chan fsnotify.Event), make(chan error)
		signals := make(chan os.Signal, 1)
		here := pathTrace{folders: []string{"/"}, names: []string{"/a"}}
		f := &pathWatcher{events: events, errors: failures, trace: here}
		go func() {
			for range 10 {
				events <- fsnotify.Event{Name: "/b"}
				time.Sleep(time.Second)
			}
			signals <- syscall.SIGHUP
		}()
		began := time.Now()
		why := f.awaitChange(t.Context(), signals)
		if why != readAgain || time.Since(began) != 10*time.Second {
			t.Errorf("cause %d after %v, want %d, the signal, after 10s", why, time.Since(began), readAgain)
		}
		go func() { failures <- fsnotify.ErrEventOverflow }() // some were lost, perhaps ours
		if why := f.awaitChange(t.Context(), signals); why != filesChanged {
			t.Errorf("cause %d after notices were lost, want %d, a change", why, filesChanged)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if why := f.awaitChange(ctx, signals); why != watchEnded {
			t.Errorf("cause %d, want %d, the end", why, watchEnded)
		}
	})
}

func TestTheWayToAFile(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) string { return filepath.Join(append([]string{folder}, names...)...) }
	if err := os.MkdirAll(in("b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"up": "../" + filepath.Base(folder) + "/b", "far": in("b", "c"),
		"circle": "circle", "b/up2": "../far/file",
	} {
		if err := os.Symlink(target, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("b", "c", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ folders, names []string }{
		"b/c/file":        {[]string{in("b", "c")}, []string{in("b", "c", "file")}},
		"b/../far/./file": {[]string{folder, in("b", "c")}, []string{in("far"), in("b", "c", "file")}},
		"up/c/file":       {[]string{folder, in("b", "c")}, []string{in("up"), in("b", "c", "file")}},
		"b/up2": {[]string{in("b"), folder, in("b", "c")},
			[]string{in("b", "up2"), in("far"), in("b", "c", "file")}},
		"x/y/file":     {[]string{folder}, []string{in("x")}},
		"b/c/file/far": {[]string{in("b", "c")}, []string{in("b", "c", "file")}},
	} {
		got := tracePath(folder + "/" + path)
		if !slices.Equal(got.folders, want.folders) || !slices.Equal(got.names, want.names) {
			t.Errorf("the way to %s = %q, want %q", path, got, want)
		}
		for _, folder := range want.folders {
			if !slices.Contains(got.passed, folder) {
				t.Errorf("the way to %s passes %q, want %s among them", path, got.passed, folder)
			}
		}
	}
	if got := tracePath(in("circle")); len(got.folders) != 1 || len(got.names) != maxLinks+1 {
		t.Errorf("the way in a circle = %d folders, %d names, want 1 and %d",
			len(got.folders), len(got.names), maxLinks+1)
	}
}

// A change is told each time, a failure once until it is over, and the answer to somebody who asked always.
func TestNews(t *testing.T) {
	t.Parallel()
	bad, worse := errors.New("bad"), errors.New("worse")
	var r LastReading
	for i, step := range []struct {
		asked, changed bool
		err            error
		want           bool
	}{
		{false, false, nil, false}, // as it was at the start
		{false, true, nil, true}, {false, false, nil, false}, {true, false, nil, true},
		{false, false, bad, true}, {false, false, bad, false}, {true, false, bad, true},
		{false, false, worse, true}, {false, false, nil, true}, {false, false, nil, false},
	} {
		if got := r.IsNews(step.asked, step.changed, step.err); got != step.want {
			t.Errorf("step %d: IsNews(asked %t, changed %t, %v) = %t, want %t",
				i, step.asked, step.changed, step.err, got, step.want)
		}
	}
}
