package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// acquirePath is granted at once, always.
const acquirePath = "/v1/tokenbucket/bench/acquire?size=999999999"

// requests measures what one request costs a server, without waiting.
func requests(ctx context.Context, b *bench) (text string, rows []row, err error) {
	contestants := []func(address string) []string{b.role("fasthttp"), b.nginx, b.gatehouse}
	measures := make([]func() (float64, error), len(contestants))
	for i, command := range contestants {
		s, err := b.start(ctx, command)
		if err != nil {
			return "", nil, err
		}
		// An answer of another status may be cheaper, so it is looked at before the time.
		if err := s.isNoContent(ctx); err != nil {
			return "", nil, err
		}
		if _, err := s.load(ctx, 1); err != nil { // to warm up
			return "", nil, err
		}
		// All three servers stay up and share one core, but only the one under load uses it.
		measures[i] = func() (float64, error) { return s.load(ctx, b.scale(3, 1)) }
	}
	all, err := b.race(measures...)
	if err != nil {
		return "", nil, err
	}
	// The same figure is judged against both floors.
	ours, note := all[2], "bouncer: 15.0 µs, measured elsewhere"
	rows = []row{
		{"acquire, against bare fasthttp", all[0], ours, nanoseconds, budget{most: 1.2}, note},
		{"acquire, against nginx", all[1], ours, nanoseconds, budget{most: 1.3}, note},
	}
	text = "`GET " + acquirePath + "` over 50 connections that stay open, made by\n" +
		"wrk on another core than the server's. The floors, a fasthttp handler and nginx with\n" +
		"`return 204`, answer 204 to everything. All have one core, all answers were 204. The time is\n" +
		"the server's, in user mode and in the kernel, divided by the requests."
	return text, rows, nil
}

// isNoContent makes sure that the answer is a 204.
func (s *server) isNoContent(ctx context.Context) error {
	response, err := s.get(ctx, acquirePath)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("answer of %s is %s, want 204", s.address, response.Status)
	}
	return response.Body.Close()
}

// get makes one request. The caller closes the body.
func (s *server) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// load returns the server's nanoseconds of CPU for one of the requests that wrk makes in some seconds.
func (s *server) load(ctx context.Context, seconds int) (float64, error) {
	return s.loadBy(ctx, seconds, acquirePath)
}

// loadBy is load for the requests to a path. What else wrk needs to make them comes behind.
func (s *server) loadBy(ctx context.Context, seconds int, path string, more ...string) (float64, error) {
	_, core, err := cores()
	if err != nil {
		return 0, err
	}
	// Not cpuWhile: the report of wrk is needed besides, since it says how many requests there were.
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	duration := fmt.Sprintf("-d%ds", seconds)
	command := append([]string{"wrk", "-t1", "-c50", duration}, more...)
	wrk := pinned(ctx, core, append(command, "http://"+s.address+path)...)
	report, err := wrk.Output()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w", err)
	}
	after, err := s.cpu()
	if err != nil {
		return 0, err
	}
	// wrk ends without an error when requests fail; only its report tells.
	if text := string(report); strings.Contains(text, "Non-2xx") || strings.Contains(text, "Socket errors") {
		return 0, errors.New("wrk was not answered as it should be:\n" + text)
	}
	n, err := strconv.Atoi(group(report, `(\d+) requests in`))
	if err != nil {
		return 0, fmt.Errorf("report of wrk: %w", err)
	}
	return float64(after-before) / float64(n), nil
}

// serveFasthttp is a floor.
func serveFasthttp(address string) error {
	return fasthttp.ListenAndServe(address, func(ctx *fasthttp.RequestCtx) {
		ctx.SetStatusCode(fasthttp.StatusNoContent)
	})
}

// nginx is a command that runs the other floor. Everything it writes goes into b.dir.
func (b *bench) nginx(address string) []string {
	file := filepath.Join(b.dir, "nginx.conf")
	err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, b.dir, address), 0o600)
	if err != nil {
		panic(err) // the folder was just made
	}
	return []string{"nginx", "-p", b.dir, "-c", file, "-e", "stderr"}
}

const nginxConfig = `daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		return 204;
	}
}
`
