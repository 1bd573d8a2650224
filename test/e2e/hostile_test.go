package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHostileNamesAndTokens sends hostile names and wrong tokens for as long as the counts say, and looks at
// what is left of them in the server: memory, lines in the log and series of metrics stay bounded.
func TestHostileNamesAndTokens(t *testing.T) {
	t.Parallel()
	requests := 60_000
	if os.Getenv(longVariable) != "" {
		requests = 10_000_000
	}
	users := filepath.Join(t.TempDir(), "users.yaml")
	token, entry := newToken(t, "guest", "- {on: '*', do: use}", "- {on: 'server/metrics', do: read}")
	if err := os.WriteFile(users, []byte("users:\n"+entry), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--users", users, "--resp", "localhost:0", "--max-names", "50000", "--max-memory", "64MiB")
	before := s.residentKiB(t)
	began := time.Now()
	var all sync.WaitGroup
	for i, h := range []*hammer{
		{address: s.redisAddress(t), write: hostileCommand, read: readRedisAnswer,
			first: redisCommand("AUTH " + token), requests: requests * 6 / 10},
		{address: s.redisAddress(t), write: wrongAuth, read: readRedisAnswer, requests: requests * 2 / 10},
		{address: s.address, write: hostileRequest(token), read: readHTTPAnswer, requests: requests / 10},
		{address: s.address, write: hostileRequest(""), read: readHTTPAnswer, requests: requests / 10},
	} {
		h.rng = rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() { h.run(t) })
	}
	all.Wait()
	took, after := time.Since(began), s.residentKiB(t)
	metrics := s.get(t, "/metrics", "Authorization: Bearer "+token).body
	lines, _, _ := s.journal.all()
	t.Logf("%d requests in %v: %d KiB resident, %d before; %d lines of log, %d bytes of metrics",
		requests, took.Round(time.Second), after, before, len(lines), len(metrics))
	// The state may have 64 MiB, and as much again is garbage at most; the rest is the program.
	if most := 320 << 10; after > most {
		t.Errorf("the server has %d KiB resident, want at most %d", after, most)
	}
	if most := 50 + 4*int(took.Seconds()+1); len(lines) > most {
		t.Errorf("the log has %d lines, want at most %d", len(lines), most)
	}
	if len(metrics) > 512<<10 || strings.Contains(metrics, "hostile") {
		t.Errorf("the metrics have %d bytes, want at most 512 KiB and no name of a client", len(metrics))
	}
	if strings.Contains(strings.Join(lines, "\n"), token) {
		t.Error("the log has a token")
	}
}

// residentKiB is how much memory the server has.
func (s *server) residentKiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Pid))
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if err != nil || found == nil {
		t.Fatalf("no resident memory of the server in %q: %v", text, err)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A hammer sends requests over one connection after the other, some at a time, and reads all answers.
type hammer struct {
	address  string
	first    string // sent at the beginning of each connection; "" for nothing
	requests int
	write    func(b *bytes.Buffer, rng *rand.Rand)
	read     func(r *bufio.Reader) error
	rng      *rand.Rand
}

func (h *hammer) run(t *testing.T) {
	t.Helper()
	for done := 0; done < h.requests; {
		n, err := h.runConnection(t, h.requests-done)
		done += n
		// The server may end a connection that asks for it, but not refuse to answer.
		if n == 0 {
			t.Errorf("no answer at %s: %v", h.address, err)
			return
		}
	}
}

// runConnection sends some requests over a connection of its own, and returns how many were answered.
func (h *hammer) runConnection(t *testing.T, requests int) (done int, err error) {
	t.Helper()
	const together, perConnection = 50, 20_000
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", h.address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for done < min(requests, perConnection) {
		n, err := h.sendTogether(conn, reader, together, done == 0)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// sendTogether sends some requests at once, and returns how many answers came: before it is known who sends
// them, the server takes 4 KiB of a connection.
func (h *hammer) sendTogether(
	conn net.Conn, reader *bufio.Reader, n int, isFirst bool,
) (answered int, err error) {
	var out bytes.Buffer
	answers := n
	if isFirst && h.first != "" {
		out.WriteString(h.first)
		answers++
	}
	for range n {
		h.write(&out, h.rng)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return 0, err
	}
	for ; answered < answers; answered++ {
		if err := h.read(reader); err != nil {
			return answered, err
		}
	}
	return answered, nil
}

// hostileName is a name that no other request has, with what a parser, a log or a page could stumble over.
func hostileName(rng *rand.Rand) string {
	pieces := []string{
		"hostile", "<script>", "\"'`", "\x00", "\r\n", "\u202e", "%00", "../", "*", "{}", "\xff\xfe", "~",
		"é", ":;,", strings.Repeat("x", 200), "$(id)", "\\", "\x1b[2J",
	}
	name := fmt.Sprintf("%x", rng.Uint64())
	for range rng.IntN(4) {
		name += pieces[rng.IntN(len(pieces))]
	}
	return name
}

func hostileCommand(b *bytes.Buffer, rng *rand.Rand) {
	name := hostileName(rng)
	args := [][]string{
		{"CL.THROTTLE", name, "5", "5", "60"},
		{"GH.ACQUIRE", "lock/" + name, "KEY", name, "EXPIRES", "60000", "OWNER", name},
		{"GH.SEND", "event/" + name, "MESSAGE", name},
		{"GH.COUNT", "counter/" + name},
		{"GH.GRANT", "ID", name, "WANT", "gcra/" + name, "LIMITS", "5/1m", "WANT", "lock/" + name},
		{name, name},
		{"GH.DELETE", "lock/" + name},
	}[rng.IntN(7)]
	writeRedis(b, args)
}

func wrongAuth(b *bytes.Buffer, rng *rand.Rand) {
	args := []string{"AUTH", "gatehouse_" + hostileName(rng)}
	if rng.IntN(2) == 0 {
		args = []string{"AUTH", hostileName(rng), "gatehouse_" + hostileName(rng)}
	}
	writeRedis(b, args)
}

func writeRedis(b *bytes.Buffer, args []string) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
}

// hostileRequest writes requests with a token, or with a wrong one each if it is "".
func hostileRequest(token string) func(b *bytes.Buffer, rng *rand.Rand) {
	return func(b *bytes.Buffer, rng *rand.Rand) {
		shown := token
		if shown == "" {
			shown = fmt.Sprintf("gatehouse_%x", rng.Uint64())
		}
		name := url.PathEscape(hostileName(rng))
		target := []string{
			"/v1/gcra/" + name + "/acquire?size=5&interval=60000&maxwait=0",
			"/v1/lock/" + name + "/acquire?maxwait=0&owner=" + name,
			"/v1/decisions/" + name, "/v1/top?by=" + name, "/v1/activity/lock/" + name, "/" + name,
			"/v1/semaphore/" + name + "/holders",
		}[rng.IntN(7)]
		fmt.Fprintf(b, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"X-Request-Id: %x\r\n\r\n", target, shown, rng.Uint64())
	}
}

// readRedisAnswer reads one answer of any type.
func readRedisAnswer(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // 0 for those that have no number
	switch line[0] {
	case '$':
		if n >= 0 {
			_, err = io.CopyN(io.Discard, r, int64(n)+2)
		}
	case '*':
		for range n {
			if err := readRedisAnswer(r); err != nil {
				return err
			}
		}
	}
	return err
}

// readHTTPAnswer reads one answer, and fails for one that says that the server has failed.
func readHTTPAnswer(r *bufio.Reader) error {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusInternalServerError {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	return nil
}
