package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// call makes one request to a path below /v1/, and returns the status and the body.
func (s *server) call(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	resp := s.begun(t.Context(), t, method+" "+path)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// begun makes a request, such as "GET lock/l/stats", of which the caller reads and closes the answer. What
// stands behind a bar is the type that is to be answered.
func (s *server) begun(ctx context.Context, t *testing.T, asked string) *http.Response {
	t.Helper()
	asked, accept, _ := strings.Cut(asked, "|")
	method, path, _ := strings.Cut(asked, " ")
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+"/v1/"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// wants makes a request that is to be answered with a status, and part of a body.
func (s *server) wants(t *testing.T, asked string, status int, part string) {
	t.Helper()
	method, path, _ := strings.Cut(asked, " ")
	got, body := s.call(t, method, path)
	if got != status || !strings.Contains(body, part) {
		t.Errorf("%s = %d %s, want %d with %q", asked, got, body, status, part)
	}
}

// A listing is a list of holders or waiters.
type listing struct {
	Total   int
	Holders []struct {
		ID, Owner, Host, Purpose, Since string
		Renewals, Slots                 int64
		Fence                           uint64
	}
	Waiters []struct {
		ID, Owner    string
		Position     int
		ExpectedWait *int64 `json:"expected_wait"`
	}
	Others []struct{ Server uint32 } `json:"other_servers"`
}

func (s *server) list(t *testing.T, path string) (l listing) {
	t.Helper()
	status, body := s.call(t, "GET", path)
	if err := json.Unmarshal([]byte(body), &l); err != nil || status != 200 {
		t.Fatalf("%s = %d %s, %v", path, status, body, err)
	}
	return l
}

// checkOperators lets one hold and another one wait, and looks at them and acts on them as an operator does.
// at are servers that share a store, or the same one twice: what one is told of holders the other one is too.
func checkOperators(t *testing.T, at [2]*server) {
	t.Helper()
	const first = "semaphore/gpu/acquire?size=1&key=secret-a&owner=train-a&host=g1&purpose=eval"
	at[0].wants(t, "POST "+first, 200, "secret-a")
	at[1].wants(t, "POST semaphore/gpu/renew?key=secret-a", 204, "")
	answer := make(chan string, 1)
	go func() { // ends with its answer
		resp := at[0].begun(context.WithoutCancel(t.Context()), t,
			"POST semaphore/gpu/acquire?key=secret-b&owner=train-b")
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answer <- string(text)
	}()
	await.True(t, "train-b waits", func() bool {
		l := at[0].list(t, "semaphore/gpu/waiters")
		return len(l.Waiters) == 1 && l.Waiters[0].Owner == "train-b" && l.Waiters[0].ExpectedWait != nil
	})
	l := at[1].list(t, "semaphore/gpu/holders")
	if l.Total != 1 || len(l.Holders) != 1 || l.Holders[0].Owner != "train-a" || l.Holders[0].Host != "g1" ||
		l.Holders[0].Purpose != "eval" || l.Holders[0].Renewals != 1 || l.Holders[0].Since == "" {
		t.Fatalf("holders are %+v, want train-a, renewed once", l)
	}
	_, body := at[0].call(t, "GET", "semaphore/gpu/holders")
	if strings.Contains(body, "secret") {
		t.Errorf("the list has a key: %s", body)
	}
	at[0].wants(t, "GET semaphore/gpu/acquire?key=late&maxwait=0&details=true", 200,
		"is full: 1 of 1 held, train-a for ")
	evict := "semaphore/gpu/evict?owner=ops&reason=drained&id=" + l.Holders[0].ID
	at[1].wants(t, "GET "+evict, 405, "")
	at[1].wants(t, "POST "+evict, 204, "")
	at[0].wants(t, "POST semaphore/gpu/renew?key=secret-a", 409, "evicted by ops: drained")
	at[1].wants(t, "POST "+evict+"&now=true", 204, "")
	if got := <-answer; got != "secret-b" {
		t.Errorf("who waited was answered %q, want its key", got)
	}
	at[1].wants(t, "POST semaphore/gpu/close?owner=ops&reason=maintenance", 204, "")
	at[0].wants(t, "POST semaphore/gpu/acquire?key=c&maxwait=0&size=9", 408, "is closed by ops: maintenance")
	at[0].wants(t, "GET semaphore?prefix=g&details=true", 200, `"used":1`)
	at[0].wants(t, "POST semaphore/gpu/open", 204, "")
	at[1].wants(t, "POST semaphore/gpu/acquire?key=c&maxwait=0&size=9", 200, "c")
	at[0].wants(t, "POST gcra/api/close?reason=paid", 204, "")
	at[1].wants(t, "POST gcra/api/acquire?size=5&maxwait=0", 408, "is closed: paid")
	at[0].wants(t, "POST gcra/api/open", 204, "")
	at[1].wants(t, "POST gcra/api/acquire?size=5&maxwait=0", 204, "")
}

func TestOperators(t *testing.T) {
	t.Parallel()
	s := start(t)
	checkOperators(t, [2]*server{s, s})
}

func TestOperatorsOnDisk(t *testing.T) {
	t.Parallel()
	s := start(t, "--store", "disk:"+t.TempDir())
	checkOperators(t, [2]*server{s, s})
}

func TestOperatorsOfTwoServers(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 2)
	checkOperators(t, [2]*server{servers[0], servers[1]})
}

// TestClosedOverARestart: what was closed and who held stay so on disk.
func TestClosedOverARestart(t *testing.T) {
	t.Parallel()
	dir := "disk:" + t.TempDir()
	s := start(t, "--store", dir)
	s.wants(t, "POST lock/l/acquire?key=a&owner=train-a&expires=0", 200, "a")
	s.wants(t, "POST lock/l/close?reason=moving", 204, "")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = start(t, "--store", dir)
	if l := s.list(t, "lock/l/holders"); len(l.Holders) != 1 || l.Holders[0].Owner != "train-a" {
		t.Errorf("holders are %+v, want train-a", l)
	}
	s.wants(t, "POST lock/l/release?key=a", 204, "")
	s.wants(t, "POST lock/l/acquire?key=b&maxwait=0", 408, "is closed: moving")
}

// TestEventStream: who waits is told its place, and then the outcome; a client that leaves takes nothing.
func TestEventStream(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wants(t, "POST lock/l/acquire?key=a", 200, "a")
	for _, asked := range []string{
		"GET lock/l/acquire?key=b", "POST lock/l/acquire", "POST gcra/g/acquire?key=b",
		"POST event/e/wait?key=b",
	} {
		resp := s.begun(t.Context(), t, asked+"|text/event-stream")
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotAcceptable {
			t.Errorf("%s with a stream: %d, want 406", asked, resp.StatusCode)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	left := s.begun(gone, t, "POST lock/l/acquire?key=left|text/event-stream")
	resp := s.begun(t.Context(), t, "POST lock/l/acquire?key=b&owner=train-b|text/event-stream")
	defer func() { _ = resp.Body.Close() }()
	got := resp.Header.Get("Content-Type")
	if got != "text/event-stream" || resp.StatusCode != http.StatusOK {
		t.Fatalf("the answer is %d %s, want a stream", resp.StatusCode, got)
	}
	events := bufio.NewScanner(resp.Body)
	next := func(name, part string) {
		t.Helper()
		head := ""
		for head == "" && events.Scan() {
			head = events.Text()
		}
		events.Scan()
		if head != "event: "+name || !strings.Contains(events.Text(), part) {
			t.Fatalf("the event is %q %q, want %s with %q", head, events.Text(), name, part)
		}
	}
	next("waiting", `"position":2`)
	leave()
	_ = left.Body.Close()
	next("waiting", `"position":1`)
	s.wants(t, "POST lock/l/release?key=a", 204, "")
	next("granted", `"key":"b"`)
	events.Scan() // the empty line behind the outcome
	if events.Scan() {
		t.Errorf("behind the outcome is %q, want the end", events.Text())
	}
}

// TestCycles: owners that wait for each other are shown.
func TestCycles(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wants(t, "POST lock/1/acquire?key=a&owner=A", 200, "a")
	s.wants(t, "POST lock/2/acquire?key=b&owner=B", 200, "b")
	s.wants(t, "GET cycles", 200, `{"cycles":[]}`)
	s.dial(t).ask("/v1/lock/2/acquire?key=a&owner=A")
	s.dial(t).ask("/v1/lock/1/acquire?key=b&owner=B")
	await.True(t, "the cycle is shown", func() bool {
		_, body := s.call(t, "GET", "cycles")
		return strings.Contains(body, `"stuck":true`) && strings.Contains(body, `"owner":"A"`)
	})
}

// TestHoldersOverRESP: the same over RESP, with push messages for who waits.
func TestHoldersOverRESP(t *testing.T) {
	t.Parallel()
	s := start(t, "--resp", "localhost:0")
	address := s.redisAddress(t)
	holder, waiter := dialRedis(t, address), dialRedis(t, address)
	ask := func(c *redisConn, words string) string {
		t.Helper()
		c.renew()
		if _, err := io.WriteString(c, redisCommand(words)); err != nil {
			t.Fatal(err)
		}
		line, err := c.reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	until := func(c *redisConn, part string) {
		t.Helper()
		for {
			line, err := c.reader.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %q: %v", part, err)
			}
			if strings.Contains(line, part) {
				return
			}
		}
	}
	ask(holder, "GH.ACQUIRE lock/l KEY a OWNER train-a")
	until(holder, "a")
	if got := ask(waiter, "GH.ACQUIRE lock/l KEY b WITH PROGRESS"); !strings.Contains(got, "RESP3") {
		t.Errorf("progress under RESP2: %s, want an error", got)
	}
	ask(waiter, "HELLO 3")
	until(waiter, "modules")
	got := ask(waiter, "GH.ACQUIRE lock/l KEY b OWNER train-b WITH PROGRESS")
	if !strings.Contains(got, ">3") {
		// The rest of HELLO's answer comes first.
		until(waiter, ">3")
	}
	until(waiter, "gatehouse.waiting")
	until(waiter, "position")
	ask(holder, "GH.WAITERS lock/l")
	until(holder, "train-b")
	until(holder, "next")
	ask(holder, "GH.RELEASE lock/l KEY a")
	until(waiter, "$1")
	until(waiter, "b")
}
