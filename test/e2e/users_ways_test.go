package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// TestUsersByCertificate has clients known by their certificates alone, over each protocol with TLS: a token
// counts for more, and a certificate that is nobody's for no more than none.
func TestUsersByCertificate(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file,
		[2]string{"ci", `certificates: ["CN=ci-runner"]` + "\n" + `    may: [{on: "lock/*", do: use}]`},
		[2]string{"leases", `certificates: ["CN=lease-holder"]` + "\n" +
			`    may: [{on: "capacity/db", do: use}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := startCapacity(t, tlsFlags(ca.Server(), "--tls-client-ca", ca.File, "--tls-client-auth", "optional",
		"--users", file, "--capacity-config", writeTemplates(t, shares))...)
	for _, c := range []shownCertificate{
		{cn: "ci-runner", user: "ci", lock: true},
		{cn: "lease-holder", user: "leases", lease: true},
		{cn: "ci-runner", token: canary + "ops", user: "ops", lock: true, lease: true},
		{cn: "stranger"},
		{cn: "CN=ci-runner"}, // a name that looks like another sort of one
		{},
	} {
		c.config = ca.Client()
		if c.cn != "" {
			c.config = ca.Client(ca.Issue(c.cn, time.Hour))
		}
		s.wantOverHTTP(t, &c)
		s.wantOverRESP(t, &c)
		want := codes.PermissionDenied
		switch {
		case c.lease:
			want = codes.OK
		case c.user == "":
			want = codes.Unauthenticated
		}
		if err := s.askLease(t, &c); status.Code(err) != want {
			t.Errorf("%s: a lease = %v, want %s", &c, err, want)
		}
	}
}

// A shownCertificate is what a client shows of itself, and what it gets by that.
type shownCertificate struct {
	cn, token   string
	config      *tls.Config
	user        string // "" is refused
	lock, lease bool
}

func (c *shownCertificate) String() string {
	return fmt.Sprintf("the certificate of %q with the token %q", c.cn, c.token)
}

// wantOverHTTP wants to be a user, or refused, and may take a lock or not.
func (s *server) wantOverHTTP(t *testing.T, c *shownCertificate) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c.config}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	ask := func(path string) (int, string) {
		url := "https://" + s.address + path
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			request.Header.Set("Authorization", "Bearer "+c.token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	got, text := ask("/v1/whoami")
	if known := got == 200 && strings.Contains(text, `"user":"`+c.user+`"`); known != (c.user != "") ||
		c.user == "" && got != 401 {
		t.Errorf("%s: whoami over HTTP = %d %s, want user %q", c, got, text, c.user)
	}
	got, text = ask("/v1/lock/l/acquire?key=k&maxwait=0")
	if want := map[bool]int{true: 200, false: 403}[c.lock]; got != want && (c.user != "" || got != 401) {
		t.Errorf("%s: a lock = %d %s, want %d", c, got, text, want)
	}
	_, _ = ask("/v1/lock/l/release?key=k")
}

// wantOverRESP wants to be a user, or refused.
func (s *server) wantOverRESP(t *testing.T, c *shownCertificate) {
	t.Helper()
	dialer := tls.Dialer{Config: c.config}
	conn, err := dialer.DialContext(t.Context(), "tcp", s.redisAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	commands, want := "", "-NOAUTH"
	if c.token != "" {
		commands, want = redisCommand("AUTH "+c.token), "+OK\r\n"
	}
	if c.user != "" {
		want = strings.TrimPrefix(want, "-NOAUTH") + fmt.Sprintf("$%d\r\n%s\r\n", len(c.user), c.user)
	}
	_, _ = io.WriteString(conn, commands+redisCommand("ACL WHOAMI"))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("%s: whoami over RESP = %q, %v, want %q", c, got, err, want)
	}
}

// askLease asks for a lease on db.
func (s *server) askLease(t *testing.T, c *shownCertificate) error {
	t.Helper()
	conn, err := grpc.NewClient(s.grpcAddress(t), grpc.WithTransportCredentials(credentials.NewTLS(c.config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := soon(t)
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	client, db, wants := "c-1", "db", 1.0
	resource := &doormanpb.ResourceRequest{ResourceId: &db, Priority: new(int64), Wants: &wants}
	_, err = doormanpb.NewCapacityClient(conn).GetCapacity(ctx, &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: []*doormanpb.ResourceRequest{resource},
	})
	return err
}

// TestReflectionNeedsManage asks what services there are.
func TestReflectionNeedsManage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	tools := [2]string{"tools", `may: [{on: "server/reflection", do: manage}]`}
	writeUsers(t, file, append([][2]string{tools}, levelUsers...)...)
	s := start(t, "--grpc", "localhost:0", "--users", file)
	conn := s.dialGRPC(t)
	for user, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "wrong": codes.Unauthenticated, "none": codes.PermissionDenied,
		"use": codes.PermissionDenied, "manage": codes.OK, "tools": codes.OK,
	} {
		ctx := soon(t)
		if user != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+canary+user)
		}
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Where that fails, what is received says why.
		_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		})
		_, err = stream.Recv()
		if got := status.Code(err); got != want {
			t.Errorf("reflection for %q = %v, want %s", user, err, want)
		}
	}
}

// TestBeforeLogin has clients that do not say who they are: they may send 4 KiB, and have the read timeout
// for it, however they spend both.
func TestBeforeLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, levelUsers...)
	s := start(t, "--users", file, "--read-timeout", "1s")
	known := dialRedis(t, s.redisAddress(t)) // and so may be idle for longer
	known.want("AUTH "+canary+"use", "OK")
	reset, ping := redisCommand("RESET"), redisCommand("PING")
	for what, sent := range map[string]string{
		"one large command":          "*2\r\n$4\r\nECHO\r\n$5000\r\n" + strings.Repeat("x", 5000) + "\r\n",
		"a large one, not whole":     "*2\r\n$4\r\nECHO\r\n$9000\r\n" + strings.Repeat("x", 5000),
		"many small ones":            strings.Repeat(ping, 400),
		"small ones between RESETs":  strings.Repeat(ping+reset, 250),
		"a line without an end":      strings.Repeat("x", 5000),
		"nothing, until the timeout": "",
		"a part, until the timeout":  "*2\r\n$4\r\nAUTH\r\n$40\r\n",
	} {
		conn := dialRedis(t, s.redisAddress(t))
		_, _ = io.WriteString(conn, sent)
		rest, err := io.ReadAll(conn)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v, want the end of the connection", what, err)
		}
		if strings.Contains(string(rest), "+PONG") {
			t.Errorf("%s: %q, want no answer to a PING", what, rest)
		}
	}
	known.want("PING", "PONG")
}

// TestUsersOfJARL gives listeners users of their limiters' names, whose lines and rate count then.
func TestUsersOfJARL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	users := "users:\n  - {name: jarl/barred, may: [{on: 'pace/other', do: use}]}\n" +
		"  - {name: jarl/rated, may: [{on: 'pace/*', do: use}], at-most: {rate: 2/1h}}\n"
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := "jarl:\n"
	for _, name := range []string{"free", "barred", "rated"} {
		lines += "  - {listen: 'localhost:0', name: " + name + ", requests: 1000, period: 1s}\n"
	}
	s := start(t, "--users", file, "--config", configFile(t, lines))
	for name, answered := range map[string]int{"free": 3, "barred": 0, "rated": 2} {
		address := s.jarlAddress(t, name)
		for i := range 3 {
			text, err := io.ReadAll(dialTCP(t, address))
			if got := len(text) > 0; got != (i < answered) {
				t.Errorf("connection %d to %s reads %q, %v, want %d answered", i+1, name, text, err, answered)
			}
		}
	}
}
