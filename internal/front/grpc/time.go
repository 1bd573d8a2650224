package grpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// timeHeader is metadata by which a client asks what time it is here, in ms since 1970. By that it judges
// how long a lease is: the protocol itself has only the second at which it ends.
const timeHeader = "gatehouse-time"

// sendServerTime answers that after a decision, so that no time of deciding counts as part of a lease. It
// costs who does not ask a fifth of a µs.
func (s *Server) sendServerTime(ctx context.Context) {
	if len(metadata.ValueFromIncomingContext(ctx, timeHeader)) > 0 {
		ms := strconv.FormatInt(s.now().UnixMilli(), 10)
		_ = grpc.SetHeader(ctx, metadata.Pairs(timeHeader, ms)) // fails only after the answer
	}
}
