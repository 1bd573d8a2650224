package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// TestBeyondLimits has a user begin a limiter without a limit, whose default is more than the user may have.
func TestBeyondLimits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"slow", `may: [{on: "gcra/*", do: use, limits: "10/1h"}]`},
		[2]string{"reports", `may: [{on: "gcra/*", do: use, also: [feedback]}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, "--users", file)
	for _, c := range []struct {
		user, path, body string
		want             int
		part             string
	}{
		{"slow", "/v1/gcra/a/acquire?maxwait=0", "", 403, "default limit"},
		{"slow", "/v1/gcra/a/reserve", "", 403, "default limit"},
		{"slow", "/v1/gcra/a/acquire?limits=10/1h", "", 204, ""},
		{"slow", "/v1/gcra/a/acquire?maxwait=0", "", 204, ""},
		{"slow", "/v1/gcra/a/refund", "", 204, ""}, // which has no limit
		{"ops", "/v1/gcra/b/acquire?limits=100/1s", "", 204, ""},
		{"slow", "/v1/gcra/b/acquire?maxwait=0", "", 204, ""},
		{"slow", "/v1/gcra/a/acquire?limits=10/1h&parents=gcra/c:9/1s", "", 403, "within 10/1h"},
		{"slow", "/v1/grants", `{"want":[{"gcra":"a"},{"gcra":"d"}],"maxwait":0}`, 403, "default limit"},
		{"slow", "/v1/batch", `{"commands":[{"op":"acquire","gcra":"d"}]}`, 200, `"forbidden"`},
		{"slow", "/v1/gcra/a/acquire?limits=9/1h", "", 403, "another limit"},
		{"reports", "/v1/gcra/a/feedback?status=200", "", 204, ""},
	} {
		got, text := s.ask(t, asked{method: "POST", path: c.path, body: c.body, token: canary + c.user})
		if got != c.want || !strings.Contains(text, c.part) {
			t.Errorf("%s %s by %s = %d %s, want %d %s", c.path, c.body, c.user, got, text, c.want, c.part)
		}
	}
	// What only the state of a name could refuse counts, too.
	_, refusals := s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "ops"})
	for _, series := range []string{
		`gatehouse_auth_failures_total{protocol="http",reason="forbidden"} 6`,
		`gatehouse_user_rights_refused_total{reason="forbidden",user="slow"} 6`,
	} {
		if !strings.Contains(refusals, series) {
			t.Errorf("metrics have no %s", series)
		}
	}
	status, said, _ := gatehouse(t, nil, "token", "can", "reports", "feedback", "gcra/a", "--users", file)
	if status != 0 {
		t.Errorf("token can of what a line grants by name = %d, %q, want yes", status, said)
	}
}

// TestBatchHasItsUser looks for the user in the explanation of what was refused in a batch.
func TestBatchHasItsUser(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, "--users", file)
	body := `{"commands":[{"op":"acquire","lock":"a","key":"1"},{"op":"acquire","lock":"a","key":"2"}]}`
	_, text := s.ask(t, asked{method: "POST", path: "/v1/batch", body: body, token: canary + "ops"})
	_, id, _ := strings.Cut(text, `"decision":"`)
	id, _, _ = strings.Cut(id, `"`)
	got, text := s.ask(t, asked{method: "GET", path: "/v1/decisions/" + id, token: canary + "ops"})
	if got != 200 || !strings.Contains(text, `"user":"ops"`) {
		t.Errorf("explanation of %s = %d %s, want it to name the user", id, got, text)
	}
}

// TestRateOfEverything has a user ask for what is put to no controller more often than it may.
func TestRateOfEverything(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	paths := []string{
		"/v1/lock", "/v1/whoami", "/v1/cycles", "/metrics", "/v1/top", "/v1/names", "/v1/server",
		"/v1/activity/lock/a", "/v1/decisions/d1", "/capacity", "/capacity/a", "/docs/", "/v1/lock/a/stats",
	}
	commands := []string{
		"PING", "GH.LIST lock", "GH.CYCLES", "CLIENT LIST", "GH.EXPLAIN LAST", "INFO",
		"GH.DELETEPREFIX lock a CONFIRM lock", "GH.STATS lock/a", "CL.THROTTLE a 1 1 1",
	}
	users := make([][2]string, 0, len(paths)+len(commands))
	name := func(i int) string { return "u" + string(rune('a'+i)) }
	for i := range len(paths) + len(commands) {
		users = append(users, [2]string{name(i), `may: [{on: "*", do: manage}]` + "\n" +
			"    at-most: {rate: 2/1h}"})
	}
	writeUsers(t, file, users...)
	s := start(t, "--users", file)
	for i, path := range paths {
		statuses := make([]int, 3)
		for j := range statuses {
			statuses[j], _ = s.ask(t, asked{method: "GET", path: path, token: canary + name(i)})
		}
		if statuses[1] == 429 || statuses[2] != 429 {
			t.Errorf("GET %s three times = %d, want the third to be above 2/1h", path, statuses)
		}
	}
	for i, command := range commands {
		c := dialRedis(t, s.redisAddress(t))
		c.want("AUTH "+canary+name(len(paths)+i), "OK")
		answers := make([]string, 3)
		for j := range answers {
			c.send(command)
			answers[j] = c.answer()
		}
		if strings.HasPrefix(answers[1], "-QUOTA") || !strings.HasPrefix(answers[2], "-QUOTA") {
			t.Errorf("%s three times = %q, want the third to be above 2/1h", command, answers)
		}
	}
}

// TestBeforeAuth has connections of RESP that are nobody's yet.
func TestBeforeAuth(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]`})
	s := start(t, "--users", file)
	// Neither many commands nor a RESET make room for more than 4 KiB.
	for _, command := range []string{"AUTH " + strings.Repeat("x", 100), "RESET", "PING"} {
		c := dialRedis(t, s.redisAddress(t))
		size, sent := len(redisCommand(command)), 0
		for ; sent <= 4<<10+size; sent += size {
			c.send(command)
			if strings.HasPrefix(c.answer(), "-ERR Protocol error") {
				break
			}
		}
		if sent > 4<<10 {
			t.Errorf("%.10s … was answered after %d bytes, want an end after 4 KiB", command, sent)
		}
	}
}

// TestCrowdOfStrangers has more connections without a token than these may have, and one that gives a token.
func TestCrowdOfStrangers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]` + "\n" +
		`  - {name: anonymous, may: [{on: "counter/*", do: read}], at-most: {connections: 2}}`})
	s := start(t, "--users", file)
	for range 2 {
		dialRedis(t, s.redisAddress(t)).want("PING", "PONG")
	}
	dialRedis(t, s.redisAddress(t)).want("PING", "-QUOTA …")
	dialRedis(t, s.redisAddress(t)).want("AUTH "+canary+"ci", "OK")
	c := dialRedis(t, s.redisAddress(t))
	c.want("HELLO 2 AUTH ci "+canary+"ci", "[…]")
	c.want("ACL WHOAMI", "ci")
}

// TestBasicOfBrowsers sends the same credentials twice over one connection, as a proxy does for several
// clients: once from a program, and once from a browser, which is not to be heard.
func TestBasicOfBrowsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]`})
	s := start(t, "--users", file)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ci:"+canary+"ci"))
	for _, c := range []struct {
		agent string
		want  int
	}{{"curl/8", 200}, {"Mozilla/5.0", 401}, {"curl/8", 200}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+s.address+"/v1/whoami", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", basic)
		request.Header.Set("User-Agent", c.agent)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("Basic from %s = %d, want %d", c.agent, response.StatusCode, c.want)
		}
	}
}

// TestQuotasAreGivenBack has what a user began end elsewhere: released at another server, and deleted and
// evicted by an operator. The user gets it back although it would have counted for an hour.
func TestQuotasAreGivenBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ops", `may: [{on: "*", do: manage}]`},
		[2]string{"ci", `may: [{on: "*", do: use}]` + "\n    at-most: {holders: 3, names: 5}"})
	servers := startShared(t, redistest.Start(t), 2, "--users", file)
	here, there := servers[0], servers[1]
	acquire := func(name string) int {
		got := <-here.postAs(t, "ci", "lock/"+name+"/acquire?key=k&maxwait=0&expires=3600000", "")
		return got.status
	}
	for i := range 3 {
		if got := acquire(fmt.Sprint("n", i)); got != 200 {
			t.Fatalf("hold %d = %d, want 200", i, got)
		}
	}
	for i, end := range []func(name string){
		func(name string) { <-there.postAs(t, "ci", "lock/"+name+"/release?key=k", "") },
		func(name string) {
			there.ask(t, asked{method: "DELETE", path: "/v1/lock/" + name, token: canary + "ops"})
		},
		func(name string) {
			_, text := there.ask(t, asked{method: "GET", path: "/v1/lock/" + name + "/holders",
				token: canary + "ops"})
			_, id, _ := strings.Cut(text, `"holders":[{"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			<-there.postAs(t, "ops", "lock/"+name+"/evict?now=true&id="+id, "")
		},
	} {
		end(fmt.Sprint("n", i))
		await.True(t, fmt.Sprintf("the user has room again after the end of n%d", i), func() bool {
			return acquire(fmt.Sprint("again", i)) == 200
		})
	}
	if got := acquire("beyond"); got != 429 {
		t.Errorf("one more than the quota = %d, want 429", got)
	}
}

// TestBodiesOfStrangers has many connections without a token send nearly all of a batch, and a user send one
// of its own.
func TestBodiesOfStrangers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "*", do: use}]`})
	s := start(t, "--users", file, "--max-buffered", "4MiB")
	const length, begin = 1 << 20, "POST /v1/batch HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n"
	for range 20 {
		conn := dialRedis(t, s.address) // a connection, of whatever sort
		_, _ = fmt.Fprintf(conn, begin, s.address, length)
		_, _ = io.WriteString(conn, strings.Repeat("x", length-1))
	}
	commands := strings.Repeat(`{"op":"count","counter":"a"},`, 999) + `{"op":"count","counter":"a"}`
	got := <-s.postAs(t, "ci", "batch", `{"commands":[`+commands+`]}`)
	if got.status != 200 {
		t.Errorf("a batch while strangers send theirs = %d %s, want 200", got.status, got.text)
	}
	// The answer to one who is not known comes, and the next request of its connection is read.
	conn := dialRedis(t, s.address)
	for range 2 {
		_, _ = fmt.Fprintf(conn, begin, s.address, 10_000)
		_, _ = io.WriteString(conn, strings.Repeat("x", 10_000))
		response, err := http.ReadResponse(conn.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("a batch of a stranger = %d, want 401", response.StatusCode)
		}
	}
}
