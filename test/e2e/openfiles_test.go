package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// startWithFiles starts a server that may have so many files open.
func startWithFiles(t *testing.T, most int, flags ...string) *server {
	t.Helper()
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, most), binary(), "serve",
		"--http", "localhost:0"}, flags...)
	return startCommand(t, exec.CommandContext(context.WithoutCancel(t.Context()), "bash", args...))
}

// A limit of open files that is below the connections that one listener may have is told at the start, with
// the numbers that help all of them. One that suffices is not.
func TestWarningOfFewFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"", "ulimit -n 60100, LimitNOFILE=60100 or --max-connections 137"},
		{"--max-connections 513", "ulimit -n 1639, LimitNOFILE=1639 or --max-connections 137"},
		{"--max-connections 512", ""},
		{"--max-connections 512 --resp= --grpc=", ""},
		{"--max-connections 513 --resp= --grpc=", "ulimit -n 613, LimitNOFILE=613 or --max-connections 412"},
	} {
		s := startWithFiles(t, 512, strings.Fields(c.flags)...)
		told := strings.Contains(s.journal.String(), "--max-connections")
		if told != (c.want != "") || !strings.Contains(s.journal.String(), c.want) {
			t.Errorf("with 512 files and %q the server says\n%s\nwant %q", c.flags, s.journal, c.want)
		}
	}
}

// A process without file descriptors says so once for all its listeners, and once that it is over.
func TestComplaintsWithoutDescriptors(t *testing.T) {
	t.Parallel()
	s := startWithFiles(t, 64)
	var addresses []string
	for _, protocol := range []string{"serving HTTP", "serving RESP", "serving gRPC"} {
		addresses = append(addresses, loggedAddress(awaitLine(t, s.journal, protocol)))
	}
	var crowd []net.Conn
	for i := range 300 {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", addresses[i%len(addresses)])
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, conn)
	}
	told := func(text string) int { return strings.Count(s.journal.String(), text) }
	awaitLine(t, s.journal, "too many open files")
	for _, conn := range crowd { // others are accepted in their place, and fail again
		_ = conn.Close()
	}
	awaitLine(t, s.journal, "accepting connections again")
	began, ended := told("accepting a connection failed"), told("accepting connections again")
	if began != ended || began > 3 {
		t.Errorf("a shortage is told %d times and its end %d times, want once, or a few times:\n%s",
			began, ended, s.journal)
	}
	answer, err := http.Get("http://" + addresses[0] + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("after that /healthz = %v, %v, want 200", answer, err)
	}
	_ = answer.Body.Close()
}
