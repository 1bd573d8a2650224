package http

import (
	"context"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// maxDeleted is the largest number of names that one request deletes.
const maxDeleted = 1000

// deletePrefix deletes the names of a kind that begin with the parameter prefix. confirm must repeat the
// kind, as this cannot be taken back.
func (s *Server) deletePrefix(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	defer func() { s.metrics.countResponse(ctx.Response.StatusCode()); s.closeIfStopping(ctx) }()
	allowOrigin(&ctx.Response, s.allowedOrigin(from))
	prefix, p := readPrefixParams(ctx, kind)
	if p != nil {
		writeProblem(&ctx.Response, p.status, p.detail, from.wantsJSON)
		return
	}
	// A delete that has begun is carried out, as part of it cannot be taken back. So the context never ends,
	// and Begin always gets the turn.
	working := context.WithoutCancel(ctx)
	s.config.Budget.Deletion.Begin(working)
	deleted, next, err := s.config.Gate.DeletePrefix(working, prefix, maxDeleted)
	s.config.Budget.Deletion.End()
	if err != nil {
		f := errorProblem(err)
		f.writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	writeJSON(&ctx.Response, "application/json", struct {
		Kind    string `json:"kind"`
		Deleted int    `json:"deleted"`
		Next    string `json:"next"`
	}{kind.String(), deleted, next})
}

// readPrefixParams reads the parameters of a delete by prefix.
func readPrefixParams(ctx *fasthttp.RequestCtx, kind gatehouse.Kind) (prefix gate.Prefix, p *rejection) {
	prefix.Kind = kind
	confirm := ""
	_, query := splitURI(ctx.Request.Header.RequestURI())
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
	// An empty prefix would delete every name of the kind, which a script with an empty variable asks for
	// easily.
	switch {
	case p != nil:
	case prefix.Prefix == "":
		p = badRequest("prefix is missing, want the first byte or more of the names to delete")
	case confirm != kind.String():
		p = badRequest("confirm is %s, want confirm=%s, because a delete cannot be taken back",
			params.Quote([]byte(confirm)), kind)
	}
	return prefix, p
}
