package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Tenants and users who may read a part of the names ask for all that the page asks for, while names come and
// go: none of them is told a word of what is not its own.
func TestTenantsSeeTheirOwn(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	for i := range 3 {
		for _, user := range []string{"blue", "red"} {
			name := fmt.Sprintf("/v1/lock/%sword-%d/acquire?maxwait=0", user, i)
			s.askAs(t, user, "POST", name+"&key=k&owner="+user+"-owner")
			s.askAs(t, user, "POST", name+"&key=other")
		}
	}
	s.wantOwnAnswers(t)
	streams := s.wantOwnFrames(t)
	// With fewer rights the next frame tells less, and without any the stream ends.
	s.users[2][1], s.users[1][1] = mayRead("lock/x", seesPage), mayRead("lock/x", "")
	writeUsers(t, s.file, s.users...)
	until(t, "that the rights are gone", func() bool {
		frame, ok := <-streams["part"]
		return ok && strings.Contains(frame, `"rows":[]`)
	})
	until(t, "the end of a stream", func() bool { _, ok := <-streams["red"]; return !ok })
}

// A tenantServer is a server with two tenants, blue and red, part, who may read locks of red, and ops.
type tenantServer struct {
	*server
	file  string
	users [][2]string // in this order, as writeUsers takes them
}

// seesPage is the right to the page, as the end of a list.
const seesPage = `, {on: server/activity, do: read}, {on: server/top, do: read}`

// mayRead lets a user read some names, and what the rest of the list says.
func mayRead(names, more string) string { return `may: [{on: "` + names + `", do: read}` + more + `]` }

func startTenants(t *testing.T) *tenantServer {
	t.Helper()
	const manages = `    may: [{on: "*", do: manage}` + seesPage + `]`
	s := &tenantServer{file: filepath.Join(t.TempDir(), "users.yaml"), users: [][2]string{
		{"blue", "prefix: team-blue/\n" + manages}, {"red", "prefix: team-red/\n" + manages},
		{"part", mayRead("lock/team-red/*", seesPage)}, {"ops", `may: [{on: "*", do: manage}]`},
	}}
	writeUsers(t, s.file, s.users...)
	s.server = start(t, "--users", s.file)
	return s
}

// askAs makes a request of a user, and returns the answer, in which there must be nothing of others.
func (s *tenantServer) askAs(t *testing.T, user, method, path string) string {
	t.Helper()
	status, text := s.ask(t, asked{method: method, path: path, token: canary + user})
	if status != 200 && status != 204 && status != 408 {
		t.Errorf("%s %s by %s = %d %s", method, path, user, status, text)
	}
	wantOwn(t, user, path, text)
	return text
}

// wantOwn wants no word in a text that tells a user about others.
func wantOwn(t *testing.T, user, what, text string) {
	t.Helper()
	others := map[string][]string{"blue": {"red", "team-"}, "red": {"blue", "team-"}, "part": {"blue"}}
	for _, word := range others[user] {
		if strings.Contains(text, word) {
			t.Errorf("%s tells %s about others (%s): %s", what, user, word, text)
		}
	}
}

// wantOwnAnswers asks for lists and histories.
func (s *tenantServer) wantOwnAnswers(t *testing.T) {
	t.Helper()
	for user, own := range map[string]string{
		"blue": "blueword-1", "red": "redword-1", "part": "team-red/redword-1",
	} {
		for _, path := range []string{
			"/v1/names", "/v1/names?sort=name&kind=lock", "/v1/names?search=WORD-1", "/v1/top",
			"/v1/top?by=refused", "/v1/activity/lock/" + own,
		} {
			if text := s.askAs(t, user, "GET", path); !strings.Contains(text, `"name":"`+own+`"`) {
				t.Errorf("%s by %s = %s, want %s in it", path, user, text, own)
			}
		}
	}
	for _, name := range []string{"team-blue/blueword-1", "other"} {
		got, text := s.ask(t, asked{method: "GET", path: "/v1/activity/lock/" + name, token: canary + "part"})
		if got != 403 {
			t.Errorf("lock/%s by part = %d %s, want 403", name, got, text)
		}
	}
	all := s.askAs(t, "ops", "GET", "/v1/names")
	if !strings.Contains(all, "team-blue/blueword-1") || !strings.Contains(all, "team-red/redword-1") {
		t.Errorf("ops is told %s, want the names of both tenants", all)
	}
}

// wantOwnFrames follows the stream as each user for some frames, and returns the streams, which go on.
func (s *tenantServer) wantOwnFrames(t *testing.T) map[string]chan string {
	t.Helper()
	streams := make(map[string]chan string)
	for _, user := range []string{"blue", "red", "part", "ops"} {
		streams[user] = s.follow(t, canary+user)
		_, id, _ := strings.Cut(<-streams[user], `"viewer":"`)
		id, _, _ = strings.Cut(id, `"`)
		s.askAs(t, user, "GET", "/v1/names?viewer="+id)
	}
	for i := range 3 { // frames, while names come and go
		for _, user := range []string{"blue", "red"} {
			s.askAs(t, user, "POST", fmt.Sprintf("/v1/lock/%slate-%d/acquire?key=k&maxwait=0", user, i))
			s.askAs(t, user, "DELETE", fmt.Sprintf("/v1/lock/%sword-%d", user, i))
		}
		for user, frames := range streams {
			frame := <-frames
			wantOwn(t, user, "a frame", frame)
			if sums := strings.Contains(frame, `"viewers"`); sums != (user == "ops") {
				t.Errorf("a frame of %s is %s, want sums only for ops", user, frame)
			}
			// The first may have come before the search.
			if user != "ops" && i == 1 && !strings.Contains(frame, "word-2") {
				t.Errorf("a frame of %s is %s, want its own names", user, frame)
			}
		}
	}
	return streams
}

// openActivity begins a stream of activity, which ends with the test.
func (s *server) openActivity(t *testing.T, token string) (events io.Reader, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	url := "http://" + s.address + "/v1/activity"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("a stream was answered %s, want 200", response.Status)
	}
	return response.Body, response.Header
}

// follow returns the events of a stream of activity, and closes the channel when it ends.
func (s *server) follow(t *testing.T, token string) chan string {
	t.Helper()
	body, _ := s.openActivity(t, token)
	events := make(chan string, 100)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
	}()
	return events
}
