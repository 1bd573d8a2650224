package grpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// health is what a health check of a service says.
func (s *tested) health(t *testing.T, service string) string {
	t.Helper()
	answer, err := grpc_health_v1.NewHealthClient(s.conn).Check(in(t),
		&grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return status.Code(err).String()
	}
	return answer.GetStatus().String()
}

// A server is healthy as soon as it can answer, be it with where the master is.
func TestHealth(t *testing.T) {
	s := start(t, Config{})
	for _, service := range []string{"", "doorman.Capacity"} {
		if got := s.health(t, service); got != "NOT_SERVING" {
			t.Errorf("without a configuration the health of %q is %s, want NOT_SERVING", service, got)
		}
	}
	_, err := s.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{want("r", 1)},
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("without a configuration GetCapacity = %v, want Unavailable", err)
	}
	s.ConfigFailed(errors.New("template 3 has no capacity"))
	s.Configure(capacity.Templates{shared(capacity.FairShare, 1)}, "first")
	s.ConfigFailed(errors.New("template 4 has no capacity"))
	for _, service := range []string{"", "doorman.Capacity"} {
		if got := s.health(t, service); got != "SERVING" {
			t.Errorf("with a configuration the health of %q is %s, want SERVING", service, got)
		}
	}
	if got := s.health(t, "doorman"); got != "NotFound" {
		t.Errorf("the health of another service is %s, want NotFound", got)
	}
}

// Whoever comes without a description of the protocol finds it here.
func TestReflection(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 1))
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(in(t))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "doorman.Capacity",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) != 1 {
		t.Fatalf("the file of doorman.Capacity = %v, %v, want one", answer, err)
	}
	file := answer.GetFileDescriptorResponse().GetFileDescriptorProto()[0]
	if !bytes.Contains(file, []byte("GetServerCapacity")) {
		t.Errorf("the file is %q, want all methods in it", file)
	}
}

// A stream does not keep the server from ending, though its client would go on.
func TestStreamsEndWithTheServer(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 1))
	watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(in(t), new(grpc_health_v1.HealthCheckRequest))
	if err != nil {
		t.Fatal(err)
	}
	reflect, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(in(t))
	if err != nil {
		t.Fatal(err)
	}
	const serving = grpc_health_v1.HealthCheckResponse_SERVING
	if first, err := watch.Recv(); err != nil || first.GetStatus() != serving {
		t.Fatalf("watching = %v, %v, want SERVING", first, err)
	}
	began := time.Now()
	if err := s.Shutdown(in(t)); err != nil {
		t.Errorf("the end with two streams = %v, want none", err)
	}
	if took := time.Since(began); took > testPatience/2 {
		t.Errorf("the end took %s, want it at once", took)
	}
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if _, err := reflect.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the other stream ended with %v, want an error", err)
	}
	c := s.newCall()
	c.client = "x"
	if _, err := s.answerCall(overGRPC, rpcGetCapacity, c); !errors.Is(err, errEnded) {
		t.Errorf("after the end a request = %v, want %v", err, errEnded)
	}
}

// A request that makes the server stumble is answered, told, and the last that does.
func TestPanicsEndNothing(t *testing.T) {
	var stumble atomic.Int64
	var log bytes.Buffer
	s := start(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time {
		if stumble.Add(-1) == 0 {
			panic("no time")
		}
		return time.Now()
	}}, shared(capacity.FairShare, 100))
	s.ask(t, "x")                        // now it serves
	for _, when := range []int64{1, 2} { // before the lock is held, and while it is
		stumble.Store(when)
		_, err := s.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
			ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{want("r", 1)},
		})
		said := status.Convert(err)
		if said.Code() != codes.Internal || strings.Contains(said.Message(), "no time") {
			t.Errorf("a request at which the server stumbles = %v, want Internal and no more", err)
		}
		if got := s.ask(t, "x", want("r", 1)); got[0] != 1 {
			t.Errorf("the next request is granted %v, want 1", got[0])
		}
	}
	if got := strings.Count(log.String(), "no time"); got != 2 {
		t.Errorf("the log says it %d times, want twice:\n%s", got, &log)
	}
}

// Clients of doorman ping each 2 seconds, and others less often, without being asked to calm down.
func TestPingsAreTolerated(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	conn, err := new(net.Dialer).DialContext(in(t), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // gRPC's own patience ends with the third
		if err := framer.WritePing(false, [8]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := framer.ReadFrame()
			if away, ok := frame.(*http2.GoAwayFrame); err != nil || ok {
				t.Fatalf("ping %d is answered with %v, %v, want a ping", i, away, err)
			}
			ping, ok := frame.(*http2.PingFrame)
			answered = ok && ping.IsAck()
		}
		_ = conn.SetReadDeadline(time.Now().Add(minPingInterval + 50*time.Millisecond))
		if frame, err := framer.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("behind ping %d comes %v, %v, want nothing", i, frame, err)
		}
		_ = conn.SetReadDeadline(time.Time{})
	}
}

// A connection that is too many is sent away in a way that does not bring it back at once. When another one
// ends there is room again.
func TestTooManyConnections(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := start(t, Config{Conns: 1, Metrics: registry}, shared(capacity.FairShare, 100))
	s.ask(t, "x")
	second := doormanpb.NewCapacityClient(dial(t, s.address))
	_, err := second.Discovery(in(t), new(doormanpb.DiscoveryRequest))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a second connection = %v, want Unavailable", err)
	}
	if got := figures(t, registry)[`gatehouse_connections_refused_total{protocol="grpc"}`]; got != 1 {
		t.Errorf("%v connections were refused, want 1: the client must wait before it comes again", got)
	}
	third, err := new(net.Dialer).DialContext(in(t), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(third)
	if err != nil || !strings.Contains(string(text), "as many connections as it allows") {
		t.Errorf("whoever looks reads %q, %v, want why", text, err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if err := s.conn.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = second.Discovery(in(t), new(doormanpb.DiscoveryRequest), grpc.WaitForReady(true))
	if err != nil {
		t.Errorf("when the first has gone the second = %v, want an answer", err)
	}
}

// Connections take a part of the memory at most, as a client chooses how much each of them takes.
func TestConnectionsFitIntoMemory(t *testing.T) {
	wants := map[int64]int{1: 1, 4 * connWeight: 1, 400 * connWeight: 100, 1 << 40: DefaultConns}
	for most, want := range wants {
		log := slog.New(slog.DiscardHandler)
		server, err := New(Config{
			Memory: weight.New(most), Log: log, Now: time.Now, ConnsPerAddress: DefaultConns / 4,
		})
		if err != nil {
			t.Fatal(err)
		}
		if server.config.Conns != want {
			t.Errorf("with %d bytes there may be %d connections, want %d", most, server.config.Conns, want)
		}
		if got, want := server.conns.sources.Most, max(want/4, 1); got != want {
			t.Errorf("with %d bytes there may be %d connections from one address, want %d", most, got, want)
		}
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A lock that many want is not held for long: others have their turn while a large request is decided.
func TestLargeRequests(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	var all sync.WaitGroup
	for _, client := range []string{"a", "b"} {
		all.Go(func() {
			answer, err := s.client.GetCapacity(in(t), manyResources(client, maxEntries))
			if err != nil || len(answer.GetResponse()) != maxEntries {
				t.Errorf("%d resources = %d answers, %v, want as many",
					maxEntries, len(answer.GetResponse()), err)
			}
		})
	}
	all.Wait()
}

// A server whose time to end is over cuts what is left.
func TestShutdownInTime(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the end in no time = %v, want at most that time was up", err)
	}
}

// Whoever begins calls and takes them back at once, thousands of them, costs the others nothing.
func TestRapidResets(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	conn, err := new(net.Dialer).DialContext(in(t), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
	out := bufio.NewWriter(conn)
	framer := http2.NewFramer(out, nil)
	_, _ = out.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings()
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: "/doorman.Capacity/GetCapacity"}, {Name: "te", Value: "trailers"},
		{Name: "content-type", Value: "application/grpc"},
	} {
		_ = encoder.WriteField(f)
	}
	message := append([]byte{0, 0, 0, 0, 0}, asked("x", want("r", 1))...)
	message[4] = byte(len(message) - 5)
	for id := uint32(1); id < 40_000; id += 2 {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true,
		})
		_ = framer.WriteData(id, true, message)
		_ = framer.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	_ = out.Flush() // the server may have closed the connection, and may be right
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("another client gets %v, want 5", got[0])
	}
	// Those of other tests, and those that are about to end, are not counted.
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	ofCall := []byte("created by google.golang.org/grpc.(*Server).serveStreams")
	if n := bytes.Count(stacks, ofCall); n > maxStreams+10 {
		t.Errorf("%d calls have a goroutine, want at most one for each call at once", n)
	}
}

// A request for so many resources, as a client sends it that has leases.
func manyResources(client string, n int) *doormanpb.GetCapacityRequest {
	request := &doormanpb.GetCapacityRequest{ClientId: &client}
	for i := range n {
		request.Resource = append(request.Resource, &doormanpb.ResourceRequest{
			ResourceId: new("resource-" + strconv.Itoa(i)), Priority: new(int64(1)),
			Wants: new(float64(10)),
			Has: &doormanpb.Lease{
				ExpiryTime: new(time.Now().Add(time.Minute).Unix()), RefreshInterval: new(int64(5)),
				Capacity: new(float64(10)),
			},
		})
	}
	return request
}
