package http

import (
	"context"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// mostDeleted is how many names one request deletes at most.
const mostDeleted = 1000

// deletePrefix deletes the names of a kind that begin with the parameter prefix. confirm must repeat the
// kind, as this cannot be taken back.
func (s *Server) deletePrefix(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	defer func() { s.metrics.responded(ctx.Response.StatusCode()); s.last(ctx) }()
	allowOrigin(&ctx.Response, s.origin(from))
	prefix, p := prefixParams(ctx, kind)
	if p != nil {
		refuse(&ctx.Response, p.status, p.detail, from.json)
		return
	}
	working := context.WithoutCancel(ctx)
	s.config.Budget.List.Begin(working) // it never ends
	deleted, next, err := s.config.Gate.DeletePrefix(working, prefix, mostDeleted)
	s.config.Budget.List.End()
	if err != nil {
		f := faultOf(err)
		f.write(&ctx.Response, from.json)
		return
	}
	writeJSON(&ctx.Response, "application/json", struct {
		Kind    string `json:"kind"`
		Deleted int    `json:"deleted"`
		Next    string `json:"next"`
	}{kind.String(), deleted, next})
}

func prefixParams(ctx *fasthttp.RequestCtx, kind gatehouse.Kind) (prefix gate.Prefix, p *problem) {
	prefix.Kind = kind
	confirm := ""
	_, query := split(ctx.Request.Header.RequestURI())
	p = eachParam(query, func(name, value []byte) error {
		switch strings.ToLower(string(name)) {
		case "prefix":
			prefix.Prefix = string(value)
		case "after":
			prefix.After = string(value)
		case "confirm":
			confirm = string(value)
		case "id":
		default:
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s is unknown, want one of prefix confirm after id", params.Quote(name))
		}
		return nil
	})
	switch {
	case p != nil:
	case prefix.Prefix == "":
		p = bad("prefix is missing, want the first byte or more of the names to delete")
	case confirm != kind.String():
		p = bad("confirm is %s, want confirm=%s, because a delete cannot be taken back",
			params.Quote([]byte(confirm)), kind)
	}
	return prefix, p
}
