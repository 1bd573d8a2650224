package http

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/access/accesstest"
	"github.com/gatehousehq/gatehouse/internal/activity"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/gatehousehq/gatehouse/internal/openapi"
)

func describedOperations(t *testing.T) (lines map[string]string) {
	t.Helper()
	document, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	lines = make(map[string]string)
	for _, op := range document.Operations {
		lines[op.Method+" "+op.Path] = op.Tag
	}
	return lines
}

// redirects are paths that only lead to others. They are not described.
var redirects = map[string]bool{
	"get /": true, "get /docs": true, "get /debug/status": true, "get /debug/resources": true,
}

// The routes that the program brings are described, and no others.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	server, err := grpcfront.New(grpcfront.Config{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	described := describedOperations(t)
	for pattern := range server.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		if strings.HasSuffix(path, "/") {
			path += "{name}"
		}
		line := strings.ToLower(method) + " " + path
		if described[line] != "capacity" && !redirects[line] {
			t.Errorf("%s: not described", line)
		}
		delete(described, line)
	}
	for line, tag := range described {
		if tag == "capacity" {
			t.Errorf("%s is described, and no route", line)
		}
	}
}

// So are those of the page.
func TestOpenAPIHasTheActivity(t *testing.T) {
	described := describedOperations(t)
	about := func(bool) any { return nil }
	s := &Server{config: Config{Activity: activity.New(activity.Config{}), About: about}}
	for pattern := range s.allRoutes() {
		method, path, _ := strings.Cut(pattern, " ")
		if strings.HasSuffix(path, "/") {
			path += "{kind}/{name}"
		}
		line := strings.ToLower(method) + " " + path
		if described[line] != "activity" {
			t.Errorf("%s: not described", line)
		}
		delete(described, line)
	}
	for line, tag := range described {
		if tag == "activity" {
			t.Errorf("%s is described, and no route", line)
		}
	}
}

// The pages of this door are described, and whatever is described is read.
func TestOpenAPIPathsAreRead(t *testing.T) {
	described := describedOperations(t)
	for page := range fixedPages {
		if line := "get " + page; described[line] == "" && !redirects[line] {
			t.Errorf("%s: not described", line)
		}
	}
	for page := range pageGuards {
		line := "get " + page
		isDescribed := func(other string) bool {
			return other == line || strings.HasSuffix(page, "/") && strings.HasPrefix(other, line+"{")
		}
		// A POST alone; and what browsers load by itself.
		elsewhere := strings.HasPrefix(page, "/v1/capacity/") || page == docsPath || page == assetsPath
		known := slices.ContainsFunc(slices.Collect(maps.Keys(described)), isDescribed)
		if !known && !elsewhere && !redirects[line] {
			t.Errorf("%s: not described", line)
		}
	}
	for line, tag := range described {
		if tag == "capacity" || tag == "activity" { // routes, which have tests of their own
			continue
		}
		method, path, _ := strings.Cut(line, " ")
		if tag == "grants" {
			if several, ok := readSeveral([]byte(strings.Replace(path, "{id}", "a",
				1))); !ok || several.odd ||
				!strings.HasPrefix(several.allow, strings.ToUpper(method)) {
				t.Errorf("%s: %+v, want it read", line, several)
			}
			continue
		}
		id := gatehouse.HolderID(1)
		if strings.HasSuffix(path, "/bump") {
			id = gatehouse.WaiterID(1)
		}
		var r httpRequest
		_, p := r.readRequest([]byte(strings.ToUpper(method)),
			[]byte(strings.Replace(path, "{name}", "myapp", 1)),
			[]byte("key=me&status=429&id="+id))
		if p != nil {
			t.Errorf("%s: status %d %s, want it read", line, p.status, p.detail)
		}
	}
}

// TestOpenAPIHasQuotas asks for all that is described as a user who has as many connections as it may: just
// what the document says is refused with 429 is.
func TestOpenAPIHasQuotas(t *testing.T) {
	document, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	policy := accesstest.Policy(t, "may: [{on: '*', do: manage}], at-most: {connections: 1}")
	ours := newRig(t, Config{Users: access.NewUsers(policy, time.Now)})
	ask := func(c *client, method, path string) (status int, body string) {
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"+
			"Content-Length: 0\r\n\r\n", strings.ToUpper(method), path)
		resp, err := http.ReadResponse(c.reader, nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return resp.StatusCode, string(text)
	}
	first := ours.dial(t)
	if status, body := ask(first, "get", whoamiPath); status != http.StatusOK {
		t.Fatalf("the first connection: %d %s, want 200", status, body)
	}
	fill := strings.NewReplacer("{name}", "a", "{id}", "a", "{kind}", "lock", "{decision}", "d1x8k2")
	for _, op := range document.Operations {
		said := false
		for _, r := range op.Responses {
			said = said || r.Status == http.StatusTooManyRequests && strings.Contains(r.Description, "quota")
		}
		status, body := ask(ours.dial(t), op.Method, fill.Replace(op.Path))
		refused := status == http.StatusTooManyRequests && strings.Contains(body, "quota of 1 connections")
		if refused != said {
			t.Errorf("%s %s: %d %s, described as a refusal by a quota: %t", op.Method, op.Path, status, body,
				said)
		}
	}
}
