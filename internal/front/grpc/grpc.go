package grpc

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The limits of a connection.
const (
	maxMessage = 1 << 20 // bytes of a request: 10,000 resources with names of 20 bytes take half
	maxStreams = 250     // calls at once on one connection: a proxy may carry those of many clients
	maxHeader  = 16 << 10

	// Clients of doorman ping every 2 seconds, also while they ask for nothing.
	minPingInterval = time.Second

	// A connection that has been silent for pingAfter is checked, and closed when no answer comes within
	// pingTimeout.
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second

	// A connection without a call for idleTimeout is asked to end. Clients connect again with their next
	// call.
	idleTimeout = 10 * time.Minute
)

// connWeight is the most that a connection takes in memory, in bytes, beside what is counted for its calls.
// Most of it is the table of header fields that HTTP/2 has a server keep (RFC 7541, 2.3.2): 4 KiB by its
// count, about ten times as much as gRPC keeps it, for as long as the connection lasts.
const connWeight = 50 << 10

// Sizes of the buffers of one connection. Those of idle connections for writing are given back.
const (
	readBuffer  = 8 << 10
	writeBuffer = 32 << 10
)

// How much a client may send ahead: for one call, before its message is read, and for all calls of a
// connection. Windows that adapt would grow to 16 MiB.
const (
	callWindow = 64 << 10
	connWindow = 1 << 20
)

// newGRPC makes the gRPC server, for this protocol, health checks and reflection.
func (s *Server) newGRPC() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnaryInterceptor(s.guardUnary), grpc.StreamInterceptor(s.guardStream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(s.config.ReadTimeout),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.InTapHandle(s.admitCall),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPingInterval, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTimeout,
		}),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		// Stop, too, waits for handlers: Shutdown saves the leases after it, and no call may decide then.
		grpc.WaitForHandlers(true),
	)
	server.RegisterService(s.serviceDesc(), nil) // its methods know s
	grpc_health_v1.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	return server
}

// serviceDesc is doormanpb's description of the service, with methods that read and write bytes themselves
// instead of generated messages.
func (s *Server) serviceDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: doormanpb.Capacity_ServiceDesc.ServiceName,
		Metadata:    doormanpb.Capacity_ServiceDesc.Metadata,
		Methods: []grpc.MethodDesc{
			s.methodDesc(rpcDiscovery, (*capacityCall).readDiscovery, writeDiscovery),
			s.methodDesc(rpcGetCapacity, (*capacityCall).readGet, writeGet),
			s.methodDesc(rpcGetServerCapacity, (*capacityCall).readServerGet, writeGet),
			s.methodDesc(rpcReleaseCapacity, (*capacityCall).readRelease, writeRelease),
		},
	}
}

// methodDesc describes one method, by how its request is read and its answer written.
func (s *Server) methodDesc(
	number rpc,
	read func(c *capacityCall, message []byte) error,
	write func(c *capacityCall, to redirect) encoded,
) grpc.MethodDesc {
	handle := func(
		_ any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor,
	) (answer any, err error) {
		// Interceptors are not called for these methods, so a panic is caught here.
		defer func() { err = s.panicError(recover(), err) }()
		// Nothing of the message is read for a sender that is not known.
		user, err := s.identify(ctx)
		if err == nil {
			err = user.TakeRate()
			s.countRefusal(ctx, err, user)
		}
		if err != nil {
			return nil, grpcError(err)
		}
		c := s.newCall()
		c.user = user
		in := &incoming{call: c, read: read}
		// receive ends in callCodec.Unmarshal. A message that it cannot read is no error here: it is noted
		// in c.fault, and answerCall counts it. An error means that no whole message came.
		if err := receive(in); err != nil {
			in.large.Free()
			s.freeCall(c)
			s.metrics.countCall(overGRPC, number, telemetry.Unreceived, 0)
			return nil, err
		}
		// Only now: receive waits until the client has ended its half of the call.
		t := turn{of: s.turns}
		defer t.end() // when the answer is bytes, or the call has failed or panicked
		in.readLarge(ctx, &t)
		end := s.beginTrace(ctx, number)
		to, err := s.answerCall(overGRPC, number, c)
		if end != nil {
			end(err)
		}
		if err != nil {
			s.freeCall(c)
			s.countRefusal(ctx, err, user)
			return nil, grpcError(err)
		}
		// After the decision: see sendServerTime.
		s.sendServerTime(ctx)
		// The answer is bytes of its own by now, so c may be used by another call before they are sent.
		out := write(c, to)
		s.freeCall(c)
		// Noted before gRPC gets the answer, because it may be written before this function returns.
		connOf(ctx).noteAnswer(mem.BufferSlice(out).Len())
		return out, nil
	}
	return grpc.MethodDesc{MethodName: rpcNames[number], Handler: handle}
}

// beginTrace begins the span of a call that is part of a trace; end is nil for any other.
func (s *Server) beginTrace(ctx context.Context, number rpc) (end func(error)) {
	if s.config.BeginCall == nil {
		return nil
	}
	field := func(name string) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",")
	}
	parent := field("traceparent")
	if parent == "" {
		return nil
	}
	return s.config.BeginCall(parent, field("tracestate"), "doorman.Capacity/"+rpcNames[number])
}

// mastershipSize is the largest size of a Mastership without its address.
const mastershipSize = 16

func writeDiscovery(_ *capacityCall, to redirect) encoded {
	out := make([]byte, 0, mastershipSize+len(to.address))
	return encoded{mem.SliceBuffer(appendDiscovery(out, to.address, !to.notMaster))}
}

func writeGet(c *capacityCall, to redirect) encoded {
	switch {
	case to.notMaster:
		return writeRedirect(2, to)
	case c.server:
		return c.newEncoded(c.sizeGet(), c.appendServerGet)
	}
	return c.newEncoded(c.sizeGet(), c.appendGet)
}

func writeRelease(_ *capacityCall, to redirect) encoded {
	if to.notMaster {
		return writeRedirect(1, to)
	}
	return encoded{}
}

func writeRedirect(number protowire.Number, to redirect) encoded {
	out := make([]byte, 0, mastershipSize+len(to.address))
	return encoded{mem.SliceBuffer(appendMastership(out, number, to.address))}
}

// grpcCodes says what our codes are in gRPC.
var grpcCodes = map[gatehouse.Code]codes.Code{
	gatehouse.CodeInternal:    codes.Internal,
	gatehouse.CodeInvalid:     codes.InvalidArgument,
	gatehouse.CodeExhausted:   codes.ResourceExhausted,
	gatehouse.CodeUnavailable: codes.Unavailable,
	gatehouse.CodeTimeout:     codes.DeadlineExceeded,

	gatehouse.CodeUnauthenticated: codes.Unauthenticated,
	gatehouse.CodeForbidden:       codes.PermissionDenied,
	gatehouse.CodeQuota:           codes.ResourceExhausted,
}

// grpcError returns an error in gRPC's form.
func grpcError(err error) error { return status.Error(grpcCodes[gatehouse.CodeOf(err)], err.Error()) }

// panicError is the error of a method that has panicked with a value, or err if that is nil.
func (s *Server) panicError(broken any, err error) error {
	if broken != nil {
		return grpcError(s.notePanic(broken))
	}
	return err
}

// guardUnary keeps the server alive when a method other than ours panics, and notes its answer.
func (s *Server) guardUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (answer any, err error) {
	defer func() { err = s.panicError(recover(), err) }()
	err = s.mayCall(ctx, info.FullMethod)
	if err != nil {
		return nil, grpcError(err)
	}
	answer, err = handle(ctx, request)
	if err == nil {
		// Health checks and reflection answer with messages, whose bytes gRPC makes only later.
		connOf(ctx).noteAnswer(messageSize(answer))
	}
	return answer, err
}

// guardStream does the same for streams. It also ends them when the server stops: a health check that
// watches would last forever.
func (s *Server) guardStream(
	service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := s.mayCall(stream.Context(), info.FullMethod); err != nil {
		return grpcError(err)
	}
	// The handler has a goroutine of its own, so that this function can return while the handler waits in
	// Watch. Then gRPC cancels the stream's context, which ends the goroutine.
	ended := make(chan error, 1)
	go func() { // ends with the stream
		var err error
		defer func() { ended <- err }()
		defer func() { err = s.panicError(recover(), err) }()
		err = handle(service, meteredStream{stream})
	}()
	select {
	case err := <-ended:
		return err
	case <-s.stopping:
		return grpcError(errEnded)
	}
}

// sendServerTime answers a request for the time. It is called after the decision, so that the time of
// deciding does not count as part of a lease. It costs clients that do not ask a fifth of a µs.
func (s *Server) sendServerTime(ctx context.Context) {
	if len(metadata.ValueFromIncomingContext(ctx, doormanpb.TimeHeader)) > 0 {
		ms := strconv.FormatInt(s.now().UnixMilli(), 10)
		_ = grpc.SetHeader(ctx, metadata.Pairs(doormanpb.TimeHeader, ms)) // fails only after the answer
	}
}

// A meteredStream notes each answer of a call that has several.
type meteredStream struct{ grpc.ServerStream }

// SendMsg implements [grpc.ServerStream].
func (s meteredStream) SendMsg(message any) error {
	connOf(s.Context()).noteAnswer(messageSize(message))
	return s.ServerStream.SendMsg(message)
}

// messageSize returns the size of an answer of health checks or reflection.
func messageSize(message any) int {
	if m, ok := message.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}
