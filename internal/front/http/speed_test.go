package http

import (
	"log/slog"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
)

// What the handler costs for a command that is decided at once, without the connection.
func BenchmarkHandler(b *testing.B) {
	for name, paths := range map[string][]string{
		"bucket":           {"/tokenbucket/b/acquire?size=999999999&interval=3600000&maxwait=0"},
		"bucket, may wait": {"/tokenbucket/b/acquire?size=999999999&interval=3600000"},
		"semaphore and release": {
			"/semaphore/s/acquire?key=k&size=1&expires=60000&maxwait=0", "/semaphore/s/release?key=k",
		},
		"grant over four names": {"/v1/grants"},
	} {
		b.Run(name, func(b *testing.B) {
			g := gate.New(memory.New(memory.Config{}), gate.Config{})
			s, handler, err := Embed(Config{Gate: g, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			requests := make([]fasthttp.RequestCtx, len(paths))
			for i, path := range paths {
				var request fasthttp.Request
				request.SetRequestURI(path)
				request.Header.SetHost("localhost")
				if path == grantsPath {
					request.Header.SetMethod(fasthttp.MethodPost)
					request.SetBodyString(`{"maxwait":0,"want":[{"gcra":"a","size":999999999},` +
						`{"pace":"b","size":999999999},{"tokenbucket":"c","size":999999999,"cost":2},` +
						`{"fixedwindow":"d","size":999999999}]}`)
				}
				request.CopyTo(&requests[i].Request)
				conn := new(tape)
				_, _ = handler.OnOpen(conn)
				requests[i].Init2(conn.about.(*httpConn), nil, false)
			}
			for b.Loop() {
				for i := range requests {
					ctx := &requests[i]
					s.handleRequest(ctx, false)
					if status := ctx.Response.StatusCode(); status >= 300 {
						b.Fatalf("status %d: %s", status, ctx.Response.Body())
					}
					ctx.Response.Reset()
				}
			}
		})
	}
}
