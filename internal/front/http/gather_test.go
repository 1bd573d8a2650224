package http

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Answers that are made together are written together, where no processor is free for the others.
func TestAnswersAreGathered(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const answers, tries = 8, 100
	want := append(slices.Repeat([]string{"made"}, answers), slices.Repeat([]string{"written"}, answers)...)
	var events []string
	// Go may interrupt a goroutine at any place, which divides the answers. It seldom does.
	for range tries {
		g := gathering{processors: 1}
		g.until.Store(answers)
		var all sync.WaitGroup
		var mu sync.Mutex
		events = nil
		note := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		for range answers {
			all.Go(func() {
				note("made")
				g.awaitOthers()
				note("written")
			})
		}
		all.Wait()
		if slices.Equal(events, want) {
			return
		}
	}
	t.Errorf("the last of %d tries was %q, want %q", tries, events, want)
}

// Where one answer comes after the other, none is held up but now and then, to look for others.
func TestAnswerAlone(t *testing.T) {
	g := gathering{processors: 1}
	for range 10 * lookEach {
		g.awaitOthers()
	}
	if until := g.until.Load(); until != 0 {
		t.Errorf("others were expected before write %d, want 0", until)
	}
}

// The answer that gives a hold does not wait for others, as its client could leave meanwhile.
func TestHoldIsNotGathered(t *testing.T) {
	r := newRig(t, Config{})
	c := r.dial(t)
	for _, step := range []struct {
		path, want string
		writes     uint64
	}{
		{"/lock/l/acquire?key=me", "me", 0}, {"/counter/c/count", "1", 1},
		{"/semaphore/s/acquire?key=me", "me", 1},
	} {
		c.send(step.path)
		c.want(200, step.want)
		if got := r.gathering.writes.Load(); got != step.writes {
			t.Errorf("%d writes were gathered up to %s, want %d", got, step.path, step.writes)
		}
	}
}
