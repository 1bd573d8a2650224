package bouncer

import (
	"context"
	_ "embed"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/form"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/swaggest/swgui"
	swagger "github.com/swaggest/swgui/v5emb"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
)

// openAPI describes the API. A test holds it against the paths and parameters there are.
//
//go:embed openapi.yaml
var openAPI []byte

const openAPIPath = docsPath + "openapi.yaml"

// newPages returns the handlers of the pages that belong to no controller.
func (s *Server) newPages() map[string]fasthttp.RequestHandler {
	docs := swagger.NewHandlerWithConfig(swgui.Config{
		Title: "Gatehouse", SwaggerJSON: openAPIPath, BasePath: docsPath, HideCurl: false,
		SettingsUI: map[string]string{
			"tryItOutEnabled": "true", "validatorUrl": "null", "deepLinking": "true",
		},
	})
	metrics := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	return map[string]fasthttp.RequestHandler{
		"/":                  redirect(docsPath),
		"/docs":              redirect(docsPath),
		docsPath:             fasthttpadaptor.NewFastHTTPHandler(docs),
		openAPIPath:          serveOpenAPI,
		"/healthz":           func(ctx *fasthttp.RequestCtx) { text(&ctx.Response, "ok\n"+s.store()) },
		"/readyz":            s.ready("ready\n", s.store),
		"/.well-known/ready": s.ready("I'm ready!\n", func() string { return "" }),
		"/metrics":           fasthttpadaptor.NewFastHTTPHandler(metrics),
	}
}

// page serves a page.
func (s *Server) page(ctx *fasthttp.RequestCtx, page string) {
	serve := s.pages[page]
	if serve == nil {
		serve = s.pages[docsPath] // its assets
	}
	serve(ctx)
	if ctx.Response.StatusCode() == fasthttp.StatusNotFound {
		from := readSender(&ctx.Request.Header)
		refuse(&ctx.Response, fasthttp.StatusNotFound, notFound([]byte(page)).detail, from.json)
	}
	s.metrics.count(0, 0, ctx.Response.StatusCode())
	s.last(ctx)
}

func redirect(to string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, to)
		ctx.SetStatusCode(fasthttp.StatusMovedPermanently)
	}
}

func serveOpenAPI(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/yaml")
	ctx.SetBody(openAPI)
}

// store is the line about the store.
func (s *Server) store() string {
	if s.config.Store == nil {
		return ""
	}
	return s.config.Store()
}

// ready answers whether new requests should be sent here.
func (s *Server) ready(yes string, more func() string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if s.stopping.Load() {
			ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
			from := readSender(&ctx.Request.Header)
			refuse(&ctx.Response, fasthttp.StatusServiceUnavailable, "server is stopping", from.json)
			return
		}
		text(&ctx.Response, yes+more())
	}
}

// How many names a list gives.
const (
	defaultPage = 100
	largestPage = 1000
)

// list answers the names of a kind, in order: those that come after the parameter after, at most
// limit. next is what to give as after for those that follow; it is empty at the end.
func (s *Server) list(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	defer func() { s.metrics.count(0, 0, ctx.Response.StatusCode()); s.last(ctx) }()
	allowOrigin(&ctx.Response, s.origin(from))
	after, limit, p := listParams(ctx)
	if p != nil {
		refuse(&ctx.Response, p.status, p.detail, from.json)
		return
	}
	names, err := s.config.Gate.Names(context.WithoutCancel(ctx), kind, after, limit+1)
	if err != nil {
		status := codes[gatehouse.CodeOf(err)]
		if status == fasthttp.StatusServiceUnavailable {
			ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
		}
		refuse(&ctx.Response, status, err.Error(), from.json)
		return
	}
	next := ""
	if len(names) > limit {
		names = names[:limit]
		next = names[limit-1]
	}
	if names == nil {
		names = []string{}
	}
	writeJSON(&ctx.Response, "application/json", struct {
		Kind  string   `json:"kind"`
		Names []string `json:"names"`
		Next  string   `json:"next"`
	}{kind.String(), names, next})
}

func listParams(ctx *fasthttp.RequestCtx) (after string, limit int, p *problem) {
	limit = defaultPage
	_, query := split(ctx.Request.Header.RequestURI())
	p = eachParam(query, func(name, value []byte) error {
		switch strings.ToLower(string(name)) {
		case "after":
			after = string(value)
		case "limit":
			n, err := strconv.Atoi(string(value))
			if err != nil || n < 1 || n > largestPage {
				return gatehouse.Errorf(gatehouse.CodeInvalid,
					"limit is %s, want a whole number from 1 to %d", form.Quote(value), largestPage)
			}
			limit = n
		case "id":
		default:
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s is unknown, want one of after limit id", form.Quote(name))
		}
		return nil
	})
	return after, limit, p
}
