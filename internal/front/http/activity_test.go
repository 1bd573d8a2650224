package http

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/access/accesstest"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// newViewed returns a server with a monitor of its gate.
func newViewed(t *testing.T, config Config) (*rig, *activity.Monitor) {
	t.Helper()
	g := new(lateGate)
	m := activity.New(activity.Config{Gate: g, Now: time.Now})
	config.Activity, config.Gate = m, g
	return newRig(t, config), m
}

// A lateGate is a gate that is known only when the server has been made.
type lateGate struct{ *gate.Gate }

// ask asks for a path on a connection of its own.
func (r *rig) ask(t *testing.T, path string) (status int) {
	t.Helper()
	answer, err := http.Get("http://" + r.address + path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return answer.StatusCode
}

// A viewer reads a stream.
type viewer struct {
	net.Conn
	events *bufio.Reader
}

// follow opens a stream at an address, and reads its first event.
func follow(t *testing.T, address string) *viewer {
	t.Helper()
	return followAs(t, address, "")
}

// followAs is follow with a header.
func followAs(t *testing.T, address, header string) *viewer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	v := &viewer{conn, bufio.NewReader(conn)}
	_, err = io.WriteString(conn, "GET /v1/activity HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")
	if err != nil {
		t.Fatal(err)
	}
	v.until(t, "event: hello")
	return v
}

// until reads until a line with a text, and returns it.
func (v *viewer) until(t *testing.T, text string) (line string) {
	t.Helper()
	_ = v.SetReadDeadline(time.Now().Add(time.Minute))
	for !strings.Contains(line, text) {
		var err error
		line, err = v.events.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream has no %q: %v", text, err)
		}
	}
	return line
}

// A stream has frames until the server stops, which it says. A viewer who leaves is noticed.
func TestActivityStream(t *testing.T) {
	r, m := newViewed(t, Config{})
	first, second := follow(t, r.address), follow(t, r.address)
	first.until(t, "event: frame")
	second.until(t, "event: frame")
	_ = second.Close()
	await.True(t, "one viewer is left", func() bool { return m.Viewers() == 1 })
	r.Stopping()
	first.until(t, "event: end")
	if rest, err := io.ReadAll(first.events); err != nil || string(rest) != "data: {}\n\n" {
		t.Errorf("behind the last event is %q, %v, want the end", rest, err)
	}
}

// A viewer who does not read is cut off, and delays no other.
func TestActivityStreamIsNotRead(t *testing.T) {
	r, m := newViewed(t, Config{WriteTimeout: 200 * time.Millisecond})
	tiny := r.serve(t, func(l net.Listener) net.Listener { return tinyBuffers{l} })
	long := strings.Repeat("x", gatehouse.MaxName-4)
	for i := range 300 {
		r.ask(t, fmt.Sprintf("/v1/counter/%s%03d/count", long, i))
	}
	slow := follow(t, tiny)
	quick := follow(t, r.address)
	_, id, _ := strings.Cut(quick.until(t, `"viewer":"`), `"viewer":"`)
	r.ask(t, "/v1/names?limit=300&viewer="+id[:16])
	quick.until(t, long+"299")
	await.True(t, "the slow one is cut off", func() bool { return m.Viewers() == 1 })
	quick.until(t, long+"299")
	_ = slow.Close()
}

// tinyBuffers is a listener whose connections hold little that is not read.
type tinyBuffers struct{ net.Listener }

// Accept implements [net.Listener].
func (l tinyBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4 << 10)
	}
	return conn, err
}

// One stream more than there may be is told so.
func TestActivityStreamsAreBounded(t *testing.T) {
	r, m := newViewed(t, Config{})
	var last *viewer
	for range activity.MaxViewers {
		last = follow(t, r.address)
	}
	if status := r.ask(t, "/v1/activity"); status != 503 {
		t.Errorf("a stream too many = %d, want 503", status)
	}
	_ = last.Close()
	await.True(t, "there is room", func() bool { return m.Viewers() == activity.MaxViewers-1 })
	follow(t, r.address)
}

// A user has no more than a share of the streams, so that there are some for another, whom the file may leave
// anonymous.
func TestActivityStreamsOfOneUser(t *testing.T) {
	const may = "may: [{on: server/activity, do: read}]"
	policy := accesstest.Policy(t, may+"}, {name: anonymous, "+may)
	r, m := newViewed(t, Config{Users: access.NewUsers(policy, time.Now)})
	const login = "Authorization: Bearer secret\r\n"
	var last *viewer
	for range activity.MaxUserViewers {
		last = followAs(t, r.address, login)
	}
	c := r.dial(t)
	_, _ = io.WriteString(c, "GET /v1/activity HTTP/1.1\r\nHost: localhost\r\n"+login+"\r\n")
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	const want = "user ci has 25 streams of activity, which is the most of one user; close one"
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), want) {
		t.Errorf("a stream too many of one user = %d %s, want 429 and %q", resp.StatusCode, text, want)
	}
	followAs(t, r.address, "")
	_ = last.Close()
	await.True(t, "there is room", func() bool { return m.Viewers() == activity.MaxUserViewers })
	followAs(t, r.address, login)
}
