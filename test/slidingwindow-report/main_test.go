package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// The report is made as documented: k limiters, one Redis, requests from within, counters to be read.
func TestReport(t *testing.T) {
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		arguments := "-listen 127.0.0.1:0 -scale 3 -limit 5 -size 24h -load 500 -sync 20ms -redis "
		ended <- runReport(ctx, strings.Fields(arguments+server.Address), writer)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	if !lines.Scan() {
		t.Fatal(<-ended)
	}
	address := "http://" + strings.TrimPrefix(lines.Text(), "listening on ")
	answers := regexp.MustCompile(`^lim-[012]: (true|false)$`)
	if answer := body(t, address+"/allow"); !answers.MatchString(answer) {
		t.Errorf("answer = %q, want one such as lim-0: true", answer)
	}
	var metrics string
	redistest.Until(t, func() bool {
		metrics = body(t, address+"/metrics")
		return sum(t, metrics, "false") >= 20
	})
	// Each limiter allows 5, less what the others have told it by then.
	if n := sum(t, metrics, "true"); n < 5 || n > 15 {
		t.Errorf("%d allowed, want 5 to 15\n%s", n, metrics)
	}
	cancel()
	summary := regexp.MustCompile(`^lim-\d: \d+ allowed, \d+ denied$`)
	for i := range 3 {
		if !lines.Scan() || !summary.MatchString(lines.Text()) {
			t.Errorf("line %d = %q, want one such as lim-0: 5 allowed, 3 denied", i, lines.Text())
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// sum adds up the counters of one answer.
func sum(t *testing.T, metrics, allow string) (total int) {
	t.Helper()
	counter := regexp.MustCompile(
		`slidingwindow_requests_total\{allow="` + allow + `",limiter="lim-\d",resource="test"\} (\d+)`)
	for _, found := range counter.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

func body(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return string(text)
}

func TestFlags(t *testing.T) {
	c, err := parseFlags([]string{"-listen", ":1"})
	want := reportConfig{
		size: time.Second, sync: 200 * time.Millisecond, limit: 20, scale: 2, resource: "test",
		redis: "localhost:6379", listen: ":1",
	}
	if err != nil || c != want {
		t.Errorf("defaults = %+v, %v, want %+v", c, err, want)
	}
	for arguments, wrong := range map[string]string{
		"":                            "-listen is missing",
		"-listen :1 -size 0s":         "-size 0s",
		"-listen :1 -scale 0":         "-scale 0",
		"-listen :1 -load -1":         "-load -1",
		"-listen :1 -sync -1s":        "-sync -1s",
		"-listen :1 -load 2000000000": "-load 2000000000",
	} {
		if _, err := parseFlags(strings.Fields(arguments)); err == nil || !strings.Contains(err.Error(),
			wrong) {
			t.Errorf("flags %q: %v, want one that says %q", arguments, err, wrong)
		}
	}
}
