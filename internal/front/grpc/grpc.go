package grpc

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// The limits of the door.
const (
	maxMessage = 1 << 20 // bytes of a request: 10,000 resources with names of 20 bytes have half of that
	maxStreams = 250     // calls at once on one connection: a proxy may bring those of many clients
	maxHeader  = 16 << 10

	handshakeTimeout = 10 * time.Second // to begin HTTP/2

	// Clients of doorman ping each 2 seconds, also while nothing is asked.
	minPingInterval = time.Second

	// A connection that has been silent for a minute is asked whether it is still there.
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// Sizes of the buffers of one connection. That for writing is taken back from those that are idle.
const (
	readBuffer  = 8 << 10
	writeBuffer = 32 << 10
)

// How much a client may send ahead: of one call before its message is looked at, and of all calls. Windows
// that adapt would grow to 16 MiB.
const (
	callWindow = 64 << 10
	connWindow = 1 << 20
)

// newGRPC makes the server of the protocol, of health checks and of reflection.
func (s *Server) newGRPC() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnaryInterceptor(s.guardUnary), grpc.StreamInterceptor(s.guardStream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(connWindow), grpc.InTapHandle(s.admitCall),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPingInterval, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.WaitForHandlers(true),
	)
	server.RegisterService(s.serviceDesc(), nil) // its methods know s
	grpc_health_v1.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	return server
}

// serviceDesc is doormanpb's description of the service, with methods that read and write bytes themselves.
func (s *Server) serviceDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: doormanpb.Capacity_ServiceDesc.ServiceName,
		Metadata:    doormanpb.Capacity_ServiceDesc.Metadata,
		Methods: []grpc.MethodDesc{
			s.methodDesc(rpcDiscovery, (*capacityCall).readDiscovery, writeDiscovery),
			s.methodDesc(rpcGetCapacity, (*capacityCall).readGet, writeGet),
			s.methodDesc(rpcGetServerCapacity, (*capacityCall).readServerGet, writeServerGet),
			s.methodDesc(rpcReleaseCapacity, (*capacityCall).readRelease, writeRelease),
		},
	}
}

// methodDesc describes how one method is answered.
func (s *Server) methodDesc(
	number rpc, read func(c *capacityCall, message []byte) error, write func(c *capacityCall, to redirect) encoded,
) grpc.MethodDesc {
	handle := func(
		_ any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor,
	) (answer any, err error) {
		defer func() {
			if broken := recover(); broken != nil {
				answer, err = nil, grpcError(s.notePanic(broken))
			}
		}()
		c := s.newCall()
		if err := receive(&incoming{c, read}); err != nil {
			s.freeCall(c)
			s.metrics.countCall(overGRPC, number, telemetry.Unreceived, 0)
			return nil, err
		}
		to, err := s.answerCall(overGRPC, number, c)
		if err != nil {
			s.freeCall(c)
			return nil, grpcError(err)
		}
		s.sendServerTime(ctx)
		out := write(c, to)
		s.freeCall(c)
		connOf(ctx).noteAnswer(mem.BufferSlice(out).Len())
		return out, nil
	}
	return grpc.MethodDesc{MethodName: rpcNames[number], Handler: handle}
}

// mastershipSize is at most the size of a Mastership without the address.
const mastershipSize = 16

func writeDiscovery(_ *capacityCall, to redirect) encoded {
	return newEncoded(mastershipSize+len(to.address), func(out []byte) []byte {
		return appendDiscovery(out, to.address, !to.notMaster)
	})
}

func writeGet(c *capacityCall, to redirect) encoded {
	if to.notMaster {
		return writeRedirect(2, to)
	}
	return newEncoded(c.sizeGet(), c.appendGet)
}

func writeServerGet(c *capacityCall, to redirect) encoded {
	if to.notMaster {
		return writeRedirect(2, to)
	}
	return newEncoded(c.sizeGet(), c.appendServerGet)
}

func writeRelease(_ *capacityCall, to redirect) encoded {
	if to.notMaster {
		return writeRedirect(1, to)
	}
	return encoded{}
}

func writeRedirect(number protowire.Number, to redirect) encoded {
	return newEncoded(mastershipSize+len(to.address), func(out []byte) []byte {
		return appendMastership(out, number, to.address)
	})
}

// grpcCodes says what our codes are in gRPC.
var grpcCodes = map[gatehouse.Code]codes.Code{
	gatehouse.CodeInternal:    codes.Internal,
	gatehouse.CodeInvalid:     codes.InvalidArgument,
	gatehouse.CodeExhausted:   codes.ResourceExhausted,
	gatehouse.CodeUnavailable: codes.Unavailable,
	gatehouse.CodeTimeout:     codes.DeadlineExceeded,
}

// grpcError is an error as gRPC sends it.
func grpcError(err error) error { return status.Error(grpcCodes[gatehouse.CodeOf(err)], err.Error()) }

// guardUnary keeps the server alive when a method other than ours stumbles.
func (s *Server) guardUnary(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (answer any, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			answer, err = nil, grpcError(s.notePanic(broken))
		}
	}()
	answer, err = handle(ctx, request)
	if err == nil {
		connOf(ctx).noteAnswer(messageSize(answer))
	}
	return answer, err
}

// guardStream does the same for streams, which also end when the server does: a health check that watches
// would last for ever.
func (s *Server) guardStream(
	service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	ended := make(chan error, 1)
	go func() { // ends with the stream
		defer func() {
			if broken := recover(); broken != nil {
				ended <- grpcError(s.notePanic(broken))
			}
		}()
		ended <- handle(service, meteredStream{stream})
	}()
	select {
	case err := <-ended:
		return err
	case <-s.stopping:
		return grpcError(errEnded)
	}
}
