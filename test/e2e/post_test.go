package e2e

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// posts are requests with a body. The first line is the method and the path below /v1/, and behind bars are
// headers; {} is a fresh name. The last column are headers of the answer.
var posts = []struct{ fact, request, body, want, header string }{
	{"parameters in the query", "POST counter/{}/count?amount=5", "", "200 5", ""},
	{"no body at all", "POST counter/{}/count", "", "200 1", ""},
	{"parameters in a form", "POST counter/{}/count" + asForm, "amount=5", "200 5", ""},
	{"in both, where the form counts", "POST counter/{}/count?amount=2" + asForm, "amount=7&id=x", "200 7",
		""},
	{"a form with a charset",
		"POST counter/{}/count|Content-Type: Application/X-WWW-Form-Urlencoded; charset=UTF-8",
		"amount=5", "200 5", ""},
	{"escapes in a form", "POST semaphore/{}/acquire" + asForm, "key=a+b%26c", "200 a b&c", ""},
	{"an operation that only reads", "POST counter/{}/value" + asForm, "id=x", "200 0", ""},
	{"a type without a body", "POST counter/{}/count|Content-Type: application/json", "", "200 1", ""},
	{"an unknown parameter in a form", "POST counter/{}/count" + asForm, "by=5",
		`400 parameter "by" is unknown, want one of size …`, ""},
	{"a bad value in a form", "POST counter/{}/count" + asForm, "amount=x", `400 amount is "x", want …`, ""},
	{"a bad escape in a form", "POST counter/{}/count" + asForm, "amount=%x", `400 amount is "%x", want …`,
		""},
	{"another type", "POST counter/{}/count|Content-Type: application/json", `{"amount":5}`,
		`415 Content-Type of the body is "application/json", ` +
			`want application/x-www-form-urlencoded or no body`,
		"Accept: application/x-www-form-urlencoded"},
	{"a form in parts", "POST counter/{}/count|Content-Type: multipart/form-data; boundary=x", "--x--",
		"415 …", ""},
	{"no type", "POST counter/{}/count", "amount=5", `415 Content-Type of the body is "", want …`, ""},
	{"16 KiB", "POST counter/{}/count" + asForm, "id=x&" + strings.Repeat("&", 16<<10-5), "200 1", ""},
	{"a byte more", "POST counter/{}/count" + asForm, "id=x&" + strings.Repeat("&", 16<<10-4),
		"413 form has 16385 bytes, want at most 16384", ""},
	{"more than any body", "POST counter/{}/count" + asForm, strings.Repeat("&", 64<<10+1),
		"413 body is longer than 65536 bytes", ""},
	{"a path in other letter case", "POST COUNTER/{}/Count?amount=5" + asForm, "amount=5", "308 ",
		"Location: /v1/counter/{}/count?amount=5"},
	{"a GET with a form, which is not read", "GET counter/{}/count" + asForm, "amount=5", "200 1", ""},
	{"a GET with anything", "GET counter/{}/count|Content-Type: application/json", "{", "200 1", ""},
	{"a list", "POST counter" + asForm, "limit=5", `405 method is "POST", want one of GET, DELETE, OPTIONS`,
		"Allow: GET, DELETE, OPTIONS"},
	{"a name", "POST counter/{}", "", `405 …`, "Allow: DELETE, OPTIONS"},
	{"what operations know", "OPTIONS counter/{}/count", "", "200 ", "Allow: GET, POST, OPTIONS"},
	{"a page of another site", "POST counter/{}/count|Sec-Fetch-Site: cross-site", "", "403 …", ""},
	{"a form on a page of another site", "POST counter/{}/count|Origin: https://a.example" + asForm, "",
		"403 …", ""},
}

const asForm = "|Content-Type: application/x-www-form-urlencoded"

// A POST does what a GET does, and is repeated by nobody on its own account.
func TestPost(t *testing.T) {
	t.Parallel()
	for _, p := range posts {
		name := fresh(t)
		in := strings.NewReplacer("{}", name).Replace
		parts := strings.Split(in(p.request), "|")
		method, path, _ := strings.Cut(parts[0], " ")
		for _, chunked := range []bool{false, true} {
			c := shared().dial(t)
			if p.body == "" && chunked {
				continue
			}
			headers, body := parts[1:], p.body
			if chunked {
				name = fresh(t)
				headers = append(slices.Clip(headers), "Transfer-Encoding: chunked")
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			} else {
				headers = append(slices.Clip(headers), fmt.Sprintf("Content-Length: %d",
					len(body)))
			}
			path := strings.ReplaceAll(path, in("{}"), name)
			c.send(rawRequest(method+" /v1/"+path, headers...))
			go func() { _, _ = io.WriteString(c.TCPConn, body) }() // it may be answered before its end
			a := c.answer()
			want := strings.ReplaceAll(p.want, "{}", name)
			if !a.is(want) {
				t.Errorf("%s: %s, chunked %t = %s, want %s", p.fact, p.request, chunked, a, want)
			}
			header, value, _ := strings.Cut(strings.ReplaceAll(p.header, "{}", name), ": ")
			if got := a.header.Get(header); header != "" && got != value {
				t.Errorf("%s: %s: %q, want %q", p.fact, header, got, value)
			}
		}
	}
}

// A POST waits like a GET, and the connection goes on afterwards.
func TestPostWaits(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	c := shared().dial(t)
	c.send(rawRequest("POST /v1/event/"+name+"/wait", strings.TrimPrefix(asForm, "|"), "Content-Length: 13") +
		"maxwait=60000" + rawRequest("POST /v1/counter/"+name+"/count?amount=3"))
	shared().inLine(t, "event/"+name, 1)
	shared().want(t, "POST /v1/event/"+name+"/send?message=m", "204")
	if a := c.answer(); !a.is("204") || a.header.Get("X-Bouncer-Message") != "m" {
		t.Errorf("a wait by POST = %s with %v, want 204 and the message", a, a.header)
	}
	if a := c.answer(); !a.is("200 3") {
		t.Errorf("the request behind it = %s, want 200 3", a)
	}
}

// No answer of the API is kept by anybody on its way.
func TestNoAnswerIsStored(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	for _, request := range []string{
		"/v1/counter/{}/count", "/counter/{}/count", "POST /v1/counter/{}/count", "/v1/counter/{}/value",
		"/v1/counter/{}/stats", "DELETE /v1/counter/{}", "/v1/counter", "/v1/counter/{}/stats",
		"/v1/event/{}/wait?maxwait=0", "/v1/event/{}/wait?maxwait=20", "/v1/counter/{}/count?by=1",
		"/v1/nothing",
		"PUT /v1/counter/{}/count", "OPTIONS /v1/counter/{}/count", "/V1/counter/{}/count", "/healthz",
		"/readyz",
		"/.well-known/ready", "/", "/capacity", "POST /v1/capacity/get", "HEAD /healthz", "/no/such/path",
	} {
		c := shared().dial(t)
		c.ask(strings.ReplaceAll(request, "{}", name))
		if a := c.answer(); a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s = %s with Cache-Control %q, want no-store", request, a,
				a.header.Get("Cache-Control"))
		}
	}
	c := shared().dial(t)
	c.send("nonsense\r\n\r\n")
	if a := c.answer(); a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("what is no request = %s with Cache-Control %q, want no-store", a,
			a.header.Get("Cache-Control"))
	}
}

// Pages know HEAD: the headers of a GET, and no body.
func TestHeadOfPages(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/", "/docs", "/docs/", "/docs/index.html", "/docs/doc.json", "/docs/openapi.json",
		"/docs/api/", "/healthz", "/readyz", "/.well-known/ready", "/metrics", "/capacity",
		"/capacity?format=json", "/debug/status",
	} {
		get, head := shared().get(t, path), shared().get(t, "HEAD "+path)
		if head.status != get.status || head.body != "" || get.status >= 400 {
			t.Errorf("HEAD %s = %s, want %d and no body", path, head, get.status)
		}
		if head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("HEAD %s is of type %q, want %q", path, head.header.Get("Content-Type"),
				get.header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/", "/docs"} {
		if a := shared().get(t, path); !a.is("302") || a.header.Get("Location") != "/docs/" {
			t.Errorf("GET %s = %s to %q, want 302 to /docs/", path, a, a.header.Get("Location"))
		}
	}
}

// curl --retry repeats what was refused, with either status and whatever the method. Without it curl repeats
// nothing.
func TestWhatCurlRepeats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want int
	}{
		{"", 1}, {"--retry 1", 2}, {"--retry 1 -d refusal=429", 2}, {"-d refusal=429", 1},
	} {
		name := fresh(t)
		at := "http://" + shared().address + "/v1/event/" + name
		args := append([]string{"-s"}, strings.Fields(c.args)...)
		if out, err := exec.CommandContext(t.Context(), "curl", append(args, at+"/wait?maxwait=0")...).
			CombinedOutput(); err != nil {
			t.Fatalf("curl: %v\n%s", err, out)
		}
		if got := shared().stat(t, "event/"+name, "timed_out"); got != c.want {
			t.Errorf("curl %s made %d requests, want %d", c.args, got, c.want)
		}
	}
}
