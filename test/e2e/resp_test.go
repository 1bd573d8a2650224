package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// redisAddress is where the server listens for Redis clients.
func (s *server) redisAddress(t *testing.T) string {
	t.Helper()
	return loggedAddress(awaitLine(t, s.journal, "serving RESP"))
}

// A redisConn is one connection of a Redis client.
type redisConn struct {
	*net.TCPConn
	t      *testing.T
	reader *bufio.Reader
}

// dialRedis connects for the length of the test.
func dialRedis(t *testing.T, address string) *redisConn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &redisConn{conn.(*net.TCPConn), t, bufio.NewReader(conn)}
	c.renew()
	return c
}

// renew gives the next answer all the time it may need.
func (c *redisConn) renew() { _ = c.SetDeadline(time.Now().Add(2 * patience)) }

// redisCommand is a command as clients send it.
func redisCommand(words string) string {
	var b strings.Builder
	args := strings.Fields(words)
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// send writes commands. That the server does not want them any more is no failure.
func (c *redisConn) send(commands ...string) {
	c.renew()
	for _, command := range commands {
		_, _ = io.WriteString(c.TCPConn, redisCommand(command))
	}
}

// want sends a command, which must be answered like this.
func (c *redisConn) want(command, answer string) {
	c.t.Helper()
	c.send(command)
	if got := c.answer(); !matches(answer, got) {
		c.t.Errorf("%s = %s, want %s", command, got, answer)
	}
}

// answer reads an answer: OK, -ERR text, 12, text, null, or [several parts].
func (c *redisConn) answer() string {
	c.t.Helper()
	c.renew()
	answer, err := c.read()
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	return answer
}

func (c *redisConn) read() (string, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return line, nil
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil:
		return "", err
	case n < 0:
		return "null", nil
	case line[0] == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.reader, text)
		return string(text[:n]), err
	}
	parts := make([]string, n)
	for i := range parts {
		if parts[i], err = c.read(); err != nil {
			return "", err
		}
	}
	return "[" + strings.Join(parts, " ") + "]", nil
}

// One name is one limiter, whichever door it is called through.
func TestRedisAndHTTPAreOneLimiter(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dialRedis(t, s.redisAddress(t))
	c.want("CL.THROTTLE user:1 1 1 60", "[0 2 1 -1 60]")
	s.want(t, "/v1/gcra/user:1/acquire?size=1&interval=60000&burst=1&maxwait=0", "204")
	c.want("CL.THROTTLE user:1 1 1 60", "[1 2 0 … 1…]")
	s.want(t, "/v1/gcra/user:1/acquire?size=1&interval=60000&burst=1&maxwait=0", "408")

	s.want(t, "/v1/semaphore/db/acquire?key=web", "200 web")
	c.send("GH.ACQUIRE semaphore/db KEY cli MAXWAIT 60000")
	s.inLine(t, "semaphore/db", 1)
	s.want(t, "/v1/semaphore/db/release?key=web", "204")
	if got := c.answer(); got != "cli" {
		t.Errorf("GH.ACQUIRE of what was released over HTTP = %s, want cli", got)
	}
	c.want("GH.SEND event/a/b MESSAGE hello", "OK")
	s.want(t, "/event/a%2Fb/wait", "200 hello")
	const open = `gatehouse_connections{protocol="resp"} 1`
	if figures := s.get(t, "/metrics").body; !strings.Contains(figures, open) {
		t.Errorf("the metrics have no %s:\n%s", open, figures)
	}
}

func TestNoDoorForRedis(t *testing.T) {
	t.Parallel()
	s := start(t, "--resp", "")
	s.want(t, "/.well-known/ready", "200")
	if strings.Contains(s.journal.String(), "serving RESP") {
		t.Errorf("with --resp empty the server said\n%s", s.journal)
	}
	address := start(t, "--max-connections", "2").redisAddress(t)
	for range 2 {
		dialRedis(t, address).want("PING", "PONG")
	}
	if got, want := dialRedis(t, address).answer(), "-ERR max number of clients reached"; got != want {
		t.Errorf("the third of two connections was told %s, want %s", got, want)
	}
}

// Who waits when the server is told to end, is told so, and idle connections are closed.
func TestSignalAnswersRedisClients(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.redisAddress(t)
	idle, half := dialRedis(t, address), dialRedis(t, address)
	idle.want("GH.ACQUIRE lock/l KEY a", "a")
	_, _ = io.WriteString(half, "*1\r\n$4\r\nPI")
	var waiters []*redisConn
	for _, command := range []string{"GH.ACQUIRE lock/l KEY b", "GH.WAIT event/e", "GH.WAIT barrier/b"} {
		w := dialRedis(t, address)
		w.send(command)
		s.inLine(t, strings.Fields(command)[1], 1)
		waiters = append(waiters, w)
	}
	s.signal(syscall.SIGTERM)
	for _, w := range waiters {
		if got := w.answer(); !matches("-UNAVAILABLE …the server is stopping", got) {
			t.Errorf("who waited was told %s, want -UNAVAILABLE and why", got)
		}
		if rest, err := io.ReadAll(w.reader); err != nil || len(rest) > 0 {
			t.Errorf("after that came %q, %v, want the end", rest, err)
		}
	}
	if rest, err := io.ReadAll(idle.reader); err != nil || len(rest) > 0 {
		t.Errorf("an idle connection got %q, %v, want the end", rest, err)
	}
	_, _ = io.WriteString(half, "NG\r\n")
	if got := half.answer(); got != "PONG" {
		t.Errorf("a command that was on its way = %s, want PONG", got)
	}
	if status, err := s.exit(); err != nil || status != 0 {
		t.Errorf("the server ended with %d, %v, want 0; it said\n%s", status, err, s.journal)
	}
}

// Running out of file descriptors costs the connections there is no room for, and nothing else.
func TestRedisDoorWithoutFileDescriptors(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.redisAddress(t)
	first := dialRedis(t, address)
	first.want("PING", "PONG")
	limit := func(most uint64) {
		t.Helper()
		limits := unix.Rlimit{Cur: most, Max: most}
		if err := unix.Prlimit(s.process.Pid, unix.RLIMIT_NOFILE, &limits, nil); err != nil {
			t.Fatal(err)
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	limit(uint64(len(open)) + 10)
	var crowd []net.Conn
	var dialer net.Dialer
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn, err := dialer.DialContext(ctx, "tcp", address)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, conn)
	}
	awaitLine(t, s.journal, "too many open files")
	first.want("CL.THROTTLE a 1 1 60", "[0 2 1 -1 60]")
	for _, conn := range crowd {
		_ = conn.Close()
	}
	dialRedis(t, address).want("PING", "PONG")
}
