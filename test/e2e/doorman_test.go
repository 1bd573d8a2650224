package e2e

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// templates are a configuration that doorman reads as well.
const templates = `
resources:
  - identifier_glob: proportional
    capacity: 100
    safe_capacity: 10
    description: proportional example
    algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 600, refresh_interval: 5, learning_mode_duration: 0}
  - identifier_glob: "*"
    capacity: 1000
    safe_capacity: 10
    algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 15}
`

// writeTemplates writes a configuration, and returns its path.
func writeTemplates(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "capacity.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startCapacity starts a server with a configuration of capacity, which is in use.
func startCapacity(t *testing.T, flags ...string) *server {
	t.Helper()
	s := start(t, flags...)
	awaitLine(t, s.journal, "capacity configuration is in use")
	return s
}

// dialGRPC connects to a server's gRPC door until the test ends.
func (s *server) dialGRPC(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.grpcAddress(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// soon is a context for one call.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// A holder is a client of doorman with a lease on one resource.
type holder struct {
	doormanpb.CapacityClient
	id   string
	held *doormanpb.Lease
}

func newHolder(conn *grpc.ClientConn, id string) *holder {
	return &holder{doormanpb.NewCapacityClient(conn), id, nil}
}

// gets asks for an amount and returns what it is granted.
func (h *holder) gets(t *testing.T, wants float64) float64 {
	t.Helper()
	answer, err := h.GetCapacity(soon(t), &doormanpb.GetCapacityRequest{
		ClientId: &h.id, Resource: []*doormanpb.ResourceRequest{{
			ResourceId: new("proportional"), Priority: new(int64(0)), Has: h.held, Wants: &wants,
		}},
	})
	if err != nil {
		t.Fatalf("%s asks for %v: %v", h.id, wants, err)
	}
	if len(answer.GetResponse()) != 1 {
		t.Fatalf("%s asks for %v = %v, want one answer", h.id, wants, answer)
	}
	lease := answer.GetResponse()[0].GetGets()
	h.held = lease
	return lease.GetCapacity()
}

// release gives a resource back.
func (h *holder) release(t *testing.T) {
	t.Helper()
	_, err := h.ReleaseCapacity(soon(t), &doormanpb.ReleaseCapacityRequest{
		ClientId: &h.id, ResourceId: []string{"", "proportional"}, // as a client of doorman does that closes
	})
	if err != nil {
		t.Errorf("%s releases: %v", h.id, err)
	}
	h.held = nil
}

// The example of doorman's tutorial, with the server as it is shipped.
func TestDoormanTutorial(t *testing.T) {
	t.Parallel()
	s := startCapacity(t, "--capacity-config", "file:"+writeTemplates(t, templates))
	conn := s.dialGRPC(t)
	var small []*holder
	for _, id := range []string{"one", "two", "three", "four"} {
		small = append(small, newHolder(conn, id))
	}
	big, bigger := newHolder(conn, "big"), newHolder(conn, "bigger")
	for _, h := range small {
		if got := h.gets(t, 10); got != 10 {
			t.Errorf("%s gets %v of 10, want 10", h.id, got)
		}
	}
	if got := big.gets(t, 500); got != 60 {
		t.Errorf("big gets %v, want the 60 that are left", got)
	}
	bigger.gets(t, 1000)
	for range 2 { // until all have asked again
		for _, h := range small {
			h.gets(t, 10)
		}
		big.gets(t, 500)
		bigger.gets(t, 1000)
	}
	sum := 40.0
	for _, c := range []struct {
		who   *holder
		wants float64
		want  float64
	}{{big, 500, 25.4545}, {bigger, 1000, 34.5455}} {
		got := c.who.gets(t, c.wants)
		if got < c.want-0.0001 || got > c.want+0.0001 {
			t.Errorf("%s gets %v, want %v", c.who.id, got, c.want)
		}
		sum += got
	}
	if sum > 100 {
		t.Errorf("all together have %v, want at most 100", sum)
	}
	big.release(t)
	if got := bigger.gets(t, 1000); got != 60 {
		t.Errorf("after big released, bigger gets %v, want 60", got)
	}
	for _, figure := range []string{
		`doorman_server_has{resource="proportional"} 100`,
		`doorman_server_subclients{resource="proportional"} 5`,
		`doorman_server_requests{method="ReleaseCapacity"} 1`, "gatehouse_capacity_master 1",
		"gatehouse_capacity_config_stale 0", "gatehouse_capacity_leases 5",
	} {
		if text := s.get(t, "/metrics").body; !strings.Contains(text, figure+"\n") {
			t.Errorf("the metrics have no %q", figure)
		}
	}
}

// What doorman's own client was seen to send, byte by byte, until it closes.
func TestBytesOfAnOldClient(t *testing.T) {
	t.Parallel()
	s := startCapacity(t, "--capacity-config", writeTemplates(t, templates), "--advertise", "localhost:15100")
	conn := s.dialGRPC(t)
	for _, step := range []struct{ method, request, want string }{
		{"Discovery", "", "0a110a0f6c6f63616c686f73743a31353130301001"},
		{"GetCapacity", "0a0178120e0a01721000210000000000000840", "0a230a0172121108"}, // it learns: 0
		{"ReleaseCapacity", "0a01781200120172", ""},
	} {
		request, err := hex.DecodeString(step.request)
		if err != nil {
			t.Fatal(err)
		}
		var answer []byte
		if err := conn.Invoke(soon(t), "/doorman.Capacity/"+step.method, request, &answer,
			grpc.ForceCodec(bytesCodec{})); err != nil {
			t.Errorf("%s %s: %v", step.method, step.request, err)
		}
		got := hex.EncodeToString(answer)
		if !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s %s = %s, want %s…", step.method, step.request, got, step.want)
		}
	}
}

// A bytesCodec sends and receives messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(value any) ([]byte, error) { return value.([]byte), nil }

func (bytesCodec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte{}, data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// A new version of the configuration counts at once, a bad one never, and both are told.
func TestCapacityConfigChanges(t *testing.T) {
	t.Parallel()
	path := writeTemplates(t, templates)
	s := startCapacity(t, "--capacity-config", "file:"+path)
	h := newHolder(s.dialGRPC(t), "x")
	if got := h.gets(t, 70); got != 70 {
		t.Errorf("of 100 a client gets %v, want 70", got)
	}
	s.reconfigure(t, path, strings.Replace(templates, "capacity: 100", "capasity: 1", 1), "cannot be used")
	if got := h.gets(t, 70); got != 70 {
		t.Errorf("after a bad configuration a client gets %v, want 70 as before", got)
	}
	if text := s.get(t, "/metrics").body; !strings.Contains(text, "gatehouse_capacity_config_stale 1\n") {
		t.Error("the metrics do not tell that the configuration is stale")
	}
	s.reconfigure(t, path, strings.Replace(templates, "capacity: 100\n", "capacity: 50\n", 1), "is in use")
	if got := h.gets(t, 70); got != 50 {
		t.Errorf("after the capacity was cut to 50 a client gets %v, want 50", got)
	}
}

// reconfigure writes a configuration, sends SIGHUP, and waits until the log says what came of it.
func (s *server) reconfigure(t *testing.T, path, text, said string) {
	t.Helper()
	before := strings.Count(s.journal.String(), said)
	whole := path + ".new" // the server reads by itself as well, and must not meet half a file
	if err := os.WriteFile(whole, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_, err := s.journal.await(func(string) bool { return strings.Count(s.journal.String(), said) > before })
	if err != nil {
		t.Fatal(err)
	}
}

// A restart in good order costs those nothing who hold leases, and newcomers no time of learning.
func TestCapacityLeasesAreSaved(t *testing.T) {
	t.Parallel()
	// A server that still learns saves nothing, and a server reads a new configuration by itself. So each
	// has its own: the first knows everybody from the beginning, and the second learns for long.
	file := filepath.Join(t.TempDir(), "leases")
	first := startCapacity(t, "--capacity-config", writeTemplates(t, learning(0)), "--capacity-leases", file)
	if got := newHolder(first.dialGRPC(t), "x").gets(t, 70); got != 70 {
		t.Errorf("the first server gives %v, want 70", got)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	config := writeTemplates(t, learning(600))
	second := startCapacity(t, "--capacity-config", config, "--capacity-leases", file)
	conn := second.dialGRPC(t)
	if got := newHolder(conn, "y").gets(t, 70); got != 0 {
		t.Errorf("before all holders have reported a newcomer gets %v, want 0", got)
	}
	newHolder(conn, "x").gets(t, 0)
	if got := newHolder(conn, "y").gets(t, 70); got != 70 {
		t.Errorf("when all holders have reported a newcomer gets %v, want 70", got)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("while the second server runs its file is there (%v), want it gone", err)
	}
}

// learning is a configuration in which a new server learns for so many seconds.
func learning(seconds int) string {
	return fmt.Sprintf(`
resources:
  - identifier_glob: "*"
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 5, learning_mode_duration: %d}
`, seconds)
}

// Neither an idle connection nor one that watches keeps the server from ending.
func TestSignalClosesGRPC(t *testing.T) {
	t.Parallel()
	s := start(t, "--drain", "30s")
	conn := s.dialGRPC(t)
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(soon(t), new(grpc_health_v1.HealthCheckRequest))
	if err != nil {
		t.Fatal(err)
	}
	first, err := watch.Recv()
	if err != nil || first.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("without a configuration the health is %v, %v, want NOT_SERVING", first, err)
	}
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if code, err := s.exit(); err != nil || code != 0 || time.Since(began) > 20*time.Second {
		t.Errorf("the server ended with %d, %v after %s, want 0 at once", code, err, time.Since(began))
	}
}

// Without templates there is nothing to share, which a client is told.
func TestCapacityWithoutConfiguration(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := doormanpb.NewCapacityClient(s.dialGRPC(t)).GetCapacity(soon(t), &doormanpb.GetCapacityRequest{
		ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{{
			ResourceId: new("r"), Priority: new(int64(0)), Wants: new(float64(1)),
		}},
	})
	if status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "start it with --capacity-config") {
		t.Errorf("a request = %v, want Unavailable and what to do", err)
	}
	closed := start(t, "--grpc", "")
	closed.want(t, "/.well-known/ready", "200")
	if strings.Contains(closed.journal.String(), "serving gRPC") {
		t.Errorf("with --grpc empty the server said\n%s", closed.journal)
	}
}

func TestCapacityMistakes(t *testing.T) {
	t.Parallel()
	bad := writeTemplates(t, strings.Replace(templates, "FAIR_SHARE", "UNFAIR_SHARE", 1))
	for _, c := range []struct{ args, want string }{
		{"--grpc localhost", `--grpc is "localhost", want a host and a port`},
		{"--max-resources 0", "--max-resources is not above 0"},
		{"--max-leases -1", "--max-leases is not above 0"},
		{"--advertise here", `--advertise is "here", want a host and a port such as gatehouse-1:5506`},
		{"--advertise :5506", `--advertise is ":5506", want a host and a port`},
		{"--parent a:1,b", `--parent has "b", want hosts and ports`},
		{"--capacity-leases x --election etcd://localhost/x",
			"--capacity-leases cannot be used with --election"},
		{"--capacity-config x --parent a:1", "--capacity-config cannot be used with --parent"},
		{"--grpc= --parent a:1", "--grpc is empty, which switches capacity off"},
		{"--election consul://localhost/x", "--election is no address: "},
		{"--capacity-leases /none/such", "no such file or directory"},
		{"--capacity-config /none/such", "/none/such"},
		{"--capacity-config " + bad, "UNFAIR_SHARE"},
		{"--check --capacity-config " + bad, "UNFAIR_SHARE"},
	} {
		code, _, said := gatehouse(t, nil, append([]string{"serve"}, strings.Fields(c.args)...)...)
		if code == 0 || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("serve %s ended with %d and said %q, want not 0 and one line with %q",
				c.args, code, said, c.want)
		}
	}
}
