package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Under load, while names of all tenants come and go, and after a change of rights, the streams have nothing
// of others in any byte, and neither do searches.
func TestStreamsUnderLoad(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for _, user := range []string{"blue", "red"} {
		work.Go(func() { s.comeAndGo(ctx, t, user) })
	}
	streams := make(map[string]*rawStream)
	for _, user := range []string{"blue", "red", "part"} {
		streams[user] = s.followRaw(t, canary+user)
	}
	look := func(frames int) {
		for range frames {
			for user, stream := range streams {
				event := stream.next(t)
				wantOwn(t, user, "a stream", event)
				// What is shown changes with each look.
				s.askAs(t, user, "GET", "/v1/names?limit=50&viewer="+stream.viewer)
				s.askAs(t, user, "GET", "/v1/top?by=granted")
			}
		}
	}
	look(3)
	for user, stream := range streams {
		_, about := s.ask(t, asked{method: "GET", path: "/v1/server", token: canary + user})
		if n := strings.Count(about, `"used":`); n < 5 || n != strings.Count(about, `"used":-1`) {
			t.Errorf("/v1/server tells %s how much others use: %s", user, about)
		}
		if !strings.Contains(stream.seen, `"name":"`) {
			t.Errorf("%s was shown no names at all: %s", user, stream.seen)
		}
	}
	// Blue moves to another prefix, and part may not see anything of red any more. What was watched before
	// is not shown under the new rights.
	s.users[0][1] = strings.Replace(s.users[0][1], "team-blue/", "team-azure/", 1)
	s.users[2][1] = mayRead("lock/team-green/*", seesPage)
	writeUsers(t, s.file, s.users...)
	awaitLine(t, s.journal, `"msg":"the users are in force"`)
	for range 2 { // one frame may have been on its way
		for _, stream := range streams {
			stream.next(t)
		}
	}
	for _, user := range []string{"part", "red"} {
		event := streams[user].next(t)
		wantOwn(t, user, "a stream", event)
		if user == "part" && strings.Contains(event, "red") {
			t.Errorf("after its rights were taken part is shown %s", event)
		}
	}
	if event := streams["blue"].next(t); strings.Contains(event, `"name":"`) {
		t.Errorf("after its prefix was changed blue is shown %s", event)
	}
}

// comeAndGo has names of a user come and go until ctx ends.
func (s *tenantServer) comeAndGo(ctx context.Context, t *testing.T, user string) {
	t.Helper()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("/v1/lock/%sword-%d", user, i%200)
		for _, request := range [][2]string{
			{http.MethodPost, name + "/acquire?maxwait=0&owner=" + user + "-owner&key=" + fmt.Sprint(i)},
			{http.MethodPost, name + "/acquire?maxwait=0&key=other"},
			{http.MethodDelete, strings.Replace(name, fmt.Sprint(i%200), fmt.Sprint((i+100)%200), 1)},
		} {
			status, text := s.ask(t, asked{method: request[0], path: request[1], token: canary + user})
			if status >= 500 {
				t.Errorf("%s %s by %s = %d %s", request[0], request[1], user, status, text)
			}
			wantOwn(t, user, request[1], text)
		}
		shared().passes(t, pause)
	}
}

// A rawStream is a stream of activity as it comes, byte for byte.
type rawStream struct {
	body   io.Reader
	rest   string // what came behind the last event
	viewer string
	seen   string // all of it
}

// followRaw begins a stream, whose header fields are the first that it has seen.
func (s *tenantServer) followRaw(t *testing.T, token string) *rawStream {
	t.Helper()
	body, header := s.openActivity(t, token)
	stream := &rawStream{body: body, seen: fmt.Sprint(header)}
	_, id, _ := strings.Cut(stream.next(t), `"viewer":"`)
	stream.viewer, _, _ = strings.Cut(id, `"`)
	return stream
}

// next returns the next event.
func (r *rawStream) next(t *testing.T) string {
	t.Helper()
	part := make([]byte, 32<<10)
	for {
		event, rest, ok := strings.Cut(r.rest, "\n\n")
		if ok {
			r.rest = rest
			return event
		}
		n, err := r.body.Read(part)
		if err != nil {
			t.Fatalf("the stream has ended: %v", err)
		}
		r.rest += string(part[:n])
		r.seen += string(part[:n])
	}
}
