package grpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// timeHeader is the metadata with which a client asks for the server's time, in ms since 1970. From it the
// client knows how long a lease lasts: the protocol itself has only the second at which it ends.
const timeHeader = "gatehouse-time"

// sendServerTime answers a request for the time. It is called after the decision, so that the time of
// deciding does not count as part of a lease. It costs clients that do not ask a fifth of a µs.
func (s *Server) sendServerTime(ctx context.Context) {
	if len(metadata.ValueFromIncomingContext(ctx, timeHeader)) > 0 {
		ms := strconv.FormatInt(s.now().UnixMilli(), 10)
		_ = grpc.SetHeader(ctx, metadata.Pairs(timeHeader, ms)) // fails only after the answer
	}
}
