package http

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// guests are routes as another front would bring them.
func guests() map[string]func(ctx *fasthttp.RequestCtx, name string) error {
	return map[string]func(ctx *fasthttp.RequestCtx, name string) error{
		"GET /guest": func(ctx *fasthttp.RequestCtx, _ string) error {
			ctx.SetBodyString("all guests")
			return nil
		},
		"GET /guest/": func(ctx *fasthttp.RequestCtx, name string) error {
			ctx.SetBodyString("guest " + name)
			return nil
		},
		"POST /v1/guest/seat": func(ctx *fasthttp.RequestCtx, _ string) error {
			ctx.SetBodyString(fmt.Sprintf("seat for %d bytes", len(ctx.PostBody())))
			return nil
		},
		"GET /v1/guest/seat": func(ctx *fasthttp.RequestCtx, _ string) error {
			ctx.SetStatusCode(fasthttp.StatusNotFound)
			return errors.New("guest is not seated")
		},
		"POST /v1/guest/full": func(*fasthttp.RequestCtx, string) error {
			return gatehouse.Errorf(gatehouse.CodeExhausted, "house: has 3 seats, want fewer guests")
		},
		"POST /v1/guest/rude": func(*fasthttp.RequestCtx, string) error { panic("a rude guest") },
	}
}

// visits are requests to those routes. The text is "METHOD path", headers by "Name: value" behind bars.
var visits = []struct{ fact, request, want, header string }{
	{"a page", "GET /guest", "200 all guests", ""},
	{"one below", "GET /guest/ada", "200 guest ada", ""},
	{"its name is decoded, slashes are part of it", "GET /guest/a%2Fb/%3c/", "200 guest a/b/</", ""},
	{"a plus sign stands for itself", "GET /guest/a+b", "200 guest a+b", ""},
	{"a query is no part of it", "GET /guest/a?b=/c", "200 guest a", ""},
	{"half an escape", "GET /guest/a%2",
		`400 name is "a%2", want every % followed by two hexadecimal digits`, ""},
	{"a body", "POST /v1/guest/seat", "200 seat for 0 bytes", ""},
	{"a status that was set", "GET /v1/guest/seat", "404 guest is not seated", ""},
	{"the same as a problem", "GET /v1/guest/seat|Accept: application/json",
		`404 {"type":"about:blank","title":"Not Found","status":404,` +
			`"detail":"guest is not seated","code":"not_found"}`, ""},
	{"a status by the error's code", "POST /v1/guest/full", "503 house: has 3 seats, want fewer guests",
		"Retry-After: 1"},
	{"a panic", "POST /v1/guest/rude", "500 the server failed at this", ""},
	{"another method", "POST /guest", `405 method is "POST", want one of GET, HEAD, OPTIONS`,
		"Allow: GET, HEAD, OPTIONS"},
	{"another", "DELETE /v1/guest/seat", `405 method is "DELETE", want one of GET, HEAD, POST, OPTIONS`,
		"Allow: GET, HEAD, POST, OPTIONS"},
	{"HEAD", "HEAD /guest", "200 ", "Content-Length: 10"},
	{"HEAD of what has no GET", "HEAD /v1/guest/full", "405 ", "Allow: POST, OPTIONS"},
	{"OPTIONS", "OPTIONS /v1/guest/full", "200 ", "Allow: POST, OPTIONS"},
	{"a slash at the end", "GET /guest/?a=b", "301 ", "Location: /guest?a=b"},
	{"letter case, where the name keeps its own", "GET /Guest/A%41", "301 ", "Location: /guest/A%41"},
	{"a POST stays a POST", "POST /V1/guest/Seat/", "308 ", "Location: /v1/guest/seat"},
	{"no such path", "GET /guests",
		`404 path is "/guests", want /v1/<kind>/<name>/<operation>: see /docs`, ""},
	{"nor this", "POST /v1/guest",
		`404 kind "guest" is unknown, want one of tokenbucket semaphore lock event watchdog counter ` +
			`barrier gcra fixedwindow slidingwindow slidinglog pace`, ""},
	{"a page of another site", "POST /v1/guest/seat|Origin: https://a.example|Sec-Fetch-Site: cross-site",
		`403 request comes from a web page of another site, Origin "https://a.example"; ` +
			"start the server with --cors ORIGIN to allow it", ""},
	{"the same, by its origin alone", "POST /v1/guest/seat|Origin: https://a.example",
		`403 request comes from a web page of another site, Origin "https://a.example"; ` +
			"start the server with --cors ORIGIN to allow it", ""},
	{"a frame of another site", "GET /guest|Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|" +
		"Sec-Fetch-Dest: iframe", "403 request comes from a web page of another site, without an Origin; " +
		"only --cors '*' allows that", ""},
	{"a form of another site", "POST /v1/guest/seat|Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|" +
		"Sec-Fetch-Dest: document", "403 request comes from a web page of another site, without an Origin; " +
		"only --cors '*' allows that", ""},
	{"a link on another site that was followed", "GET /guest|Sec-Fetch-Site: cross-site|" +
		"Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", "200 all guests", ""},
	{"an origin that is allowed", "POST /v1/guest/seat|Origin: https://ours.example",
		"200 seat for 0 bytes", "Access-Control-Allow-Origin: https://ours.example"},
	{"which may ask first", "OPTIONS /v1/guest/seat|Origin: https://ours.example", "200 ",
		"Access-Control-Allow-Headers: Content-Type"},
}

func TestRoutes(t *testing.T) {
	r := newRig(t, Config{Routes: guests(), CORS: []string{"https://ours.example"}})
	for _, v := range visits {
		parts := strings.Split(v.request, "|")
		parts[0] += " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0"
		got, header := r.visit(t, strings.Join(parts, "\r\n")+"\r\n\r\n")
		if got != v.want {
			t.Errorf("%s: %s = %s, want %s", v.fact, v.request, got, v.want)
		}
		if name, value, _ := strings.Cut(v.header, ": "); header.Get(name) != value {
			t.Errorf("%s: %s has %s %q, want %q", v.fact, v.request, name, header.Get(name), value)
		}
	}
}

// visit sends a request as it is, and returns the status and the body of its answer.
func (r *rig) visit(t *testing.T, raw string) (got string, header http.Header) {
	t.Helper()
	c := r.dial(t)
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c.Conn, raw) }() // it may be answered before all is sent
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.60q has no answer: %v", raw, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%.60q: %v", raw, err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body), resp.Header
}

// A body may be as long as the door allows, however its length is told.
func TestRouteBodyIsLimited(t *testing.T) {
	r := newRig(t, Config{Routes: guests()})
	const head = "POST /v1/guest/seat HTTP/1.1\r\nHost: localhost\r\n"
	for size, want := range map[int]string{
		0: "200 seat for 0 bytes", maxBody: "200 seat for 65536 bytes",
		maxBody + 1: "413 body is longer than 65536 bytes",
	} {
		body := strings.Repeat("x", size)
		raw := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, size, body)
		if got, _ := r.visit(t, raw); got != want {
			t.Errorf("a body of %d bytes = %s, want %s", size, got, want)
		}
		raw = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, size, body)
		if size == 0 {
			raw = head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		}
		if got, _ := r.visit(t, raw); got != want {
			t.Errorf("a body of %d bytes in chunks = %s, want %s", size, got, want)
		}
	}
}

func TestRoutesThatCannotBe(t *testing.T) {
	answer := guests()["GET /guest"]
	for _, pattern := range []string{
		"", "GET", "GET ", "/guest", "PUT /guest", "GET guest/x/y/z/zz/zzz", "GET /healthz", "GET /lock",
		"GET /v1/lock/x/acquire", "GET /docs/x", "get /guest",
	} {
		if _, err := newRoutes(map[string]routeHandler{pattern: answer}); err == nil {
			t.Errorf("a route %q is taken, want an error", pattern)
		}
	}
	if _, err := newRoutes(map[string]routeHandler{"GET /guest": nil}); err == nil {
		t.Error("a route without anybody who answers is taken, want an error")
	}
}
