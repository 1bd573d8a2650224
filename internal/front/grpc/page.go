package grpc

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/timeslice"
	"github.com/valyala/fasthttp"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// How many rows a page has.
const (
	defaultRows = 100
	mostRows    = 1000
)

// How large a page may become, by an estimate of its rows' sizes: it ends early where names are long. A name
// appears in a row twice, and one character of it may take six bytes.
const (
	mostBytes  = 512 << 10
	rowSize    = 500
	bandSize   = 80
	nameSize   = 6
	shownBands = 5 // of a lease
)

// pages are the status pages. They have no scripts, and their policy tells the browser so: whatever a client
// calls a resource, it cannot become a script.
type pages struct {
	html   *template.Template
	policy string
}

func newPages() *pages {
	sum := sha256.Sum256([]byte(pageCSS))
	return &pages{
		html: template.Must(template.New("page").Funcs(template.FuncMap{
			"amount": doormanpb.ShowAmount, "name": doormanpb.ShowName,
			"link": linkTo, "until": showUntil, "in": showIn,
			"style": func() template.CSS { return template.CSS(pageCSS) },
		}).Parse(pageHTML)),
		// The one style is allowed by its hash, so that no other can be smuggled in either.
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// A pageRequest is what the query of a page asks for.
type pageRequest struct {
	after, resource string
	limit           int
	json            bool
}

// readPage reads the query.
func readPage(ctx *fasthttp.RequestCtx) (r pageRequest, err error) {
	r = pageRequest{
		limit: defaultRows,
		json:  bytes.Contains(ctx.Request.Header.Peek(fasthttp.HeaderAccept), []byte("application/json")),
	}
	// From the raw URI: fasthttp's own parser accepts broken escapes, which are refused here.
	_, query, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, invalid("query: %w", err)
	}
	for key, all := range values {
		// The last of several values counts.
		if err := r.setParameter(key, all[len(all)-1]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// setParameter takes one parameter of the query.
func (r *pageRequest) setParameter(key, value string) error {
	switch key {
	case "after":
		r.after = value
	case "resource":
		r.resource = value
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > mostRows {
			return invalid("limit is %.40q, want a whole number from 1 to %d", value, mostRows)
		}
		r.limit = n
	// The parameter overrides the Accept header, so that a link in a browser can show JSON.
	case "format":
		if value != "json" && value != "html" {
			return invalid("format is %.40q, want json or html", value)
		}
		r.json = value == "json"
	default:
		return invalid("parameter %.40q is unknown, want one of after format limit resource", key)
	}
	return nil
}

// serveOverview answers with the page of the server and all its resources, or of the resource that the query
// names. The latter is for names that cannot stand in a path.
func (p *pages) serveOverview(ctx *fasthttp.RequestCtx, s *Server) error {
	r, err := readPage(ctx)
	if err != nil {
		return err
	}
	if r.resource != "" {
		return p.serveDetail(ctx, s, &r)
	}
	return p.writeView(ctx, "overview", s.makeOverview(&r), r.json)
}

// serveResource answers with the page of one resource.
func (p *pages) serveResource(ctx *fasthttp.RequestCtx, s *Server, name string) error {
	r, err := readPage(ctx)
	if err != nil {
		return err
	}
	// Two names for one page; which of them is meant cannot be known.
	if r.resource != "" {
		return invalid("parameter resource stands beside a resource in the path")
	}
	r.resource = name
	return p.serveDetail(ctx, s, &r)
}

func (p *pages) serveDetail(ctx *fasthttp.RequestCtx, s *Server, r *pageRequest) error {
	view, ok := s.makeDetail(r)
	if !ok {
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		return view.unknownResource(r.resource)
	}
	return p.writeView(ctx, "detail", view, r.json)
}

// unknownResource says why there is no page of a resource.
func (v *serverView) unknownResource(resource string) error {
	switch {
	case v.Master:
		return fmt.Errorf(
			"resource %q is unknown: no client holds a lease on it or requested one lately", resource)
	case v.MasterAddress == "":
		return fmt.Errorf("resource %q is unknown here: this server is not the master, and there is none",
			resource)
	default:
		return fmt.Errorf("resource %q is unknown here: this server is not the master, which is at %s",
			resource, doormanpb.ShowName(v.MasterAddress))
	}
}

// writeView answers with a copy of the state, made a moment ago. The lock is not held meanwhile.
func (p *pages) writeView(ctx *fasthttp.RequestCtx, name string, view any, asJSON bool) error {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAccept)
	if asJSON {
		return writeJSON(ctx, view)
	}
	// Into a buffer first, so that a failure of the template is a whole error and not half a page.
	var out pageBuffer
	if err := p.html.ExecuteTemplate(&out, name, view); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	h.SetContentType("text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	h.Set(fasthttp.HeaderContentSecurityPolicy, p.policy)
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	ctx.Response.SetBodyRaw(out.text) // not copied: it may be large
	return nil
}

// A pageBuffer keeps a page that a template writes. A thousand rows take it some ten milliseconds.
type pageBuffer struct {
	text   []byte
	writes int
	work   timeslice.Work
}

// Write implements [io.Writer].
func (b *pageBuffer) Write(part []byte) (int, error) {
	// A template writes each piece of text and each value by itself, far more often than the clock must be
	// read.
	b.writes++
	if b.writes%32 == 0 {
		b.work.Yield()
	}
	b.text = append(b.text, part...)
	return len(part), nil
}

// linkTo returns the path of a resource's page. A browser would resolve dots between slashes, so such names
// go into the query.
func linkTo(resource string) string {
	if path.Clean("/"+resource) != "/"+resource {
		return "/capacity?resource=" + url.QueryEscape(resource)
	}
	return "/capacity/" + url.PathEscape(resource)
}

// showIn says how far an instant is from now, in whole seconds.
func showIn(at *time.Time, now time.Time) string {
	if at == nil {
		return "never"
	}
	d := at.Sub(now).Round(time.Second)
	if d < 0 {
		return (-d).String() + " ago"
	}
	return "in " + d.String()
}

// showUntil formats an instant for machines.
func showUntil(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
