package grpc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A rawCodec sends and receives messages as they are.
type rawCodec struct{}

func (rawCodec) Marshal(value any) ([]byte, error) { return value.([]byte), nil }

func (rawCodec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte{}, data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

// raw makes a call with bytes, as somebody else's client might.
func (s *tested) raw(tb testing.TB, method string, message []byte) ([]byte, error) {
	tb.Helper()
	var answer []byte
	err := s.conn.Invoke(in(tb), "/doorman.Capacity/"+method, message, &answer, grpc.ForceCodec(rawCodec{}))
	return answer, err
}

// rawBytes makes a call in hexadecimal digits that must be answered.
func (s *tested) rawBytes(tb testing.TB, method, message string) []byte {
	tb.Helper()
	data, err := hex.DecodeString(message)
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := s.raw(tb, method, data)
	if err != nil {
		tb.Fatalf("%s %s = %v, want an answer", method, message, err)
	}
	return answer
}

// at is a clock that stands still.
func at(seconds int64) func() time.Time { return func() time.Time { return time.Unix(seconds, 0) } }

// These bytes were seen between doorman's own client and server.
func TestBytesOnTheWire(t *testing.T) {
	s := start(t, Config{Address: "localhost:15100", Now: at(-59)}, shared(capacity.FairShare, 0))
	const lease = "120d" + "0801" + "1005" + "190000000000000000" // ends at 1, refresh 5, capacity 0
	for _, c := range []struct{ method, request, want string }{
		{"Discovery", "", "0a110a0f6c6f63616c686f73743a31353130301001"},
		{"GetCapacity", "0a0178120e0a01721000210000000000000840",
			"0a1b" + "0a0172" + lease + "190000000000000000"},
		{"ReleaseCapacity", "0a01781200120172", ""},
	} {
		if got := hex.EncodeToString(s.rawBytes(t, c.method, c.request)); got != c.want {
			t.Errorf("%s %s = %s, want %s", c.method, c.request, got, c.want)
		}
	}
	c := &capacityCall{grants: []capacity.Grant{{
		Resource: "r", Lease: capacity.Lease{Expiry: time.Unix(1, 0), Refresh: 5 * time.Second},
	}}}
	if got := hex.EncodeToString(c.appendServerGet(nil)); got != "0a120a0172"+lease {
		t.Errorf("an answer without what is optional = %s, want 0a120a0172%s", got, lease)
	}
}

// show reads an answer as doorman's clients do, who refuse one in which something required is missing,
// and shows what is in it and what is not.
func show(tb testing.TB, method string, answer []byte) string {
	tb.Helper()
	message := map[string]proto.Message{
		"Discovery":         new(doormanpb.DiscoveryResponse),
		"GetCapacity":       new(doormanpb.GetCapacityResponse),
		"GetServerCapacity": new(doormanpb.GetServerCapacityResponse),
		"ReleaseCapacity":   new(doormanpb.ReleaseCapacityResponse),
	}[method]
	if err := proto.Unmarshal(answer, message); err != nil {
		tb.Fatalf("the answer %x of %s cannot be read: %v", answer, method, err)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		tb.Fatal(err)
	}
	return strings.ReplaceAll(out.String(), `"`, "")
}

// Zero is not nothing: what is set is on the wire, whatever its value, and what is not set is not.
func TestUnsetIsNotZero(t *testing.T) {
	zero, hour := 0.0, time.Hour
	with := func(change func(*capacity.Template)) capacity.Template {
		return shared(capacity.NoAlgorithm, 0, change)
	}
	plain := with(func(*capacity.Template) {})
	stop := with(func(t *capacity.Template) { t.Safe = &zero })
	unset := with(func(t *capacity.Template) { t.Algorithm.Learning = nil })
	long := with(func(t *capacity.Template) { t.Algorithm.Learning = &hour })
	named := with(func(t *capacity.Template) {
		t.Algorithm.Parameters = []capacity.AlgorithmParameter{{Name: "a"}, {Name: "b", Value: "c"}}
	})
	const (
		x, r   = "0a0178", "0a0172"
		client = x + "120e" + r + "1000210000000000000000"
		server = x + "1212" + r + "1a0d08001001190000000000000000"
		lease  = "{response:[{resource_id:r,gets:{expiry_time:1,refresh_interval:5,capacity:0}"
		block  = ",algorithm:{kind:NO_ALGORITHM,lease_length:60,refresh_interval:5"
	)
	for _, c := range []struct {
		fact, method, request, want string
		template                    capacity.Template
	}{
		{"divided", "GetCapacity", client, lease + ",safe_capacity:0}]}", plain},
		{"configured", "GetCapacity", client, lease + ",safe_capacity:0}]}", stop},
		{"to be divided below", "GetServerCapacity", server,
			lease + block + ",learning_mode_duration:0}}]}", plain},
		{"configured for below", "GetServerCapacity", server,
			lease + block + ",learning_mode_duration:0},safe_capacity:0}]}", stop},
		{"learning a lease", "GetServerCapacity", server, lease + block + "}}]}", unset},
		{"learning an hour", "GetServerCapacity", server,
			lease + block + ",learning_mode_duration:3600}}]}", long},
		{"parameters", "GetServerCapacity", server, lease + block +
			",parameters:[{name:a,value:},{name:b,value:c}],learning_mode_duration:0}}]}", named},
		{"no resources", "GetCapacity", x, "{}", plain},
		{"no resources of a server", "GetServerCapacity", x, "{}", plain},
		{"released", "ReleaseCapacity", x, "{}", plain},
		{"master", "Discovery", "", "{mastership:{master_address:here:1},is_master:true}", plain},
	} {
		s := start(t, Config{Address: "here:1", Now: at(-59)}, c.template)
		if got := show(t, c.method, s.rawBytes(t, c.method, c.request)); got != c.want {
			t.Errorf("%s: %s %s =\n%s, want\n%s", c.fact, c.method, c.request, got, c.want)
		}
	}
}

// The same for a server that is not master.
func TestRedirectsSayWhatIsKnown(t *testing.T) {
	e := newVote()
	s := start(t, Config{Address: "here:1", Election: e}, shared(capacity.FairShare, 10))
	for _, c := range []struct{ leader, mastership string }{
		{"", "mastership:{}"},
		{"there:2", "mastership:{master_address:there:2}"},
		{"here:1", "mastership:{}"}, // its time was up, and it does not send anybody to itself
	} {
		e.tell(t, Mastership{Leader: c.leader})
		for method, want := range map[string]string{
			"Discovery": "{" + c.mastership + ",is_master:false}", "GetCapacity": "{" + c.mastership + "}",
			"GetServerCapacity": "{" + c.mastership + "}", "ReleaseCapacity": "{" + c.mastership + "}",
		} {
			request := "0a0178"
			if method == "Discovery" {
				request = ""
			}
			if got := show(t, method, s.rawBytes(t, method, request)); got != want {
				t.Errorf("%s while the leader is %q = %s, want %s", method, c.leader, got, want)
			}
		}
	}
}

// An empty list of resources, and a claim of nothing, are not the same as what is not there.
func TestReadsWhatIsThere(t *testing.T) {
	for _, c := range []struct {
		request string
		want    capacity.Lease
	}{
		{"0a01720a0172100021" + "0000000000000840", capacity.Lease{}},
		{"0a017210001a0d08001000190000000000000000" + "210000000000000840",
			capacity.Lease{Expiry: time.Unix(0, 0)}},
		{"0a017210001a0208071a0b1003190000000000000040" + "210000000000000840", // in two parts
			capacity.Lease{Expiry: time.Unix(7, 0), Refresh: 3 * time.Second, Capacity: 2}},
		{"0a017210001a1608ffffffffffffffffff01" + "100a190000000000000040" + "210000000000000840",
			capacity.Lease{Expiry: time.Unix(0, 0), Refresh: 10 * time.Second, Capacity: 2}},
		{"0a017210001a1d08ffffffffffffffff7f" +
			"10ffffffffffffffff7f19000000000000f87f" + "210000000000000840",
			capacity.Lease{Expiry: time.Unix(doormanpb.MaxSeconds, 0), Refresh: gatehouse.MaxDuration}},
	} {
		message, err := hex.DecodeString(c.request)
		if err != nil {
			t.Fatal(err)
		}
		got := &capacityCall{client: "x"}
		if err := errors.Join(got.readResource(message), got.checkFields()); err != nil {
			t.Errorf("%s: %v", c.request, err)
			continue
		}
		want := []capacity.Request{{
			Resource: "r", Has: c.want, Demands: []capacity.Demand{{Clients: 1, Wants: 3}},
		}}
		if !reflect.DeepEqual(got.requests, want) {
			t.Errorf("%s = %+v, want %+v", c.request, got.requests, want)
		}
	}
}

// What was read of a message does not change with the memory it came in, which is used again.
func TestReadKeepsNothingOfTheMessage(t *testing.T) {
	for _, c := range []struct {
		message []byte
		read    func(c *capacityCall, message []byte) error
	}{
		{asked("client", want("resource", 1)), (*capacityCall).readGet},
		{askedBelow(new("resource"), band(0, 1, 1)), (*capacityCall).readServerGet},
		{append(asked("client"), "\x12\x08resource"...), (*capacityCall).readRelease},
	} {
		got, want := new(capacityCall), new(capacityCall)
		if err := errors.Join(c.read(got, c.message), c.read(want, bytes.Clone(c.message))); err != nil {
			t.Fatal(err)
		}
		clear(c.message)
		same := got.client == want.client && reflect.DeepEqual(got.requests, want.requests) &&
			reflect.DeepEqual(got.released, want.released)
		if !same {
			t.Errorf("when the message is gone there is %+v, want %+v", got, want)
		}
	}
}
