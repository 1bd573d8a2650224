package e2e

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// paths are what bouncer's HTTP layer does with methods and paths.
var paths = []script{
	{"every operation is there under v1", `
		tokenbucket/{}/acquire -> 204
		semaphore/{}/acquire?key=k -> 200 k
		semaphore/{}/renew?key=k -> 204
		semaphore/{}/release?key=k -> 204
		lock/{}/acquire?key=k -> 200 k
		lock/{}/renew?key=k -> 204
		lock/{}/release?key=k -> 204
		event/{}/send -> 204
		event/{}/wait -> 204
		watchdog/{}/kick?expires=0 -> 204
		watchdog/{}/wait -> 204
		counter/{}/count -> 200 1
		counter/{}/value -> 200 1
		counter/{}/reset -> 204
		barrier/{}/wait?size=1 -> 204`},
	{"every operation is there without v1", `
		/tokenbucket/{}/acquire -> 204
		/semaphore/{}/acquire?key=k -> 200 k
		/semaphore/{}/renew?key=k -> 204
		/semaphore/{}/release?key=k -> 204
		/lock/{}/acquire?key=k -> 200 k
		/lock/{}/renew?key=k -> 204
		/lock/{}/release?key=k -> 204
		/event/{}/send -> 204
		/event/{}/wait -> 200 ""
		/watchdog/{}/kick?expires=0 -> 204
		/watchdog/{}/wait -> 204
		/counter/{}/count -> 200 1
		/counter/{}/value -> 200 1
		/counter/{}/reset -> 204
		/barrier/{}/wait?size=1 -> 204`},
	{"both ways lead to the same controller", `
		/v1/counter/{}/count -> 200 1
		/counter/{}/count -> 200 2
		/counter/{}/stats -> 200 {"value":2,…
		DELETE /counter/{} -> 204
		DELETE /v1/counter/{} -> 404`},
	{"an operation has no other methods than GET and POST", `
		PUT counter/{}/count -> 405 method is "PUT", want one of GET, POST, OPTIONS
		PATCH counter/{}/count -> 405 [Allow: GET, POST, OPTIONS]
		DELETE counter/{}/count -> 405 [Allow: GET, POST, OPTIONS]
		HEAD counter/{}/count -> 405 "" [Allow: GET, POST, OPTIONS]
		TRACE counter/{}/count -> 405 [Allow: GET, POST, OPTIONS]
		get counter/{}/count -> 405 method is "get", want one of GET, POST, OPTIONS
		HEAD tokenbucket/{}/acquire -> 405 [Allow: GET, POST, OPTIONS]
		HEAD counter/{}/stats -> 405 [Allow: GET, POST, OPTIONS]
		counter/{}/stats -> 404  # none of them counted`},
	{"without v1 it has no POST, as in bouncer", `
		POST /counter/{}/count -> 405 method is "POST", want one of GET, OPTIONS [Allow: GET, OPTIONS]
		POST /event/{}/send -> 405 [Allow: GET, OPTIONS]
		HEAD /counter/{}/count -> 405 "" [Allow: GET, OPTIONS]
		counter/{}/stats -> 404`},
	{"pages have GET and HEAD", `
		POST /healthz -> 405 [Allow: GET, HEAD, OPTIONS]
		HEAD /healthz -> 200 ""
		HEAD counter -> 405 [Allow: GET, DELETE, OPTIONS]`},
	{"a controller itself knows DELETE only", `
		counter/{} -> 405 method is "GET", want one of DELETE, OPTIONS [Allow: DELETE, OPTIONS]
		HEAD counter/{} -> 405 [Allow: DELETE, OPTIONS]
		POST /semaphore/{} -> 405 [Allow: DELETE, OPTIONS]`},
	{"OPTIONS is answered 200 with what is allowed", `
		OPTIONS counter/{}/count -> 200 "" [Allow: GET, POST, OPTIONS]
		OPTIONS /tokenbucket/{}/acquire -> 200 "" [Allow: GET, OPTIONS]
		OPTIONS counter/{} -> 200 "" [Allow: DELETE, OPTIONS]
		OPTIONS /.well-known/ready -> 200 "" [Allow: GET, HEAD, OPTIONS]
		counter/{}/stats -> 404`},
	{"what is not there is 404", `
		/nothing -> 404 path is "/nothing", want /v1/<kind>/<name>/<operation>: see /docs
		/v1 -> 404
		/v1/ -> 404
		/v2/counter/{}/count -> 404 kind "v2" is unknown, want one of tokenbucket …
		turnstile/{}/acquire -> 404 kind "turnstile" is unknown, want one of tokenbucket … lock … pace
		turnstile -> 404 kind "turnstile" is unknown, …
		counter/{}/acquire -> 404 operation "acquire" is unknown, want one of count … for a counter
		tokenbucket/{}/release -> 404
		event/{}/kick -> 404
		barrier/{}/send -> 404
		counter/{}/count/again -> 404 path "/v1/counter/{}/count/again" has more than kind, …
		counter/{}/delete -> 404
		counter/a/b/value -> 404 …want a slash in a name as %2F
		POST /nothing -> 404
		OPTIONS /nothing -> 404`},
	{"a slash at the end is moved, the query kept", `
		counter/{}/count/ -> 301 "" [Location: /v1/counter/{}/count]
		counter/{}/count/?amount=5&id=x -> 301 "" [Location: /v1/counter/{}/count?amount=5&id=x]
		/counter/{}/count/ -> 301 "" [Location: /counter/{}/count]
		counter/{}/value -> 200 0`},
	{"the fixed parts are moved to lower case, the name is not", `
		/V1/Counter/Na%6De-{}/COUNT?amount=5 -> 301 "" [Location: /v1/counter/Na%6De-{}/count?amount=5]
		/TokenBucket/N-{}/Acquire/ -> 301 "" [Location: /tokenbucket/N-{}/acquire]
		DELETE /v1/COUNTER/N-{} -> 301 "" [Location: /v1/counter/N-{}]
		/counter/Name-{}/value -> 200 0`},
	{"each kind is a namespace of its own", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		semaphore/{}/acquire?key=k -> 200 k
		lock/{}/acquire?key=l -> 200 l
		event/{}/send -> 204
		watchdog/{}/kick -> 204
		counter/{}/count?amount=7 -> 200 7
		barrier/{}/wait?size=1 -> 204
		DELETE event/{} -> 204
		DELETE barrier/{} -> 204
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 408
		semaphore/{}/acquire?maxwait=0 -> 408
		semaphore/{}/release?key=l -> 409
		lock/{}/release?key=l -> 204
		watchdog/{}/wait?maxwait=0 -> 408
		counter/{}/value -> 200 7`},
	{"letter case in names counts", `
		counter/{}-a/count -> 200 1
		counter/{}-A/count -> 200 1`},
	{"the server says that it is ready", `
		/.well-known/ready -> 200 I'm ready!… [Content-Type: text/plain; charset=utf-8]
		/readyz -> 200 ready…
		/healthz -> 200 ok…`},
	{"the documentation is where bouncer has it", `
		/docs -> 302 "" [Location: /docs/]
		/docs/ -> 200 …<html… [Content-Type: text/html…]`},
	{"a value is text without a line end", `
		counter/{}/count -> 200 1 [Content-Type: text/plain; charset=utf-8] [Content-Length: 1]
		semaphore/{}/acquire?key=k -> 200 k [Content-Type: text/plain; charset=utf-8]
		/event/{}/send?message=m -> 204
		/event/{}/wait -> 200 m [Content-Type: text/plain; charset=utf-8]`},
}

func TestPaths(t *testing.T) {
	t.Parallel()
	play(t, paths)
}

// names are how a name may look in a path, and what it is then; "" is refused.
var names = []struct{ fact, path, name string }{
	{"letters and digits", "abcXYZ019", "abcXYZ019"},
	{"everything that needs no escape", "-._~:;@!$'()*,=&", "-._~:;@!$'()*,=&"},
	{"unicode, encoded", "m%C3%BCller-%E2%82%AC-%F0%9F%9A%A6", "müller-€-🚦"},
	{"unicode as it is", "straße", "straße"},
	{"a space", "a%20b", "a b"},
	{"a plus sign is no space", "a+b", "a+b"},
	{"an encoded plus sign", "a%2Bc", "a+c"},
	{"a slash, encoded", "a%2Fb%2fc", "a/b/c"},
	{"a question mark and a hash, encoded", "a%3Fb%23c", "a?b#c"},
	{"a percent sign, encoded", "100%25", "100%"},
	{"an escape is decoded once", "%2541", "%41"},
	{"the word of an operation", "count", "count"},
	{"v1", "v1", "v1"},
	{"one dot", ".", "."},
	{"two dots", "..", ".."},
	{"two dots, encoded", "%2e%2e%2Fetc", "../etc"},
	{"quotes and markup", "%22%3Cb%3E%22", `"<b>"`},
	{"512 bytes", strings.Repeat("n", 512), strings.Repeat("n", 512)},
	{"512 bytes of unicode", strings.Repeat("%C3%A9", 256), strings.Repeat("é", 256)},
	{"513 bytes", strings.Repeat("n", 513), ""},
	{"514 bytes of unicode", strings.Repeat("%C3%A9", 257), ""},
	{"empty", "", ""},
	{"a null byte", "a%00b", ""},
	{"a line end", "a%0Ab", ""},
	{"an escape character", "a%1B%5B31mb", ""},
	{"delete", "a%7Fb", ""},
	{"a control character of the upper plane", "a%C2%9Bb", ""},
	{"a mark that turns text around", "a%E2%80%AEb", ""},
	{"no UTF-8", "a%FFb", ""},
	{"half a character", "a%E2%82", ""},
	{"an overlong slash", "a%C0%AFb", ""},
	{"a surrogate", "a%ED%A0%80b", ""},
	{"an escape without digits", "a%zzb", ""},
	{"half an escape", "a%4", ""},
	{"a percent sign alone", "100%", ""},
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	var want []string
	for _, n := range names {
		if n.name == "" {
			s.want(t, "/v1/counter/"+n.path+"/count", "400")
			continue
		}
		if a := s.get(t, "/v1/counter/"+n.path+"/count"); !a.is("200 1") {
			t.Errorf("%s: first count of %s = %s, want 200 1", n.fact, n.path, a)
		}
		again := "/v1/counter/" + strings.ReplaceAll(url.PathEscape(n.name), "+", "%2B") + "/count"
		if a := s.get(t, again); !a.is("200 2") {
			t.Errorf("%s: second count, of %s = %s, want 200 2", n.fact, again, a)
		}
		want = append(want, n.name)
	}
	slices.Sort(want)
	var list struct {
		Kind, Next string
		Names      []string
	}
	a := s.get(t, "/v1/counter?limit=1000")
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || !slices.Equal(list.Names, want) {
		t.Errorf("list of names = %s, want %q", a, want)
	}
}

func TestHeadersKeepTheirSpelling(t *testing.T) {
	t.Parallel()
	c := shared().dial(t)
	c.ask("/v1/semaphore/" + fresh(t) + "/acquire")
	raw := make([]byte, 4096)
	n, err := c.reader.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Gatehouse-Fence", "Content-Type"} {
		if !strings.Contains(string(raw[:n]), "\r\n"+name+": ") {
			t.Errorf("answer %q has no header %s, want one spelled so", raw[:n], name)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	s := start(t, "--idle-timeout", "1s")
	c, name := s.dial(t), fresh(t)
	for i := range 5 {
		c.ask("/v1/counter/" + name + "/count")
		if a := c.answer(); a.last {
			t.Errorf("answer %d has Connection: close, want the connection kept", i+1)
		}
	}
	c.ask("/v1/event/" + name + "/wait?maxwait=50") // one that was parked meanwhile
	if a := c.answer(); !a.is("408") || a.last {
		t.Errorf("wait = %s, closing %t, want 408 and the connection kept", a, a.last)
	}
	c.ask("/v1/counter/" + name + "/count")
	if a := c.answer(); !a.is("200 6") {
		t.Errorf("count after a wait = %s, want 200 6", a)
	}
	idle := time.Now()
	if a, err := c.read(); err == nil {
		t.Errorf("an idle connection got %s, want it closed", a)
	}
	if took := time.Since(idle); took < 500*time.Millisecond || took > patience/2 {
		t.Errorf("an idle connection was closed after %s, want about 1s", took)
	}
}

func TestConnectionIsClosedOnRequest(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	for _, request := range []string{
		"/v1/counter/" + name + "/count", "/v1/event/" + name + "/wait?maxwait=20",
	} {
		c := shared().dial(t)
		c.ask(request, "Connection: close")
		if a := c.answer(); !a.last {
			t.Errorf("answer to %s with Connection: close does not close", request)
		}
		if a, err := c.read(); err == nil {
			t.Errorf("after the last answer came %s, want the end", a)
		}
	}
}
