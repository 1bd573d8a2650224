package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests make their requests by the real curl, one process each.

// A curl is one process, and what came of it.
type curl struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// startCurl starts curl with some arguments.
func startCurl(ctx context.Context, t *testing.T, args ...string) *curl {
	t.Helper()
	args = append([]string{"-sS", "--max-time", "150"}, args...)
	c := &curl{cmd: exec.CommandContext(ctx, "curl", args...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("these tests need curl: %v", err)
	}
	return c
}

// end waits for the process, and returns what it wrote.
func (c *curl) end() (string, error) {
	if err := c.cmd.Wait(); err != nil {
		return "", fmt.Errorf("curl %s: %w: %s", c.cmd.Args[len(c.cmd.Args)-1], err, c.stderr.String())
	}
	return c.stdout.String(), nil
}

// runCurl runs curl to its end.
func runCurl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := startCurl(t.Context(), t, args...).end()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// answeredAt is when the server answered requests at a name, by its own log.
func (s *server) answeredAt(t *testing.T, name string) (times []time.Time) {
	t.Helper()
	lines, _, _ := s.journal.all()
	for _, line := range lines {
		var entry struct {
			Time      time.Time
			Msg, Name string
			Status    int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if entry.Msg == "answered" && entry.Name == name {
			times = append(times, entry.Time)
		}
	}
	return times
}

// Five per second: of 21 none is let through before its second of the bucket.
func TestCurlFivePerSecond(t *testing.T) {
	t.Parallel()
	s := start(t, "--log-level", "debug")
	url := "http://" + s.address + "/v1/tokenbucket/five/acquire?size=5"
	begun := time.Now()
	runCurl(t, url) // the bucket's seconds begin here, not before
	var curls []*curl
	for range 20 {
		curls = append(curls, startCurl(t.Context(), t, "-o", "/dev/null", "-w", "%{http_code}", url))
	}
	for _, c := range curls {
		if out, err := c.end(); err != nil || out != "204" {
			t.Errorf("a client got %q, %v, want 204", out, err)
		}
	}
	var times []time.Time
	until(t, "21 answers are on the log", func() bool {
		times = s.answeredAt(t, "five")
		return len(times) >= 21
	})
	slices.SortFunc(times, time.Time.Compare)
	for i, at := range times {
		if took, least := at.Sub(begun), time.Duration(i/5)*time.Second; took < least {
			t.Errorf("request %d was let through after %s, want after %s at least", i+1, took, least)
		}
	}
}

// writers are those who write into a folder at the moment, one file each.
type writers struct {
	folder, url string
	open        chan struct{} // until it is closed, who writes goes on writing
	mu          sync.Mutex
	most        int
}

// enter is called by who holds a slot, and counts the others.
func (w *writers) enter(t *testing.T, name string) (leave func()) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	file := filepath.Join(w.folder, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(w.folder)
	if err != nil {
		t.Error(err)
	}
	w.most = max(w.most, len(entries))
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// worker is a client as one would write it: it takes a slot, says so, works, and gives it back.
const worker = `
	curl -sSf --max-time 150 "$URL/acquire?size=3&expires=0&key=$KEY" || exit 1
	read -r _
	curl -sSf --max-time 150 "$URL/release?key=$KEY"`

// Three may write at once. Six clients die while they wait, and three while they write.
func TestCurlThreeWriters(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	place := "semaphore/" + name
	w := &writers{folder: t.TempDir(), url: "http://" + s.address + "/v1/" + place, open: make(chan struct{})}
	for i := range 3 { // nobody gets in while the clients in line die
		s.want(t, fmt.Sprintf("/v1/%s/acquire?size=3&key=first%d", place, i), "200")
	}
	var group sync.WaitGroup
	for i := range 15 {
		group.Go(func() { w.work(t, fmt.Sprintf("k%d", i), i%5 == 1) })
	}
	var waiting []*curl
	for i := range 6 {
		url := fmt.Sprintf("%s/acquire?size=3&expires=0&key=d%d", w.url, i)
		waiting = append(waiting, startCurl(t.Context(), t, url))
	}
	s.inLine(t, place, 21)
	for _, c := range waiting {
		_ = c.cmd.Process.Kill()
		if out, err := c.end(); err == nil {
			t.Errorf("a client that was killed got %q, want nothing", out)
		}
	}
	s.inLine(t, place, 15)
	for i := range 3 {
		s.want(t, fmt.Sprintf("/v1/%s/release?key=first%d", place, i), "204")
	}
	until(t, "three write", func() bool { return w.at(t) == 3 })
	close(w.open)
	group.Wait()
	until(t, "the slots of the dead are free", func() bool { return s.stat(t, place, "held") == 0 })
	if w.most != 3 {
		t.Errorf("at most %d wrote at the same time, want 3", w.most)
	}
	expired, acquired := s.stat(t, place, "expired"), s.stat(t, place, "acquired")
	if expired != 3 || acquired != 18 {
		t.Errorf("%d holds of %d expired, want 3 of 18: those who died waiting got none", expired, acquired)
	}
}

// at is how many write just now.
func (w *writers) at(t *testing.T) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, err := os.ReadDir(w.folder)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// work is the life of one worker, which may die in the middle.
func (w *writers) work(t *testing.T, key string, die bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", worker)
	cmd.Env = append(os.Environ(), "URL="+w.url, "KEY="+key)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Error(err)
		return
	}
	got := make([]byte, len(key))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != key {
		t.Errorf("worker %s got %q, %v, want its key", key, got, err)
	}
	leave := w.enter(t, key)
	<-w.open
	leave()
	if die { // what it held last is a hold that ends by itself
		runCurl(t, "-f", w.url+"/renew?expires=100&key="+key)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("worker %s: %v", key, err)
	}
}

// An event wakes 200 clients, and tells them all the same.
func TestCurlEventWakesAll(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	var curls []*curl
	for range 200 {
		curls = append(curls, startCurl(t.Context(), t, "http://"+s.address+"/event/"+name+"/wait"))
	}
	s.inLine(t, "event/"+name, 200)
	runCurl(t, "--get", "--data-urlencode", "message=lunch is ready & hot",
		"http://"+s.address+"/v1/event/"+name+"/send")
	for i, c := range curls {
		if out, err := c.end(); err != nil || out != "lunch is ready & hot" {
			t.Errorf("client %d got %q, %v, want the message", i+1, out, err)
		}
	}
}

// A watchdog that is not kicked fires once: a wait is answered once, and the next kick ends the alarm.
func TestCurlWatchdogFires(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	url := "http://" + s.address + "/v1/watchdog/" + name
	runCurl(t, url+"/kick?expires=60000")
	var curls []*curl
	for range 10 {
		curls = append(curls, startCurl(t.Context(), t, "-w", "%{http_code}", url+"/wait"))
	}
	s.inLine(t, "watchdog/"+name, 10)
	begun := time.Now()
	runCurl(t, url+"/kick?expires=500")
	for _, c := range curls {
		if out, err := c.end(); err != nil || out != "204" {
			t.Errorf("a waiter got %q, %v, want one answer 204", out, err)
		}
	}
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("the watchdog fired after %s, want not before 500ms", took)
	}
	runCurl(t, url+"/kick?expires=60000")
	if out := runCurl(t, "-w", "%{http_code}", "-o", "/dev/null", url+"/wait?maxwait=200"); out != "408" {
		t.Errorf("a wait after the next kick = %s, want 408", out)
	}
	if got := s.stat(t, "watchdog/"+name, "waited"); got != 10 {
		t.Errorf("%d waits got the signal, want 10", got)
	}
}

func TestCurlHeaders(t *testing.T) {
	t.Parallel()
	url := "http://" + shared().address + "/v1/"
	name := fresh(t)
	for _, c := range []struct {
		path string
		want []string
	}{
		{"tokenbucket/{}/acquire?size=2&interval=60000", []string{"HTTP/1.1 204 No Content",
			`RateLimit-Policy: "tokenbucket";q=2;w=60`, `RateLimit: "tokenbucket";r=1;t=…`}},
		{"tokenbucket/{}/acquire?size=0&interval=60000&maxwait=0", []string{"HTTP/1.1 408 Request Timeout",
			`RateLimit-Policy: "tokenbucket";q=0;w=60`, `RateLimit: "tokenbucket";r=0`}},
		{"semaphore/{}/acquire?size=2&cost=2", []string{"HTTP/1.1 200 OK",
			`RateLimit-Policy: "semaphore";q=2;qu="concurrent-requests"`, `RateLimit: "semaphore";r=0`,
			"Gatehouse-Fence: …"}},
		{"semaphore/{}/acquire?size=2&maxwait=0", []string{"HTTP/1.1 408 Request Timeout", "Retry-After: …"}},
		{"lock/{}/acquire?key=k", []string{"HTTP/1.1 200 OK", "Gatehouse-Fence: …"}},
		{"lock/{}/renew?key=k", []string{"HTTP/1.1 204 No Content", "Gatehouse-Fence: …"}},
	} {
		out := runCurl(t, "-i", url+strings.ReplaceAll(c.path, "{}", name))
		lines := strings.Split(out, "\r\n")
		for _, want := range c.want {
			if !slices.ContainsFunc(lines, func(line string) bool { return matches(want, line) }) {
				t.Errorf("%s has no line %s:\n%s", c.path, want, out)
			}
		}
	}
}

// curl can pretend to be a browser that asks for somebody else.
func TestCurlAsABrowser(t *testing.T) {
	t.Parallel()
	s, name := start(t, "--cors", "https://ours.example"), fresh(t)
	count := func(headers ...string) string {
		args := []string{"-w", " %{http_code}", "http://" + s.address + "/v1/counter/" + name + "/count"}
		for _, header := range headers {
			args = append(args, "-H", header)
		}
		return runCurl(t, args...)
	}
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{[]string{"Sec-Fetch-Site: cross-site"}, "request comes from a web page of another site… 403"},
		{[]string{"Sec-Fetch-Site: cross-site", "Origin: https://theirs.example"},
			`…another site, Origin "https://theirs.example"; start the server with --cors ORIGIN … 403`},
		{[]string{"Sec-Purpose: prefetch"}, "request is a browser's prefetch… 403"},
		{[]string{"Sec-Fetch-Site: cross-site", "Origin: https://ours.example"}, "1 200"},
		{[]string{"Sec-Fetch-Site: same-origin"}, "2 200"},
		{nil, "3 200"},
	} {
		if got := count(c.headers...); !matches(c.want, got) {
			t.Errorf("a count with %q = %q, want %q", c.headers, got, c.want)
		}
	}
}
