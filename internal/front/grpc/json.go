package grpc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/valyala/fasthttp"
)

// The same protocol in JSON, for languages without gRPC: the names are those of the protocol, numbers are
// numbers, and what is asked goes through the same methods.

// Routes are the paths of this package at the HTTP listener: the protocol in JSON, and the status pages.
func (s *Server) Routes() map[string]func(ctx *fasthttp.RequestCtx, name string) error {
	pages := newPages()
	return map[string]func(ctx *fasthttp.RequestCtx, name string) error{
		"POST /v1/capacity/get":     s.getJSON,
		"POST /v1/capacity/release": s.releaseJSON,
		"GET /capacity": func(ctx *fasthttp.RequestCtx, _ string) error {
			return pages.serveOverview(ctx, s)
		},
		"GET /capacity/": func(ctx *fasthttp.RequestCtx, name string) error {
			return pages.serveResource(ctx, s, name)
		},
		"GET /debug/status":    redirectToPages,
		"GET /debug/resources": redirectToPages,
	}
}

// redirectToPages redirects from the paths of doorman's pages to ours, with their parameter resource.
func redirectToPages(ctx *fasthttp.RequestCtx, _ string) error {
	to := url.URL{Path: "/capacity"}
	if resource := ctx.QueryArgs().Peek("resource"); len(resource) > 0 {
		to.RawQuery = url.Values{"resource": {string(resource)}}.Encode()
	}
	ctx.Response.Header.Set(fasthttp.HeaderLocation, to.String())
	ctx.SetStatusCode(fasthttp.StatusMovedPermanently)
	return nil
}

type getRequest struct {
	Client    string            `json:"client_id"`
	Resources []resourceRequest `json:"resource"`
}

type resourceRequest struct {
	Resource string     `json:"resource_id"`
	Priority int64      `json:"priority"`
	Has      *leaseJSON `json:"has"`
	Wants    *float64   `json:"wants"`
}

type leaseJSON struct {
	Expiry   int64   `json:"expiry_time"`
	Refresh  int64   `json:"refresh_interval"`
	Capacity float64 `json:"capacity"`
}

type getResponse struct {
	Mastership *mastershipJSON     `json:"mastership,omitempty"`
	Response   *[]resourceResponse `json:"response,omitempty"`
}

type mastershipJSON struct {
	Address string `json:"master_address,omitempty"` // left out when it is not known
}

type resourceResponse struct {
	Resource string    `json:"resource_id"`
	Gets     leaseJSON `json:"gets"`
	Safe     float64   `json:"safe_capacity"`
	Learning int64     `json:"learning_seconds,omitempty"`
}

type releaseRequest struct {
	Client    string   `json:"client_id"`
	Resources []string `json:"resource_id"`
}

type releaseResponse struct {
	Mastership *mastershipJSON `json:"mastership,omitempty"`
}

// getJSON answers GetCapacity.
func (s *Server) getJSON(ctx *fasthttp.RequestCtx, _ string) error {
	var asked getRequest
	if err := readJSON(ctx.PostBody(), &asked); err != nil {
		return err
	}
	c := s.newCall()
	defer s.freeCall(c)
	c.user = s.userOf(ctx)
	// A fault is left to answerCall, which counts it as it does for gRPC.
	c.fault = asked.fillCall(c)
	to, err := s.answerCall(overHTTP, rpcGetCapacity, c)
	if err != nil {
		return err
	}
	if to.notMaster {
		return writeJSON(ctx, getResponse{Mastership: &mastershipJSON{to.address}})
	}
	// Empty, not nil: a client that asks for nothing gets an empty list.
	all := make([]resourceResponse, 0, len(c.grants))
	for i := range c.grants {
		all = append(all, newResourceResponse(&c.grants[i]))
	}
	return writeJSON(ctx, getResponse{Response: &all})
}

// releaseJSON answers ReleaseCapacity.
func (s *Server) releaseJSON(ctx *fasthttp.RequestCtx, _ string) error {
	var asked releaseRequest
	if err := readJSON(ctx.PostBody(), &asked); err != nil {
		return err
	}
	c := s.newCall()
	defer s.freeCall(c)
	c.user, c.client = s.userOf(ctx), asked.Client
	c.released = append(c.released, asked.Resources...)
	to, err := s.answerCall(overHTTP, rpcReleaseCapacity, c)
	if err != nil {
		return err
	}
	var answer releaseResponse
	if to.notMaster {
		answer.Mastership = &mastershipJSON{to.address}
	}
	return writeJSON(ctx, answer)
}

// fillCall copies the request into a call. Fields that gRPC requires are required here too.
func (r *getRequest) fillCall(c *capacityCall) error {
	c.client = r.Client
	for i, asked := range r.Resources {
		// 0 is an amount; only a pointer tells it from a field that is not there.
		if asked.Wants == nil {
			return invalid("resource[%d].wants is missing, want a number", i)
		}
		request := capacity.Request{Resource: asked.Resource}
		if has := asked.Has; has != nil {
			request.Has = capacity.Lease{
				Expiry:  doormanpb.AtSecond(has.Expiry),
				Refresh: doormanpb.ForSeconds(has.Refresh), Capacity: has.Capacity,
			}
		}
		// A client of this protocol stands for itself alone, so it has one priority and counts as one.
		demand := capacity.Demand{Priority: asked.Priority, Clients: 1, Wants: *asked.Wants}
		c.demands = append(c.demands, demand)
		c.addRequest(request, 1)
	}
	return nil
}

func newResourceResponse(g *capacity.Grant) resourceResponse {
	lease := &g.Lease
	return resourceResponse{
		Resource: g.Resource, Safe: finiteAmount(g.Safe), Learning: learningSeconds(g),
		Gets: leaseJSON{
			lease.Expiry.Unix(), int64(lease.Refresh / time.Second), finiteAmount(lease.Capacity),
		},
	}
}

// finiteAmount returns an amount as it is sent, in JSON too, which has no infinity: -1 means no limit.
func finiteAmount(a float64) float64 {
	if math.IsInf(a, 1) {
		return -1
	}
	return a
}

// readJSON reads a body that is one JSON object with no fields other than those of value.
func readJSON(body []byte, value any) error {
	// encoding/json would replace bad bytes, and two names could become the same.
	if !utf8.Valid(body) {
		return invalid("body is not UTF-8, want a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return jsonError(err)
	}
	// Decode stops after the first value and ignores the rest.
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("body goes on after a JSON object, want one alone")
	}
	return nil
}

// jsonError says in a sentence what is wrong with a body.
func jsonError(err error) error {
	// This error has no type of its own, only its text.
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid("field %s is unknown, want client_id, resource, resource_id, wants, "+
			"priority, has, expiry_time, refresh_interval or capacity where they belong", field)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("%s is the JSON %s, want %s", cmp.Or(kind.Field, "body"), kind.Value, wantedType(kind))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return invalid("body is no JSON at byte %d: %s", syntax.Offset, syntax)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("body ends too early, want a JSON object such as " +
			`{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`)
	}
	return invalid("body is no JSON object: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// wantedType says what a field must be, by its Go type.
func wantedType(kind *json.UnmarshalTypeError) string {
	switch kind.Type.String() {
	case "string":
		return "a text"
	case "float64":
		return "a number"
	case "int64":
		return "a whole number of 64 bits"
	default:
		if strings.HasPrefix(kind.Type.String(), "[]") {
			return "a list"
		}
		return "an object"
	}
}

// writeJSON answers 200 with a value.
func writeJSON(ctx *fasthttp.RequestCtx, value any) error {
	var body bytes.Buffer
	// An encoder and not json.Marshal, which has no way to turn off the escaping.
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // it is never shown as HTML, and "<" would take six bytes
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	h := &ctx.Response.Header
	h.SetContentType("application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.SetBodyRaw(body.Bytes()) // not copied: it may be large
	return nil
}
