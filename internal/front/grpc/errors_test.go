package grpc

import (
	"math"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// want is a request for one resource.
func want(resource string, amount float64) *doormanpb.ResourceRequest {
	return &doormanpb.ResourceRequest{ResourceId: &resource, Priority: new(int64(0)), Wants: &amount}
}

// band is what clients of one priority want.
func band(priority, clients int64, wants float64) *doormanpb.PriorityBandAggregate {
	return &doormanpb.PriorityBandAggregate{Priority: &priority, NumClients: &clients, Wants: &wants}
}

// asked is a GetCapacityRequest in bytes, complete or not.
func asked(client string, resources ...*doormanpb.ResourceRequest) []byte {
	message, err := proto.MarshalOptions{AllowPartial: true}.Marshal(
		&doormanpb.GetCapacityRequest{ClientId: &client, Resource: resources})
	if err != nil { // the name is no UTF-8, which proto2 allows
		panic(err)
	}
	return message
}

// askedBelow is a GetServerCapacityRequest in bytes.
func askedBelow(resource *string, bands ...*doormanpb.PriorityBandAggregate) []byte {
	message, err := proto.MarshalOptions{AllowPartial: true}.Marshal(&doormanpb.GetServerCapacityRequest{
		ServerId: new("s"), Resource: []*doormanpb.ServerCapacityResourceRequest{
			{ResourceId: new("first"), Wants: []*doormanpb.PriorityBandAggregate{band(1, 1, 1)}},
			{ResourceId: resource, Wants: bands},
		},
	})
	if err != nil {
		panic(err)
	}
	return message
}

// A wantedRefusal is a request that makes no sense, and what it is told.
type wantedRefusal struct {
	fact, method string
	message      []byte
	want         string
}

// The methods that are refused something.
const get, server, release = "GetCapacity", "GetServerCapacity", "ReleaseCapacity"

// refusals are all of them.
func refusals() []wantedRefusal { return append(clientRefusals(), serverRefusals()...) }

func clientRefusals() []wantedRefusal {
	ok := want("fine", 1)
	return []wantedRefusal{
		{"nothing at all", get, nil, "client_id is missing, want one"},
		{"nothing at all from a server", server, nil, "server_id is missing, want one"},
		{"nothing to release", release, nil, "client_id is missing, want one"},
		{"an empty client", get, asked("", ok), "client_id has 0 bytes, want 1 to 512"},
		{"an empty client that releases", release, []byte{10, 0}, "client_id has 0 bytes, want 1 to 512"},
		{"a client too long", get, asked(strings.Repeat("x", 513)), "client_id has 513 bytes, want 1 to 512"},
		{"a client of two lines", get, asked("a\nb"), `client_id "a\nb" has a control character`},
		{"a client that is no text", get, asked("a\xff"), `client_id "a\xff" is not valid UTF-8`},
		{"an empty resource", get, asked("x", ok, want("", 1)),
			"resource[1].resource_id has 0 bytes, want 1 to 512"},
		{"a resource too long", get, asked("x", want(strings.Repeat("é", 257), 1)),
			"resource[0].resource_id has 514 bytes, want 1 to 512"},
		{"a resource with a bell", get, asked("x", want("a\a", 1)),
			`resource[0].resource_id "a\a" has a control character`},
		{"no name of a resource", get, asked("x", ok, &doormanpb.ResourceRequest{}),
			"resource[1].resource_id is missing, want one"},
		{"no priority", get, asked("x", &doormanpb.ResourceRequest{
			ResourceId: new("r"), Wants: new(float64(1)),
		}),
			"resource[0].priority is missing, want one"},
		{"no wants", get, asked("x", ok, ok, &doormanpb.ResourceRequest{
			ResourceId: new("r"), Priority: new(int64(0)),
		}),
			"resource[2].wants is missing, want one"},
		{"half a lease", get, asked("x", &doormanpb.ResourceRequest{
			ResourceId: new("r"), Priority: new(int64(0)), Wants: new(float64(1)),
			Has: &doormanpb.Lease{ExpiryTime: new(int64(1)), Capacity: new(float64(1))},
		}), "resource[0].has.refresh_interval is missing, want one"},
		{"wants less than nothing", get, asked("x", ok, ok, ok, want("r", -10)),
			"resource[3].wants is -10, want 0 to 1e+15"},
		{"wants everything", get, asked("x", want("r", math.Inf(1))),
			"resource[0].wants is +Inf, want 0 to 1e+15"},
		{"wants less than everything", get, asked("x", want("r", math.Inf(-1))),
			"resource[0].wants is -Inf, want 0 to 1e+15"},
		{"wants what cannot be added up", get, asked("x", want("r", math.MaxFloat64)),
			"resource[0].wants is 1.7976931348623157e+308, want 0 to 1e+15"},
	}
}

func serverRefusals() []wantedRefusal {
	ok, r := want("fine", 1), new("r")
	return []wantedRefusal{
		{"no subclients", server, askedBelow(r, band(1, 2, 1), band(0, 0, 1)),
			"resource[1].wants[1].num_clients is 0, want 1 to 1000000000"},
		{"fewer than no subclients", server, askedBelow(r, band(0, -1, 1)),
			"resource[1].wants[0].num_clients is -1, want 1 to 1000000000"},
		{"more subclients than people", server, askedBelow(r, band(0, math.MaxInt64, 1)),
			"resource[1].wants[0].num_clients is 9223372036854775807, want 1 to 1000000000"},
		{"a band wants less than nothing", server, askedBelow(r, band(0, 1, -1)),
			"resource[1].wants[0].wants is -1, want 0 to 1e+15"},
		{"a band wants no number", server, askedBelow(r, band(0, 1, math.NaN())),
			"resource[1].wants[0].wants is NaN, want 0 to 1e+15"},
		{"half a band", server, askedBelow(r, band(0, 1, 1), &doormanpb.PriorityBandAggregate{
			Wants: new(float64(1)),
		}),
			"resource[1].wants[1].priority is missing, want one"},
		{"no name of a resource below", server, askedBelow(nil),
			"resource[1].resource_id is missing, want one"},
		{"too many resources", get, append(asked("x"),
			strings.Repeat("\x12\x10\n\x01r\x10\x00!"+strings.Repeat("\x00", 8)+"\x28\x00", maxEntries+1)...),
			"resource has more than 10000 entries, want at most that"},
		{"too many bands", server, askedBelow(r, bands(maxBands+1)...),
			"resource[1].wants has more than 100 bands, want at most that"},
		{"too many to release", release, append(asked("x"), strings.Repeat("\x12\x01r", maxEntries+1)...),
			"resource_id has more than 10000 entries, want at most that"},
		{"cut short", get, asked("x", ok)[:7],
			"message cannot be read as the protocol has it: unexpected EOF"},
		{"cut short inside", get, protowire.AppendBytes(append(asked("x"), 0x12), []byte{10, 5}),
			"resource[0].message cannot be read as the protocol has it: unexpected EOF"},
		{"no protocol buffer", get, []byte("GET / HTTP/1.1\r\n"),
			"message cannot be read as the protocol has it: …"},
		{"no protocol buffer to discover", "Discovery", []byte{255},
			"message cannot be read as the protocol has it: …"},
	}
}

func bands(n int) []*doormanpb.PriorityBandAggregate {
	all := make([]*doormanpb.PriorityBandAggregate, n)
	for i := range all {
		all[i] = band(int64(i), 1, 1)
	}
	return all
}

// A request that makes no sense is told why, by the names of the protocol, and nothing of it is done.
func TestRefusals(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	for _, c := range refusals() {
		_, err := s.raw(t, c.method, c.message)
		said := status.Convert(err)
		text, open := strings.CutSuffix(c.want, "…")
		right := said.Message() == text || open && strings.HasPrefix(said.Message(), text)
		if said.Code() != codes.InvalidArgument || !right {
			t.Errorf("%s: %s = %s %q, want InvalidArgument %q",
				c.fact, c.method, said.Code(), said.Message(), c.want)
		}
	}
	if all := s.all(); len(all) > 0 {
		t.Errorf("after refusals there are the resources %v, want none", all)
	}
}

// all is all resources there are.
func (s *tested) all() (all []capacity.ResourceStatus) {
	for status := range s.allResources() {
		all = append(all, *status)
	}
	return all
}

// What is too long for gRPC, or no method, is told by gRPC.
func TestRefusalsOfGRPC(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	for _, c := range []struct {
		method string
		length int
		want   codes.Code
	}{
		{"GetCapacity", maxMessage + 1, codes.ResourceExhausted}, {"GetLucky", 1, codes.Unimplemented},
	} {
		if _, err := s.raw(t, c.method, make([]byte, c.length)); status.Code(err) != c.want {
			t.Errorf("%s of %d bytes = %v, want %s", c.method, c.length, err, c.want)
		}
	}
}

// ask asks for resources, and must be answered. It returns what was granted, in the order of the answers.
func (s *tested) ask(t *testing.T, client string, resources ...*doormanpb.ResourceRequest) []float64 {
	t.Helper()
	answer, err := s.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: resources,
	})
	if err != nil {
		t.Fatalf("GetCapacity of %s: %v", client, err)
	}
	if answer.Mastership != nil || len(answer.GetResponse()) != len(resources) {
		t.Fatalf("GetCapacity of %s for %d resources = %v, want an answer for each",
			client, len(resources), answer)
	}
	grants := make([]float64, len(resources))
	for i, r := range answer.GetResponse() {
		if r.GetResourceId() != resources[i].GetResourceId() {
			t.Errorf("answer %d is about %s, want %s", i, r.GetResourceId(), resources[i].GetResourceId())
		}
		grants[i] = r.GetGets().GetCapacity()
	}
	return grants
}

// What clients of doorman send, odd as it is, is not refused.
func TestWhatOldClientsSend(t *testing.T) {
	nan := math.NaN()
	s := start(t, Config{}, shared(capacity.ProportionalShare, 100))
	has := func(expiry int64, amount float64) *doormanpb.ResourceRequest {
		r := want("r", 30)
		r.Has = &doormanpb.Lease{
			ExpiryTime: &expiry, RefreshInterval: new(int64(5)), Capacity: &amount,
		}
		return r
	}
	for _, c := range []struct {
		fact    string
		request *doormanpb.ResourceRequest
		want    float64
	}{
		{"the shell asks for nothing first", want("r", 0), 0},
		{"an idle limiter that has asked for nothing yet", want("r", nan), 0},
		{"a number", want("r", 30), 30},
		{"an idle limiter", want("r", nan), 30},
		{"a lease that is long over", has(1, 30), 30},
		{"a lease below nothing, as doorman gave", has(1<<40, -50), 30},
		{"a lease of no number, as doorman gave", has(1<<40, nan), 30},
		{"a lease without limit", has(math.MaxInt64, math.Inf(1)), 30},
		{"a priority", &doormanpb.ResourceRequest{
			ResourceId: new("r"), Priority: new(int64(math.MinInt64)), Wants: new(float64(30)),
		}, 30},
	} {
		if got := s.ask(t, "x", c.request); got[0] != c.want {
			t.Errorf("%s: %v is granted, want %v", c.fact, got[0], c.want)
		}
	}
	if got := s.ask(t, "x"); len(got) != 0 {
		t.Errorf("a client without resources is answered %v, want nothing", got)
	}
	if got := s.ask(t, "y", want("r", 1000)); got[0] != 70 {
		t.Errorf("after numbers that are none another client gets %v, want the 70 that are left", got[0])
	}
	for _, released := range [][]string{{"", "", "", "r"}, {"nobody", "", "\x00"}, nil} {
		_, err := s.client.ReleaseCapacity(in(t), &doormanpb.ReleaseCapacityRequest{
			ClientId: new("x"), ResourceId: released,
		})
		if err != nil {
			t.Errorf("releasing %q = %v, want no error", released, err)
		}
	}
	if all := s.all(); len(all) != 1 || all[0].Leases != 1 || all[0].Has != 70 {
		t.Errorf("after the release there is %+v, want the other client's lease of 70", all)
	}
}

// A server without clients asks without bands. It counts as one client that wants nothing.
func TestServerWithoutBands(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	answer, err := s.client.GetServerCapacity(in(t), &doormanpb.GetServerCapacityRequest{
		ServerId: new("s"), Resource: []*doormanpb.ServerCapacityResourceRequest{{ResourceId: new("*")}},
	})
	if err != nil || len(answer.GetResponse()) != 1 || answer.GetResponse()[0].GetGets().GetCapacity() != 0 {
		t.Errorf("GetServerCapacity without bands = %v, %v, want a grant of 0", answer, err)
	}
	if all := s.all(); len(all) != 1 || all[0].Clients != 1 {
		t.Errorf("there is %+v, want one client", all)
	}
}

// A request that names a resource twice gets two answers, in its order. The last one counts.
func TestSameResourceTwice(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	if got := s.ask(t, "x", want("r", 30), want("q", 5), want("r", 80)); got[0] != 30 || got[2] != 80 {
		t.Errorf("asking for 30 and then for 80 of the same = %v, want 30 5 80", got)
	}
	if all := s.all(); len(all) != 2 || all[1].ID != "r" || all[1].Has != 80 || all[1].Wants != 80 {
		t.Errorf("there is %+v, want 80 of r", all)
	}
}

// Whatever a name looks like, the last template is for it.
func TestAnyName(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	for _, name := range []string{
		"a/b", "/", "//", "*", "[", `\`, "日本", "a b", ".", strings.Repeat("/", 512),
	} {
		if got := s.ask(t, "x", want(name, 3)); got[0] != 3 {
			t.Errorf("3 of %q = %v, want 3", name, got[0])
		}
	}
}

// However much is already given, nobody gets less than nothing.
func TestNoGrantBelowNothing(t *testing.T) {
	for _, kind := range []capacity.AlgorithmKind{
		capacity.NoAlgorithm, capacity.Static, capacity.ProportionalShare, capacity.FairShare,
	} {
		s := start(t, Config{}, shared(kind, 300))
		s.ask(t, "x", want("r", 200))
		s.ask(t, "y", want("r", 100))
		s.Configure(capacity.Templates{shared(kind, 50)}, "less")
		for _, client := range []string{"z", "x", "y", "z", "x", "y"} {
			if got := s.ask(t, client, want("r", 100)); got[0] < 0 || got[0] > 100 {
				t.Errorf("%s: after the capacity was cut %s gets %v, want 0 to 100", kind, client, got[0])
			}
		}
		if kind != capacity.FairShare && kind != capacity.ProportionalShare {
			continue
		}
		if all := s.all(); all[0].Has > 50 || all[0].Excess != 0 {
			t.Errorf("%s: when all have asked again there is %+v, want at most 50 leased", kind, all)
		}
	}
}
