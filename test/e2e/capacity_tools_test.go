package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
)

// shares are templates whose leases are asked for anew each second, and outlast any test.
const shares = `
resources:
  - identifier_glob: proportional
    capacity: 100
    safe_capacity: 10
    description: proportional example
    algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 600, refresh_interval: 1, learning_mode_duration: 0}
  - identifier_glob: "*"
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 1, learning_mode_duration: 0}
`

// startShares starts a server with those templates, and returns where its clients of capacity go.
func startShares(t *testing.T) (s *server, at string) {
	t.Helper()
	s = startCapacity(t, "--grpc", "localhost:0", "--capacity-config", writeTemplates(t, shares))
	at = s.grpcAddress(t)
	return s, at
}

// A printedLease is what the tools print of one for programs.
type printedLease struct {
	Client   string  `json:"client_id"`
	Resource string  `json:"resource_id"`
	Capacity float64 `json:"capacity"`
	Expiry   int64   `json:"expiry_time"`
	Safe     float64 `json:"safe_capacity"`
}

// getLease runs gatehouse capacity get --json.
func getLease(t *testing.T, at string, args ...string) (l printedLease) {
	t.Helper()
	get := []string{"capacity", "get", "--json", "--timeout", patience.String(), "--server", at}
	args = append(get, args...)
	status, out, said := gatehouse(t, nil, args...)
	if err := json.Unmarshal([]byte(out), &l); status != 0 || err != nil {
		t.Fatalf("gatehouse %s ended with %d, wrote %q, %q: %v",
			strings.Join(args, " "), status, out, said, err)
	}
	return l
}

func TestCapacityGetAndRelease(t *testing.T) {
	t.Parallel()
	_, at := startShares(t)
	before := time.Now()
	one := getLease(t, at, "database", "600")
	if one.Capacity != 600 || one.Resource != "database" || one.Client == "" || one.Safe != 1000 ||
		one.Expiry < before.Unix()+595 || one.Expiry > time.Now().Unix()+600 {
		t.Errorf("the first lease is %+v, want 600 for ten minutes, and 1000 without one", one)
	}
	if two := getLease(t, at, "database", "600", "--client", "other"); two.Capacity != 400 {
		t.Errorf("the second lease is %+v, want the 400 that are left", two)
	}
	env := []string{"GATEHOUSE_CAPACITY_SERVER=" + at}
	if status, out, said := gatehouse(t, env, "capacity", "release", "database"); status+len(out+said) != 0 {
		t.Errorf("release ended with %d, wrote %q, %q, want silence", status, out, said)
	}
	get := strings.Fields("capacity get database 600 --client other --release")
	status, out, said := gatehouse(t, env, get...)
	want := "CLIENT…RESOURCE…CAPACITY…WANTS…EXPIRES…REFRESH…SAFE\nother…database…600…600…:…1s…1000\n"
	if status != 0 || !matches(want, out) {
		t.Errorf("get ended with %d, wrote\n%s%s, want\n%s", status, out, said, want)
	}
	if three := getLease(t, at, "database", "1000"); three.Capacity != 1000 {
		t.Errorf("after both gave back what they had it is %+v, want all 1000", three)
	}
}

// A process is a tool that runs beside the test.
type process struct {
	*os.Process
	out, said *journal
	in        *os.File
	ended     chan int // its status
}

// startTool starts a tool that ends with the test.
func startTool(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(), args...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = read
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	p := &process{cmd.Process, newJournal(), newJournal(), write, make(chan int, 1)}
	copied := make(chan struct{})
	go func() { p.said.copy(said); p.said.close(); close(copied) }()
	go func() {
		p.out.copy(out)
		<-copied
		_ = cmd.Wait() // the state says the same
		p.out.close()
		p.ended <- cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { _ = p.Kill(); _ = write.Close() })
	return p
}

// end waits for the end of a tool, and returns its status.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case status := <-p.ended:
		return status
	case <-time.After(patience):
		t.Fatalf("the tool does not end; it wrote %s and said %s", p.out, p.said)
		return 0
	}
}

func TestCapacityWatch(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := startTool(t, "capacity", "watch", "database", "700", "--server", at, "--json")
		for step, capacity := range []string{"700", "500", "700"} {
			has := `"resource_id":"database","capacity":` + capacity + `,"expiry_time":`
			shown := func(line string) bool { return strings.Contains(line, has) }
			if _, err := p.out.await(shown); err != nil {
				t.Fatalf("watch does not show %s: %v", capacity, err)
			}
			switch step {
			case 0:
				getLease(t, at, "database", "500", "--client", "other")
			case 1:
				gatehouse(t, nil, "capacity", "release", "database", "--client", "other", "--server", at)
			}
		}
		lines, _, _ := p.out.all()
		if len(lines) < 2 || len(lines) > 3 {
			t.Errorf("watch printed %d lines, want one for each change:\n%s", len(lines), p.out)
		}
		_ = p.Signal(signal)
		if status := p.end(t); status != 0 {
			t.Errorf("after %s watch ended with %d and said %s, want 0", signal, status, p.said)
		}
		if a := s.get(t, "/capacity/database?format=json"); strings.Contains(a.body, `"client_id"`) {
			t.Errorf("after watch ended there are still leases: %s", a)
		}
	}
}

// What goes wrong is said in one line, which says what to do.
var toolMistakes = []struct {
	args   string
	status int
	want   string
}{
	{"get", 2, "…capacity get has 0 arguments, want RESOURCE WANTS…"},
	{"get a b c", 2, "…capacity get has 3 arguments, want RESOURCE WANTS…"},
	{"get a b", 2, `…"b" is no amount, want a number from 0 on…`},
	{"get a -- -1", 2, `…"-1" is no amount, want a number from 0 on…`},
	{"get a NaN", 2, `…"NaN" is no amount, want a number from 0 on…`},
	{"get a Inf", 2, `…"Inf" is no amount, want a number from 0 on…`},
	{"release", 2, "…capacity release has 0 arguments, want RESOURCE…"},
	{"watch a", 2, "…capacity watch has 1 arguments, want RESOURCE WANTS…"},
	{"shell a", 2, "…capacity shell has 1 arguments, want none…"},
	{"check", 2, "…capacity check has 0 arguments, want SOURCE…"},
	{"take a 1", 2, `…"take" is no command of gatehouse capacity; want one of check get …`},
	{"get a 1 --slowly", 2, "…unknown flag: --slowly…"},
	{"get a 1 --timeout 0s", 2, "…--timeout is 0s, want it above 0…"},
	{"get a 1 --server localhost", 2, `…--server has "localhost", want an address such as localhost:5506…`},
	{"get a 1 --server localhost:1,localhost:2", 1, "…no server responds; start one with gatehouse serve, " +
		"or name others with --server: localhost:1: dial tcp …:1: …refused; localhost:2: …refused…"},
	{"watch a 1 --timeout 5s --server localhost:1", 1, "…no lease within 5s: …localhost:1…refused…"},
	{"check no-such-file.yaml", 1, "…no-such-file.yaml…"},
}

func TestCapacityToolMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range toolMistakes {
		status, out, said := gatehouse(t, nil, append([]string{"capacity"}, strings.Fields(m.args)...)...)
		last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
		if status != m.status || out != "" || !matches(m.want, last) {
			t.Errorf("capacity %s ended with %d, wrote %q and said %q, want %d and %q",
				m.args, status, out, said, m.status, m.want)
		}
	}
	_, at := startShares(t)
	status, _, said := gatehouse(t, nil, "capacity", "get", strings.Repeat("x", 513), "1", "--server", at)
	const want = "gatehouse: resource[0].resource_id has 513 bytes, want 1 to 512\n"
	if status != 1 || said != want {
		t.Errorf("a name that is too long ended with %d and said %q, want 1 and %q", status, said, want)
	}
}

func TestCapacityCheck(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "capacity.yaml")
	check := func(text string) (int, string, string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return gatehouse(t, nil, "capacity", "check", path)
	}
	status, out, said := check(shares)
	if status != 0 || !matches(path+"…is valid and has 2 templates\n", out) {
		t.Errorf("check ended with %d, wrote %q and said %q, want 0", status, out, said)
	}
	status, out, said = check(strings.ReplaceAll(shares, "capacity: 100", "capasity: -5"))
	for _, want := range []string{path + ":4:5: ", path + ":9:5: ", `"capasity" is no key`} {
		if status != 1 || out != "" || !strings.Contains(said, want) {
			t.Errorf("check ended with %d, wrote %q and said\n%s\nwant 1, and each fault with its line: %s",
				status, out, said, want)
		}
	}
	p := startTool(t, "capacity", "check", "-", "--json")
	_, _ = p.in.WriteString(shares)
	_ = p.in.Close()
	if status := p.end(t); status != 0 || p.out.String() != `{"version":"standard input","templates":2}` {
		t.Errorf("check - ended with %d, wrote %s and said %s, want 0", status, p.out, p.said)
	}
}

// A signpost is a server that is not the master.
type signpost struct {
	doormanpb.UnimplementedCapacityServer
	master string
	falls  atomic.Bool // silent, after its first answer
	asked  atomic.Int64
}

// GetCapacity implements the protocol.
func (s *signpost) GetCapacity(
	ctx context.Context, _ *doormanpb.GetCapacityRequest,
) (*doormanpb.GetCapacityResponse, error) {
	if s.asked.Add(1) > 1 && s.falls.Load() {
		<-ctx.Done()
	}
	m := &doormanpb.Mastership{}
	if s.master != "" {
		m.MasterAddress = &s.master
	}
	return &doormanpb.GetCapacityResponse{Mastership: m}, nil
}

// startSignpost starts a server that leads to an address, or to itself.
func startSignpost(t *testing.T, master string) (s *signpost, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	s = &signpost{master: master}
	if master == "itself" {
		s.master = listener.Addr().String()
	}
	server := grpc.NewServer()
	doormanpb.RegisterCapacityServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, listener.Addr().String()
}

func TestCapacityFollowsTheMaster(t *testing.T) {
	t.Parallel()
	_, at := startShares(t)
	_, post := startSignpost(t, at)
	if l := getLease(t, post, "database", "5"); l.Capacity != 5 {
		t.Errorf("by way of another server the lease is %+v, want 5", l)
	}
	_, lost := startSignpost(t, "")
	if l := getLease(t, "localhost:1,"+lost+","+post, "database", "5"); l.Capacity != 5 {
		t.Errorf("as the third server's the lease is %+v, want 5", l)
	}
}

// Nothing hangs: neither a server that is silent, be it from the second question on, nor one that leads
// nowhere, nor those that lead round.
func TestCapacityDoesNotHang(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "localhost:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	_, lost := startSignpost(t, "")
	fallen, falls := startSignpost(t, "")
	fallen.falls.Store(true)
	around, round := startSignpost(t, "itself")
	var all sync.WaitGroup
	for server, want := range map[string]string{
		silent.Addr().String(): "gatehouse: no server responds; …\n",
		lost:                   "gatehouse: …knows no master after 10s…\n",
		falls:                  "gatehouse: …knows no master after 10s…\n",
		round:                  "gatehouse: servers lead to each other, the last time to " + round + "\n",
	} {
		all.Go(func() {
			get := strings.Fields("capacity get a 1 --timeout 10s --server " + server)
			status, _, said := gatehouse(t, nil, get...)
			if status != 1 || !matches(want, said) {
				t.Errorf("get ended with %d and said %q, want 1 and %q", status, said, want)
			}
		})
	}
	all.Wait()
	if n := around.asked.Load(); n != 6 {
		t.Errorf("a server that leads to itself was asked %d times, want 6", n)
	}
}

// The same in JSON, by the example of the documentation.
func TestCapacityByCurl(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	url := "http://" + s.address + "/v1/capacity/"
	const request = `{"client_id":"me","resource":[{"resource_id":"r","wants":700}]}`
	want := `{"response":[{"resource_id":"r","gets":{"expiry_time":…,"refresh_interval":1,"capacity":700},` +
		`"safe_capacity":1000}]}` + "\n"
	for _, header := range []string{"Accept: */*", "Expect: 100-continue"} {
		if got := runCurl(t, "-d", request, "-H", header, url+"get"); !matches(want, got) {
			t.Errorf("a lease by curl = %s, want %s", got, want)
		}
	}
	if l := getLease(t, at, "r", "700"); l.Capacity != 300 {
		t.Errorf("by gRPC there are %v left, want 300", l.Capacity)
	}
	if got := runCurl(t, "-d", `{"client_id":"me","resource_id":["r"]}`, url+"release"); got != "{}\n" {
		t.Errorf("a release by curl = %q, want {}", got)
	}
	if l := getLease(t, at, "r", "700"); l.Capacity != 700 {
		t.Errorf("after that by gRPC there are %v, want 700", l.Capacity)
	}
	got := runCurl(t, "-w", " %{http_code}", "-d", request, "-H", "Origin: https://a.example", url+"get")
	if !matches("request comes from a web page of another site… 403", got) {
		t.Errorf("a page of another site gets %s, want 403", got)
	}
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(strings.Repeat("x", 65537)), 0o600); err != nil {
		t.Fatal(err)
	}
	got = runCurl(t, "-w", " %{http_code}", "--data-binary", "@"+body, "-H", "Expect:", url+"get")
	if got != "body is longer than 65536 bytes 413" {
		t.Errorf("a body that is too long gets %s, want 413", got)
	}
	for _, metric := range []string{
		`doorman_server_requests{method="GetCapacity"} 4`,
		`doorman_server_requests{method="ReleaseCapacity"} 1`,
	} {
		if page := s.get(t, "/metrics").body; !strings.Contains(page, metric) {
			t.Errorf("/metrics has no %s, but\n%s", metric, linesWith(page, "doorman_server_requests"))
		}
	}
}

// linesWith are the lines of a text that have another text in them.
func linesWith(text, wanted string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, wanted) {
			fmt.Fprint(&found, line)
		}
	}
	return found.String()
}
