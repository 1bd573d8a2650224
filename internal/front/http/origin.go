package http

import (
	"math/rand/v2"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// This file is how a request is told from others: by its id, in the log and in explanations, and by its
// place in a trace.

// headerRequestID is the id of a request, of the client's choice.
const headerRequestID = "X-Request-Id"

// maxRequestID is the length of the id of a request. Longer ones are not taken: they would fill the log.
const maxRequestID = 128

// isRequestID reports whether a client's id may be in the log and in a header: visible ASCII without quotes.
func isRequestID(id []byte) bool {
	for _, c := range id {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= maxRequestID
}

// nameRequest makes the request's id part of the answer, if the client has sent one.
func nameRequest(ctx *fasthttp.RequestCtx, from *sender) {
	if len(from.requestID) > 0 {
		setHeader(&ctx.Response, headerRequestID, from.requestID)
	}
}

// newRequestID makes an id for a request that came without.
func newRequestID() []byte {
	const bits = 36 // digits and small letters
	return strconv.AppendUint([]byte("r"), rand.Uint64(), bits)
}

// noteOrigin notes in a command which request it came with. Most come with nothing to note.
func (s *Server) noteOrigin(from *sender) *gatehouse.Origin {
	traced := s.config.BeginTrace != nil && len(from.traceparent) > 0
	if len(from.requestID) == 0 && !traced {
		return nil
	}
	origin := &gatehouse.Origin{RequestID: string(from.requestID)}
	if traced {
		origin.Trace = s.config.BeginTrace(string(from.traceparent), string(from.tracestate))
	}
	return origin
}
