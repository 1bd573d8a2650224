package grpc

import (
	"context"
	"net/netip"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/glob"
	connections "github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc/metadata"
)

// This file tells who a call is from. Without Config.Users calls have no user.

// identify returns who a call is from, nil if rights are off.
func (s *Server) identify(ctx context.Context) (*access.User, error) {
	users := s.config.Users
	if users == nil {
		return nil, nil
	}
	header := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		header = values[0]
	}
	from, caller := access.From{}, new(access.Caller)
	if conn := connOf(ctx); conn != nil {
		from.Address, caller = connections.Source(conn.Conn), &conn.caller
		from.Certificate = certificateOf(ctx)
		_, from.Secure = conn.Conn.(*tlsconn.Connection)
	}
	// A connection carries many calls, mostly with the same token.
	user, _, err := caller.Identify(users, []byte(header), func() (*access.Login, error) {
		if header == "" {
			login, _ := users.Admit(from)
			return login, nil
		}
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		login, _, err := users.LogIn([]byte(token), "", from)
		return login, err
	})
	if err != nil {
		s.countRefusal(ctx, err, user)
		return nil, err
	}
	return user, nil
}

// healthService begins the methods that are answered to everybody, as an orchestrator has no token.
const healthService = "/grpc.health.v1.Health/"

// mayCall returns an error unless a call of health or reflection may go on.
func (s *Server) mayCall(ctx context.Context, method string) error {
	if s.config.Users == nil || strings.HasPrefix(method, healthService) {
		return nil
	}
	user, err := s.identify(ctx)
	if err == nil {
		err = user.Require(glob.Server, "reflection", gatehouse.LevelManage, "to look at")
		s.countRefusal(ctx, err, user)
	}
	return err
}

// countRefusal counts a call that is refused for who it is from. Other errors do not count.
func (s *Server) countRefusal(ctx context.Context, err error, user *access.User) {
	if s.config.Users == nil || err == nil {
		return
	}
	var address netip.Addr
	if conn := connOf(ctx); conn != nil {
		address = connections.Source(conn.Conn)
	}
	s.config.Users.CountFailure(telemetry.GRPC, err, address, user)
}

// userOf returns who a request of HTTP is from, nil if rights are off.
func (s *Server) userOf(ctx *fasthttp.RequestCtx) *access.User {
	if s.config.Users == nil {
		return nil
	}
	if user, ok := ctx.UserValue(access.ContextKey).(*access.User); ok {
		return user
	}
	return access.Unknown()
}

// checkUser returns an error unless the user of a call may do all of it.
func (c *capacityCall) checkUser(method rpc) error {
	verb := "a lease of"
	switch method {
	case rpcDiscovery:
		return nil
	case rpcReleaseCapacity:
		verb = "a release of"
	}
	for _, name := range c.released {
		if err := c.user.RequireAs(name, c.client, gatehouse.LevelUse, verb); err != nil {
			return err
		}
	}
	for i := range c.requests {
		if err := c.user.RequireAs(c.requests[i].Resource, c.client, gatehouse.LevelUse, verb); err != nil {
			return err
		}
	}
	return nil
}
