package grpc

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// A rawClient speaks frames.
type rawClient struct {
	net.Conn
	*http2.Framer
	out  *bufio.Writer
	next uint32 // stream
	head []byte // of a call
}

// newRawClient connects for the length of the test. What the server says is read and thrown away.
func newRawClient(t *testing.T, s *tested, settings ...http2.Setting) *rawClient {
	t.Helper()
	c := newReadingClient(t, s, settings...)
	go func() { _, _ = io.Copy(io.Discard, c.Conn) }() // ends with the connection
	return c
}

// setCalls makes what begin begins calls of a method, with more headers.
func (c *rawClient) setCalls(method string, more ...hpack.HeaderField) {
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: method}, {Name: "te", Value: "trailers"},
		{Name: "content-type", Value: "application/grpc"},
	}, more...) {
		_ = encoder.WriteField(f)
	}
	c.head = head.Bytes()
}

// begin begins a call, and sends this part of its message, if any.
func (c *rawClient) begin(part []byte, ends bool) {
	id := c.next
	c.next += 2
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.head, EndHeaders: true})
	for piece := range slices.Chunk(part, 16<<10) {
		_ = c.WriteData(id, false, piece)
	}
	if ends {
		_ = c.WriteData(id, true, nil)
	}
	_ = c.out.Flush() // the server may have closed the connection
}

// message is a message with its head, which announces as many bytes as it has and more.
func message(body []byte, more int) []byte {
	n := len(body) + more
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// cut reports whether a connection was cut.
func (s *tested) cut() bool { return s.conns.cuts.Load() > 0 }

// heap is how much is in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) // it is
}

// Calls that are only begun are bounded in number, in memory and in time.
func TestCallsWithoutMessages(t *testing.T) {
	const clients, each, most = 60, 1000, 2000
	s := start(t, Config{ReadTimeout: time.Second, WriteTimeout: time.Second, calls: most},
		shared(capacity.FairShare, 100))
	before := heap()
	for range clients {
		c := newRawClient(t, s)
		for range each {
			c.begin(nil, false)
		}
	}
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("%d calls that are only begun took %d MiB, want at most 100", clients*each, grown>>20)
	}
	// Those that were let in have their time, and then end, though the connections stay.
	await.True(t, "all calls have ended", func() bool { return s.conns.calls.Load() == 0 })
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("another client gets %v, want 5", got[0])
	}
}

// Headers are small on the wire, where one stands for another, and large in memory for as long as the call.
func TestHeadersCount(t *testing.T) {
	const calls, size = 20, 8 << 10
	s := start(t, Config{Budget: budget.New(1 << 20)}, shared(capacity.FairShare, 100))
	large := hpack.HeaderField{Name: "x", Value: strings.Repeat("x", size)}
	begin := func() *rawClient {
		c := newRawClient(t, s)
		c.setCalls("/doorman.Capacity/GetCapacity", large)
		for range calls {
			c.begin(nil, false)
		}
		return c
	}
	c := begin()
	await.True(t, "they count", func() bool { return s.conns.budget.Used() >= calls*size })
	if s.cut() {
		t.Fatal("a connection within the budget is cut")
	}
	_ = c.Close()
	await.True(t, "they count no more", func() bool { return s.conns.budget.Used() == 0 })
	for range 1<<20/(calls*size) + 1 {
		begin()
	}
	await.True(t, "beyond the budget a connection is cut", s.cut)
}

// Each header field costs more than its text, so that a call has few, and all are counted by what they cost.
func TestManyFieldsCount(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	fields := func(n int) (list []hpack.HeaderField) {
		for i := range n {
			list = append(list, hpack.HeaderField{Name: fmt.Sprintf("x%d", i), Value: ""})
		}
		return list
	}
	c := newRawClient(t, s)
	c.setCalls("/doorman.Capacity/GetCapacity", fields(100)...)
	c.begin(nil, false)
	await.True(t, "they count", func() bool { return s.conns.budget.Used() >= 100*fieldCost })
	_ = c.Close()
	await.True(t, "they count no more", func() bool { return s.conns.budget.Used() == 0 })
	c = newRawClient(t, s)
	c.setCalls("/doorman.Capacity/GetCapacity", fields(maxFields+1)...)
	for range maxStreams + 1 {
		c.begin(nil, false)
	}
	await.True(t, "a connection whose calls are refused is cut", s.cut)
	if used := s.conns.budget.Used(); used != 0 {
		t.Errorf("%d bytes are counted for calls that were refused, want 0", used)
	}
}

// At the limit of calls the next one is refused, and others go on when there is room.
func TestMostCalls(t *testing.T) {
	s := start(t, Config{calls: 10}, shared(capacity.FairShare, 100))
	c := newRawClient(t, s)
	for range 11 {
		c.begin(nil, false)
	}
	await.True(t, "they are under way", func() bool { return s.conns.calls.Load() == 10 })
	_, err := s.client.GetCapacity(in(t), manyResources("a", 1))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call more = %v, want ResourceExhausted", err)
	}
	_ = c.Close()
	await.True(t, "they are gone", func() bool { return s.conns.calls.Load() == 0 })
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("when they are gone another client gets %v, want 5", got[0])
	}
}

// Calls that last leave places for all others: those of one connection, and those of many.
func TestLastingCallsLeavePlaces(t *testing.T) {
	const most = 40
	large := hpack.HeaderField{Name: "x", Value: strings.Repeat("x", maxLastingHead)}
	for method := range lastingMethods {
		s := start(t, Config{calls: most}, shared(capacity.FairShare, 100))
		s.tryLasting(t, method, lastingTry{conns: 1, letIn: maxLasting})
		s.tryLasting(t, method, lastingTry{conns: 8, letIn: most / lastingShare})
		s.tryLasting(t, method, lastingTry{conns: 1, letIn: 0}, large)
	}
}

// A lastingTry is from how many connections calls come, and how many calls are to be let in.
type lastingTry struct{ conns, letIn int }

// tryLasting opens connections, makes more lasting calls on each than it may have, and wants try.letIn of
// these calls let in, and another client answered meanwhile.
func (s *tested) tryLasting(t *testing.T, method string, try lastingTry, more ...hpack.HeaderField) {
	t.Helper()
	const each = maxLasting + 5
	var greedy []*rawClient
	for range try.conns {
		c := newRawClient(t, s)
		c.setCalls(method, more...)
		greedy = append(greedy, c)
		for range each {
			c.begin(nil, false)
		}
	}
	await.True(t, "all have come", func() bool { return s.refusedCalls() == try.conns*each-try.letIn })
	lasting := &s.conns.lasting[lastingMethods[method]]
	if got := lasting.Load(); got != int64(try.letIn) {
		t.Errorf("%s: %d calls of %d connections last, want %d", method, got, try.conns, try.letIn)
	}
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("%s: another client gets %v meanwhile, want 5", method, got[0])
	}
	for _, c := range greedy {
		_ = c.Close()
	}
	await.True(t, "nothing is counted", func() bool {
		return s.conns.calls.Load() == 0 && lasting.Load() == 0 && s.refusedCalls() == 0
	})
}

// refusedCalls is how many calls of the open connections were refused.
func (s *tested) refusedCalls() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.open {
		c.meter.mu.Lock()
		n += c.meter.refused
		c.meter.mu.Unlock()
	}
	return n
}

// A health check that watches has no time.
func TestWatchesStay(t *testing.T) {
	s := start(t, Config{ReadTimeout: 300 * time.Millisecond, WriteTimeout: 2 * time.Second},
		shared(capacity.FairShare, 100))
	watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(in(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	c := newRawClient(t, s)
	c.begin(nil, false)
	await.True(t, "a call has come", func() bool { return s.conns.calls.Load() == 2 })
	await.True(t, "its time is over", func() bool { return s.conns.calls.Load() == 1 })
	const ill = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	s.Server.health.SetServingStatus("", ill)
	if got, err := watch.Recv(); err != nil || got.GetStatus() != ill {
		t.Errorf("after it the watch = %v, %v, want NOT_SERVING", got, err)
	}
}

// Messages that came by halves are bounded for all connections together.
func TestHalfMessages(t *testing.T) {
	const held = 16 << 20
	s := start(t, Config{Budget: budget.New(held)}, shared(capacity.FairShare, 100))
	half := message(make([]byte, maxMessage-100), 100)
	large := message(make([]byte, 4<<20-100), 100)
	before := heap()
	for _, part := range [][]byte{large, half} {
		c := newRawClient(t, s)
		for range 100 {
			c.begin(part, false)
		}
	}
	// Of those, gRPC ends the calls that send more than their window before somebody reads the head of the
	// message. These send no more than it, so that all of them are kept until the budget is used up.
	for range 2 {
		c := newRawClient(t, s)
		for range maxStreams {
			c.begin(half[:callWindow-messageHead], false)
		}
	}
	await.True(t, "one connection is cut", func() bool { return s.cut() && s.conns.budget.Used() == 0 })
	if grown := heap() - before; grown > 2*held {
		t.Errorf("100 halves of a message took %d MiB, want at most %d", grown>>20, 2*held>>20)
	}
	await.True(t, "no calls are counted", func() bool { return s.conns.calls.Load() == 0 })
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("another client gets %v, want 5", got[0])
	}
}

// Answers that are not taken are bounded for all connections together, and in time.
func TestUnreadAnswers(t *testing.T) {
	const resources = 1000
	var asks []*doormanpb.ResourceRequest
	for i := range resources {
		asks = append(asks, want(fmt.Sprintf("r%d", i), 1))
	}
	body := message(asked("x", asks...), 0)
	noWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for _, c := range []struct {
		fact   string
		config Config
	}{
		{"too much of them", Config{Budget: budget.New(2 << 20)}},
		{"for too long", Config{WriteTimeout: 200 * time.Millisecond}},
	} {
		s := start(t, c.config, shared(capacity.FairShare, 100))
		deaf := newRawClient(t, s, noWindow)
		for range 200 {
			deaf.begin(body, true)
		}
		await.True(t, c.fact+": the connection is cut", s.cut)
		await.True(t, c.fact+": it is gone", func() bool { return s.conns.openCount() == 0 })
		await.True(t, c.fact+": nothing is counted", func() bool {
			return s.conns.budget.Used() == 0 && s.conns.calls.Load() == 0
		})
		if got := s.ask(t, "y", want("r", 5)); len(got) != 1 {
			t.Errorf("%s: another client gets %v, want an answer", c.fact, got)
		}
	}
}

// What clients do that read their answers leaves nothing counted.
func TestNothingStaysCounted(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	for i := range 20 {
		if _, err := s.client.GetCapacity(in(t), manyResources("a", 1+500*i)); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "nothing is counted", func() bool {
		return s.conns.budget.Used() == 0 && s.conns.calls.Load() == 0
	})
}

// The frames of a connection are found in whatever pieces they come.
func TestFrameScanner(t *testing.T) {
	var wire bytes.Buffer
	framer := http2.NewFramer(&wire, nil)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: []byte("abc"), EndStream: true,
	})
	_ = framer.WriteData(3, false, bytes.Repeat([]byte{1}, 1000))
	_ = framer.WriteSettings()
	_ = framer.WriteRSTStream(5, http2.ErrCodeCancel)
	const want = "[{3 1 1 1} {1000 0 0 3} {0 4 0 0} {4 3 0 5}]"
	for _, size := range []int{1, 2, 8, 9, 10, 999, 5000} {
		s := frameScanner{skip: prefaceSize}
		var got []frameHead
		for piece := range slices.Chunk([]byte(strings.Repeat("p", prefaceSize)+wire.String()), size) {
			s.scanPiece(piece, func(f frameHead) { got = append(got, f) })
		}
		if fmt.Sprint(got) != want {
			t.Errorf("in pieces of %d bytes: %v, want %s", size, got, want)
		}
	}
}

// What is asked of a parent is cut so that each piece fits into a message.
func TestBatchesFitIntoAMessage(t *testing.T) {
	name := strings.Repeat("n", gatehouse.MaxName-10)
	asks := make([]capacity.Request, 5000)
	for i := range asks {
		asks[i].Resource = fmt.Sprintf("%s%d", name, i)
		asks[i].Has = capacity.Lease{Expiry: time.Unix(1<<40, 0), Refresh: 1 << 62, Capacity: 1e15}
		for range 1 + i%maxBands {
			asks[i].Demands = append(asks[i].Demands,
				capacity.Demand{Priority: -1, Clients: maxClients, Wants: 1e15})
		}
	}
	count := 0
	for some := range splitIntoBatches(asks) {
		if size := messageSize(capacityRequest(name, some)); size > maxMessage {
			t.Errorf("%d resources have %d bytes, want at most %d", len(some), size, maxMessage)
		}
		if len(some) > batchResources || some[0].Resource != asks[count].Resource {
			t.Fatalf("a piece has %d resources from %s on, want at most %d from %s on", len(some),
				some[0].Resource, batchResources, asks[count].Resource)
		}
		count += len(some)
	}
	if count != len(asks) {
		t.Errorf("%d resources are asked for, want %d", count, len(asks))
	}
}
