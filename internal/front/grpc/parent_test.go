package grpc

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// quick makes a template's clients ask every second.
func quick(t *capacity.Template) { t.Algorithm.RefreshInterval = time.Second }

// gets is what a client of the server gets, that has nothing yet.
func (s *tested) gets(tb testing.TB, client, resource string, wants float64) float64 {
	tb.Helper()
	answer, err := s.client.GetCapacity(in(tb), &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: []*doormanpb.ResourceRequest{{
			ResourceId: &resource, Priority: proto.Int64(0), Wants: &wants,
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if len(answer.GetResponse()) != 1 {
		tb.Fatalf("%s is answered %v, want one lease", client, answer)
	}
	return answer.GetResponse()[0].GetGets().GetCapacity()
}

// getsSoon asks again and again until the client gets so much.
func (s *tested) getsSoon(tb testing.TB, client, resource string, amount ofWanted) {
	tb.Helper()
	eventually(tb, func() bool { return s.gets(tb, client, resource, amount.wants) == amount.gets })
}

// ofWanted is how much somebody gets of what they want.
type ofWanted struct{ gets, wants float64 }

// eventually looks again and again until something is so.
func eventually(tb testing.TB, so func() bool) {
	tb.Helper()
	await.True(tb, "it is as the test wants it", so)
}

// A fakeParent answers as a test says.
type fakeParent struct {
	doormanpb.UnimplementedCapacityServer
	answer func(*doormanpb.GetServerCapacityRequest) (*doormanpb.GetServerCapacityResponse, error)
	// release is called when something is given back; nil does nothing.
	release func(ctx context.Context)

	mu    sync.Mutex
	asked [][]string // the resources of each question
}

// GetServerCapacity implements the service.
func (f *fakeParent) GetServerCapacity(_ context.Context, q *doormanpb.GetServerCapacityRequest) (
	*doormanpb.GetServerCapacityResponse, error,
) {
	var names []string
	for _, r := range q.GetResource() {
		names = append(names, r.GetResourceId())
	}
	f.mu.Lock()
	f.asked = append(f.asked, names)
	f.mu.Unlock()
	return f.answer(q)
}

// ReleaseCapacity implements the service.
func (f *fakeParent) ReleaseCapacity(ctx context.Context, _ *doormanpb.ReleaseCapacityRequest) (
	*doormanpb.ReleaseCapacityResponse, error,
) {
	if f.release != nil {
		f.release(ctx)
	}
	return new(doormanpb.ReleaseCapacityResponse), nil
}

// count is how often it was asked.
func (f *fakeParent) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// listen serves the fake until the test ends.
func (f *fakeParent) listen(tb testing.TB, options ...grpc.ServerOption) (address string) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer(options...)
	doormanpb.RegisterCapacityServer(server, f)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	tb.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return listener.Addr().String()
}

// generous gives everybody what they want.
func generous(q *doormanpb.GetServerCapacityRequest) (*doormanpb.GetServerCapacityResponse, error) {
	answer := new(doormanpb.GetServerCapacityResponse)
	for _, r := range q.GetResource() {
		sum := 0.0
		for _, band := range r.GetWants() {
			sum += band.GetWants()
		}
		answer.Response = append(answer.Response, &doormanpb.ServerCapacityResourceResponse{
			ResourceId: r.ResourceId, Gets: &doormanpb.Lease{
				ExpiryTime: new(time.Now().Add(time.Minute).Unix()), RefreshInterval: proto.Int64(1),
				Capacity: &sum,
			},
			Algorithm: &doormanpb.Algorithm{
				Kind: doormanpb.Algorithm_FAIR_SHARE.Enum(), LeaseLength: proto.Int64(60),
				RefreshInterval: proto.Int64(2), LearningModeDuration: proto.Int64(0),
			},
		})
	}
	return answer, nil
}

// A text is a log that tests can read.
type text struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

// lines are those with a word.
func (l *text) lines(word string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buffer.String()) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}

func (l *text) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Plain text and no options: that was more than doorman's own server could do.
func TestParentGivesCapacity(t *testing.T) {
	t.Parallel()
	root := start(t, Config{}, shared(capacity.FairShare, 120, quick))
	region := start(t, Config{Name: "region", Parents: []string{root.address}})
	city := start(t, Config{Name: "city", Parents: []string{region.address}})
	city.getsSoon(t, "a", "r", ofWanted{120, 1000})
	// Somebody else gets half of it as the city's client gives that back.
	eventually(t, func() bool {
		a, b := city.gets(t, "a", "r", 1000), root.gets(t, "b", "r", 1000)
		if a+b > 120 {
			t.Fatalf("the clients get %v and %v, want 120 together at most", a, b)
		}
		return a == 60 && b == 60
	})
	root.mu.Lock()
	holders := root.core.Leases(root.now(), "r", "", 10)
	root.mu.Unlock()
	if len(holders) != 2 || holders[1].Client != "region" || !holders[1].Server || holders[1].Taken != 60 {
		t.Errorf("the root knows of %+v, want b and the server region with 60", holders)
	}
	city.parentHeard(t, region.address)
}

// parentHeard fails the test unless the server is content with a parent.
func (s *tested) parentHeard(tb testing.TB, address string) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parent; p.address != address || p.answeredAt.IsZero() || p.fault != nil {
		tb.Errorf("parent %q heard %v, fault %v, want %q", p.address, p.answeredAt, p.fault, address)
	}
}

// An appointed election has one master, whom nobody elected.
type appointed struct{ status Mastership }

// Run implements Election.
func (a appointed) Run(ctx context.Context, _ string, tell func(Mastership)) error {
	tell(a.status)
	<-ctx.Done()
	return nil
}

// One parent is dead, the next is not the master and says who is.
func TestParentIsFoundByRedirect(t *testing.T) {
	t.Parallel()
	dead, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	root := start(t, Config{}, shared(capacity.FairShare, 120, quick))
	follower := start(t, Config{Election: appointed{Mastership{Leader: root.address}}},
		shared(capacity.FairShare, 7))
	child := start(t, Config{Name: "child", Parents: []string{dead, follower.address}})
	child.getsSoon(t, "a", "r", ofWanted{120, 1000})
	child.parentHeard(t, root.address)
}

// Two who take each other for the master are asked a few times a second, not without end.
func TestParentsThatNameEachOther(t *testing.T) {
	t.Parallel()
	var one, two fakeParent
	to := func(address *string) func(*doormanpb.GetServerCapacityRequest) (
		*doormanpb.GetServerCapacityResponse, error,
	) {
		return func(*doormanpb.GetServerCapacityRequest) (*doormanpb.GetServerCapacityResponse, error) {
			return &doormanpb.GetServerCapacityResponse{
				Mastership: &doormanpb.Mastership{MasterAddress: address},
			}, nil
		}
	}
	var first, second string
	one.answer, two.answer = to(&second), to(&first)
	first, second = one.listen(t), two.listen(t)
	var said text
	child := start(t, Config{Name: "child", Log: said.log(), Parents: []string{first}})
	began := time.Now()
	child.gets(t, "a", "r", 1)
	for one.count()+two.count() < 3*maxHops {
		child.gets(t, "a", "r", 1)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("they were asked %d times within %v, want pauses", one.count()+two.count(), took)
	}
	if got := said.lines("names another"); len(got) != 1 {
		t.Errorf("the log says %q, want it once", got)
	}
}

// A parent that refuses one resource costs the others nothing, and the log one line.
func TestParentThatRefusesOneResource(t *testing.T) {
	t.Parallel()
	parent := &fakeParent{answer: func(q *doormanpb.GetServerCapacityRequest) (
		*doormanpb.GetServerCapacityResponse, error,
	) {
		for _, r := range q.GetResource() {
			if r.GetResourceId() == "odd" {
				return nil, status.Error(codes.InvalidArgument, "resource_id is odd")
			}
		}
		return generous(q)
	}}
	var said text
	child := start(t, Config{Name: "child", Log: said.log(), Parents: []string{parent.listen(t)}})
	for _, name := range []string{"a", "b", "odd", "c", "d"} {
		child.gets(t, "x", name, 5)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		child.getsSoon(t, "x", name, ofWanted{5, 5})
	}
	child.getsSoon(t, "y", "d", ofWanted{6, 6}) // which takes a question more
	if got := said.lines("refuses"); len(got) != 1 || !strings.Contains(got[0], "odd") {
		t.Errorf("the log says %q, want one line about the odd resource", got)
	}
}

// Of several servers that may be master of one part of a tree only the master asks.
func TestOnlyMasterAsksParent(t *testing.T) {
	t.Parallel()
	parent := &fakeParent{answer: generous}
	address := parent.listen(t)
	idle := start(t, Config{
		Name: "part", Election: appointed{Mastership{Leader: "elsewhere:1"}}, Parents: []string{address},
	})
	master := start(t, Config{
		Name: "part", Election: appointed{Mastership{Leading: true}}, Parents: []string{address},
	})
	eventually(t, func() bool { // both have heard of the election
		leading, _ := master.currentState()
		_, known := idle.currentState()
		return leading && known.leader != ""
	})
	client, resource := "a", "idle"
	answer, err := idle.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: []*doormanpb.ResourceRequest{{
			ResourceId: &resource, Priority: proto.Int64(0), Wants: proto.Float64(1),
		}},
	})
	if err != nil || answer.GetMastership().GetMasterAddress() != "elsewhere:1" {
		t.Fatalf("who is not master answers %v, %v, want where the master is", answer, err)
	}
	master.getsSoon(t, "a", "led", ofWanted{5, 5})
	parent.mu.Lock()
	defer parent.mu.Unlock()
	for _, names := range parent.asked {
		if slices.Contains(names, "idle") {
			t.Errorf("the parent was asked for %v, want nothing by who is not master", parent.asked)
		}
	}
}

// A parent that takes the question and says nothing does not hold up clients, nor the end.
func TestSilentParentHoldsUpNobody(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	silent := &fakeParent{answer: func(*doormanpb.GetServerCapacityRequest) (
		*doormanpb.GetServerCapacityResponse, error,
	) {
		<-ended
		return nil, status.Error(codes.Unavailable, "at last")
	}}
	other := &fakeParent{answer: generous}
	parents := []string{silent.listen(t), other.listen(t)}
	waits := func() time.Duration { // how long a client does while the first parent is silent
		child, before := start(t, Config{Name: "child", Parents: parents}), silent.count()
		for silent.count() == before {
			child.gets(t, "a", "r", 3)
		}
		began := time.Now()
		child.gets(t, "b", "r", 3)
		took := time.Since(began)
		child.getsSoon(t, "a", "r", ofWanted{3, 3})
		return took
	}
	const tries = 5 // a busy machine may take its time, but not each time
	for try := 1; ; try++ {
		took := waits()
		if took < parentTimeout/2 {
			return
		}
		if try == tries {
			t.Fatalf("%d clients waited while the parent was silent, the last %v, want no time", tries, took)
		}
	}
}

// Credentials are options for the connection; these are those of TLS.
func TestParentOverTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"root.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(signed)
	own := tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
	parent := &fakeParent{answer: generous}
	address := parent.listen(t, grpc.Creds(credentials.NewServerTLSFromCert(&own)))
	child := start(t, Config{Name: "child", Parents: []string{address}, Dial: []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(trusted, "root.test")),
	}})
	child.getsSoon(t, "a", "r", ofWanted{3, 3})
}
