package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTenantsSeeTheirOwn asks for all that the page asks for, as two tenants and as users who may read a part
// of the names, while names come and go: none of them is told a word of what is not its own.
func TestTenantsSeeTheirOwn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	const sees = `{on: server/activity, do: read}, {on: server/top, do: read}`
	users := [][2]string{
		{"blue", "prefix: team-blue/\n" + `    may: [{on: "*", do: manage}, ` + sees + `]`},
		{"red", "prefix: team-red/\n" + `    may: [{on: "*", do: manage}, ` + sees + `]`},
		{"part", `may: [{on: "lock/team-red/*", do: read}, ` + sees + `]`},
		{"ops", `may: [{on: "*", do: manage}]`},
	}
	writeUsers(t, file, users...)
	s := start(t, "--users", file)
	ask := func(user, method, path string) string {
		t.Helper()
		status, text := s.ask(t, asked{method: method, path: path, token: canary + user})
		if status != 200 && status != 204 && status != 408 {
			t.Errorf("%s %s by %s = %d %s", method, path, user, status, text)
		}
		return text
	}
	for i := range 3 {
		for _, user := range []string{"blue", "red"} {
			ask(user, "POST", fmt.Sprintf("/v1/lock/%sword-%d/acquire?key=k&owner=%s-owner&maxwait=0", user, i, user))
			ask(user, "POST", fmt.Sprintf("/v1/lock/%sword-%d/acquire?key=other&maxwait=0", user, i))
		}
	}
	wantOwn := func(user, what, text string) {
		t.Helper()
		for other, words := range map[string][]string{
			"blue": {"red", "team-"}, "red": {"blue", "team-"}, "part": {"blue"},
		} {
			for _, word := range words {
				if user == other && strings.Contains(text, word) {
					t.Errorf("%s tells %s about others (%s): %s", what, user, word, text)
				}
			}
		}
	}
	for user, own := range map[string]string{"blue": "blueword-1", "red": "redword-1", "part": "team-red/redword-1"} {
		for _, path := range []string{
			"/v1/names", "/v1/names?sort=name&kind=lock", "/v1/names?search=WORD-1", "/v1/top", "/v1/top?by=refused",
			"/v1/activity/lock/" + own,
		} {
			text := ask(user, "GET", path)
			wantOwn(user, path, text)
			if !strings.Contains(text, `"name":"`+own+`"`) {
				t.Errorf("%s by %s = %s, want %s in it", path, user, text, own)
			}
		}
	}
	for path, want := range map[string]int{
		"/v1/activity/lock/team-blue/blueword-1": 403, "/v1/activity/lock/other": 403,
	} {
		if got, text := s.ask(t, asked{method: "GET", path: path, token: canary + "part"}); got != want {
			t.Errorf("%s by part = %d %s, want %d", path, got, text, want)
		}
	}
	all := ask("ops", "GET", "/v1/names")
	if !strings.Contains(all, "team-blue/blueword-1") || !strings.Contains(all, "team-red/redword-1") {
		t.Errorf("ops is told %s, want the names of both tenants", all)
	}

	streams := make(map[string]chan string)
	for _, user := range []string{"blue", "red", "part", "ops"} {
		streams[user] = s.follow(t, canary+user)
		hello := <-streams[user]
		_, id, _ := strings.Cut(hello, `"viewer":"`)
		id, _, _ = strings.Cut(id, `"`)
		wantOwn(user, "a search", ask(user, "GET", "/v1/names?viewer="+id))
	}
	for i := range 3 { // frames, while names come and go
		for _, user := range []string{"blue", "red"} {
			ask(user, "POST", fmt.Sprintf("/v1/lock/%slate-%d/acquire?key=k&maxwait=0", user, i))
			ask(user, "DELETE", fmt.Sprintf("/v1/lock/%sword-%d", user, i))
		}
		for user, frames := range streams {
			frame := <-frames
			wantOwn(user, "a frame", frame)
			if sums := strings.Contains(frame, `"viewers"`); sums != (user == "ops") {
				t.Errorf("a frame of %s is %s, want sums only for ops", user, frame)
			}
			if user != "ops" && !strings.Contains(frame, "word-2") && i == 1 {
				t.Errorf("a frame of %s is %s, want its own names", user, frame)
			}
		}
	}
	// With fewer rights the next frame tells less, and without any the stream ends.
	users[2][1], users[1][1] = `may: [{on: "lock/x", do: read}, `+sees+`]`, `may: [{on: "lock/x", do: read}]`
	writeUsers(t, file, users...)
	until(t, "that the rights are gone", func() bool {
		frame, ok := <-streams["part"]
		return ok && strings.Contains(frame, `"rows":[]`)
	})
	until(t, "the end of a stream", func() bool { _, ok := <-streams["red"]; return !ok })
}

// follow returns the events of a stream of activity, and closes the channel when it ends.
func (s *server) follow(t *testing.T, token string) chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/v1/activity", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a stream was answered %v, %v, want 200", response, err)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
	}()
	return events
}
