package grpc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/gate"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A webRig is a server behind a real HTTP door.
type webRig struct {
	*Server
	address string
}

// begin is when tests of the door begin.
func begin() time.Time { return time.Unix(1_800_000_000, 500_000_000) }

// newWebRig starts a door that ends with the test. The clock stands still at begin, unless config has one.
func newWebRig(t *testing.T, config Config) *webRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	config.Log = log
	if config.Now == nil {
		config.Now = begin
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	door, err := httpfront.New(httpfront.Config{
		Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), Log: log, Routes: s.Routes(),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- door.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := door.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return &webRig{s, listener.Addr().String()}
}

// ask sends "GET /path" or "POST /path body" with headers, and returns the status and the body.
func (r *webRig) ask(t *testing.T, request string, headers ...string) (string, http.Header) {
	t.Helper()
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	url := "http://" + r.address + path
	ask, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		ask.Header.Set(name, value)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(ask)
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSuffix(string(text), "\n")), resp.Header
}

// some are templates with which nothing is learned.
func some() capacity.Templates {
	never := time.Duration(0)
	safe := 2.5
	return capacity.Templates{
		{Glob: "fair", Capacity: 100, Description: "a fair share", Algorithm: capacity.Algorithm{
			Kind: capacity.FairShare, LeaseLength: time.Minute, RefreshInterval: 15 * time.Second,
			Learning: &never, Parameters: []capacity.AlgorithmParameter{{Name: "priority", Value: "strict"}},
		}},
		{Glob: "*", Capacity: 10, Safe: &safe, Algorithm: capacity.Algorithm{
			Kind: capacity.ProportionalShare, LeaseLength: 20 * time.Second, RefreshInterval: 5 * time.Second,
			Learning: &never,
		}},
	}
}

const knownFields = ", want client_id, resource, resource_id, wants, priority, has, expiry_time, " +
	"refresh_interval or capacity where they belong"

const getPath, releasePath = "POST /v1/capacity/get ", "POST /v1/capacity/release "

// What is asked and answered in JSON, one after the other.
var jsonTalk = []struct{ fact, request, want string }{
	{"a lease", getPath + `{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`,
		`200 {"response":[{"resource_id":"r","gets":{"expiry_time":1800000020,"refresh_interval":5,` +
			`"capacity":3},"safe_capacity":2.5}]}`},
	{"several, in the order of the request, one of nothing", getPath + ` { "client_id" : "you", "resource" : [
			{"resource_id":"fair","wants":0,"priority":-3,"has":null},
			{"resource_id":"r","wants":8.25,"has":{"expiry_time":1,"refresh_interval":1,"capacity":9}}]}`,
		`200 {"response":[{"resource_id":"fair","gets":{"expiry_time":1800000060,"refresh_interval":15,` +
			`"capacity":0},"safe_capacity":100},{"resource_id":"r","gets":{"expiry_time":1800000020,` +
			`"refresh_interval":5,"capacity":7},"safe_capacity":2.5}]}`},
	{"it is given back", releasePath + `{"client_id":"me","resource_id":["r","unknown"]}`, `200 {}`},
	{"so that there is more", getPath + `{"client_id":"you","resource":[{"resource_id":"r","wants":8.25}]}`,
		`200 {"response":[{"resource_id":"r","gets":{"expiry_time":1800000020,"refresh_interval":5,` +
			`"capacity":8.25},"safe_capacity":2.5}]}`},
	{"nothing is asked for", getPath + `{"client_id":"me","resource":[]}`, `200 {"response":[]}`},
	{"nor here", getPath + `{"client_id":"me"}`, `200 {"response":[]}`},
	{"nor given back", releasePath + `{"client_id":"me"}`, `200 {}`},

	{"no client", getPath + `{"resource":[]}`, `400 client_id has 0 bytes, want 1 to 512`},
	{"no client gives back", releasePath + `{}`, `400 client_id has 0 bytes, want 1 to 512`},
	{"no resource", getPath + `{"client_id":"me","resource":[{"wants":1}]}`,
		`400 resource[0].resource_id has 0 bytes, want 1 to 512`},
	{"a control character", getPath + `{"client_id":"me","resource":[{"resource_id":"\u0000","wants":1}]}`,
		`400 resource[0].resource_id "\x00" has a control character`},
	{"no wants", getPath + `{"client_id":"me","resource":[{"resource_id":"r"}]}`,
		`400 resource[0].wants is missing, want a number`},
	{"wants of null", getPath +
		`{"client_id":"me","resource":[{"resource_id":"a","wants":1},{"resource_id":"r","wants":null}]}`,
		`400 resource[1].wants is missing, want a number`},
	{"wants as a text", getPath + `{"client_id":"me","resource":[{"resource_id":"r","wants":"3"}]}`,
		`400 resource.wants is the JSON string, want a number`},
	{"negative wants", getPath + `{"client_id":"me","resource":[{"resource_id":"r","wants":-1}]}`,
		`400 resource[0].wants is -1, want 0 to 1e+15`},
	{"wants beyond all numbers", getPath +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":1e999}]}`,
		`400 resource.wants is the JSON number 1e999, want a number`},
	{"half a priority", getPath +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":1,"priority":.5}]}`,
		`400 body is no JSON at byte 71: invalid character '.' looking for beginning of value`},
	{"half a priority, well written", getPath +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":1,"priority":0.5}]}`,
		`400 resource.priority is the JSON number 0.5, want a whole number of 64 bits`},
	{"a resource that is no list", getPath + `{"client_id":"me","resource":{"resource_id":"r","wants":1}}`,
		`400 resource is the JSON object, want a list`},
	{"a lease that is no object", getPath +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":1,"has":3}]}`,
		`400 resource.has is the JSON number, want an object`},
	{"a name that is unknown", getPath + `{"client":"me"}`, `400 field "client" is unknown` + knownFields},
	{"a name that belongs elsewhere", getPath + `{"client_id":"me","resource":[{"client_id":"r","wants":1}]}`,
		`400 field "client_id" is unknown` + knownFields},

	{"no body", getPath, `400 body ends too early, want a JSON object such as ` +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`},
	{"half a body", getPath + `{"client_id":`, `400 body ends too early, want a JSON object such as ` +
		`{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`},
	{"two bodies", getPath + `{"client_id":"me"}{}`, `400 body goes on after a JSON object, want one alone`},
	{"a form", getPath + `client_id=me`,
		`400 body is no JSON at byte 1: invalid character 'c' looking for beginning of value`},
	{"a list", getPath + `[]`, `400 body is the JSON array, want an object`},
	{"null", getPath + `null`, `400 client_id has 0 bytes, want 1 to 512`},
	{"no UTF-8", getPath + "{\"client_id\":\"\xff\"}", `400 body is not UTF-8, want a JSON object`},
}

// The sentence without templates tells whether there will be some.
func TestUnconfigured(t *testing.T) {
	request := getPath + `{"client_id":"a","resource":[{"resource_id":"x","wants":3}]}`
	for source, want := range map[string]string{
		"": "503 server has no capacity configuration; start it with --capacity-config FILE " +
			"to have some to share",
		"etcd://host:2379/templates": "503 server could not read its capacity configuration yet, " +
			"want the request later",
	} {
		if got, _ := newWebRig(t, Config{Source: source}).ask(t, request); got != want {
			t.Errorf("with the source %q %s =\n%s, want\n%s", source, request, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	for _, talk := range jsonTalk {
		if got, _ := r.ask(t, talk.request); got != talk.want {
			t.Errorf("%s: %s =\n%s, want\n%s", talk.fact, talk.request, got, talk.want)
		}
	}
	got, header := r.ask(t, getPath+`{}`, "Accept: application/json")
	if want := `400 {"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"client_id has 0 bytes, want 1 to 512","code":"invalid"}`; got != want {
		t.Errorf("for a program = %s, want %s", got, want)
	}
	if kind := header.Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("its type is %s, want application/problem+json", kind)
	}
	got, header = r.ask(t, "GET /v1/capacity/get")
	if !strings.HasPrefix(got, "405 ") || header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("GET = %s, allowing %s, want 405, allowing POST", got, header.Get("Allow"))
	}
}

// As many resources as fit into a body are answered in one go.
func TestJSONOfManyResources(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	var body strings.Builder
	body.WriteString(`{"client_id":"me","resource":[`)
	for i := range 600 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"resource_id":"database-of-customer-%d","wants":3,`, i)
		body.WriteString(`"has":{"expiry_time":1800000020,"capacity":3}}`)
	}
	body.WriteString(`]}`)
	got, _ := r.ask(t, getPath+body.String())
	if strings.Count(got, `"capacity":3`) != 600 || !strings.HasPrefix(got, "200 ") {
		t.Errorf("600 resources in %d bytes = %.200s…, want 600 leases", body.Len(), got)
	}
}

func TestJSONBeforeThereAreTemplates(t *testing.T) {
	r := newWebRig(t, Config{})
	got, header := r.ask(t, getPath+`{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`)
	if !strings.HasPrefix(got, "503 ") || header.Get("Retry-After") != "1" {
		t.Errorf("without templates = %s, Retry-After %q, want 503 and 1", got, header.Get("Retry-After"))
	}
}

// An elsewhere is an election that others win.
type elsewhere struct{}

func (elsewhere) Run(context.Context, string, func(Mastership)) error { return nil }

func TestJSONLeadsToTheMaster(t *testing.T) {
	r := newWebRig(t, Config{Election: elsewhere{}, Address: "us:5506"})
	r.Configure(some(), "v1")
	for leader, want := range map[string]string{
		"":          `200 {"mastership":{}}`,
		"them:5506": `200 {"mastership":{"master_address":"them:5506"}}`,
	} {
		r.onMastership(Mastership{Leader: leader})
		for _, request := range []string{
			getPath + `{"client_id":"me","resource":[{"resource_id":"r","wants":3}]}`,
			releasePath + `{"client_id":"me","resource_id":["r"]}`,
		} {
			if got, _ := r.ask(t, request); got != want {
				t.Errorf("with the master at %q, %s = %s, want %s", leader, request, got, want)
			}
		}
	}
}
