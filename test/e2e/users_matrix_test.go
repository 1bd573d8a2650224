package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The token of a user is canary- and its name: no log, error, page, metric or answer may have it.
const canary = "canary-"

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeUsers writes a file of users: each has a name, and what it may do as YAML.
func writeUsers(t *testing.T, path string, users ...[2]string) {
	t.Helper()
	text := "users:\n"
	for _, u := range users {
		text += fmt.Sprintf("  - name: %s\n    tokens: [%q]\n    %s\n", u[0], hashOf(canary+u[0]), u[1])
	}
	// Renamed, so that no reader sees half of it.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// levelUsers are one user for each level, and one who may do something else.
var levelUsers = [][2]string{
	{"none", `may: [{on: "lock/elsewhere", do: manage}]`},
	{"read", `may: [{on: "*", do: read}]`},
	{"use", `may: [{on: "*", do: use}]`},
	{"manage", `may: [{on: "*", do: manage}]`},
}

// parametersOf are those that an operation needs to be understood.
func parametersOf(kind root.Kind, op root.Op) []string {
	limit := []string{"size=5", "interval=1000"}
	switch op {
	case root.OpAcquire:
		switch {
		case kind.Limiter():
			return append(limit, "maxwait=0")
		case kind == root.Lock:
			return []string{"key=k", "maxwait=0"}
		}
		return []string{"key=k", "size=5", "maxwait=0"}
	case root.OpRelease, root.OpRenew, root.OpCancel:
		return []string{"key=k"}
	case root.OpPeek, root.OpDelay, root.OpReserve, root.OpCharge:
		return limit
	case root.OpFeedback:
		return append(limit, "status=200")
	case root.OpWait:
		return []string{"maxwait=0"}
	case root.OpEvict:
		return []string{"id=h1"}
	case root.OpBump:
		return []string{"id=w1"}
	}
	return nil
}

// TestRightsOfEachOperation tries every operation of every kind over HTTP, in a batch and over RESP with no
// token, a wrong one, one of a user who may not, of one who may less, and of one who may.
func TestRightsOfEachOperation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, levelUsers...)
	dir := t.TempDir()
	s := start(t, "--users", file, "--store", "disk:"+dir)
	redis := make(map[string]*redisConn)
	for _, u := range levelUsers {
		redis[u[0]] = dialRedis(t, s.redisAddress(t))
		redis[u[0]].want("AUTH "+canary+u[0], "OK")
	}
	cells := 0
	for kind := root.TokenBucket; kind < root.Grant; kind++ {
		for op := root.OpAcquire; op < root.OpUndo; op++ {
			if !kind.Has(op) {
				continue
			}
			level := kind.Level(op)
			for _, user := range []string{"", "wrong", "none", "read", "use", "manage"} {
				cells += checkCell(t, s, redis[user], rightsCell{kind, op, user, level})
			}
		}
	}
	if cells < 1000 {
		t.Errorf("%d cells were tried, want a thousand at least", cells)
	}
	for _, path := range []string{"/metrics", "/v1/lock", "/v1/top", "/capacity", "/v1/whoami", "/v1/names"} {
		if _, text := s.ask(t, asked{method: "GET", path: path, token: canary +
			"manage"}); strings.Contains(text, canary) {
			t.Errorf("%s shows a token", path)
		}
	}
	kept := asked{method: "POST", path: "/v1/lock/kept/acquire?key=k&expires=0", token: canary + "manage"}
	if got, text := s.ask(t, kept); got != 200 {
		t.Errorf("a lock = %d %s, want 200", got, text)
	}
	lines, _, _ := s.journal.all()
	if strings.Contains(strings.Join(lines, "\n"), canary) {
		t.Error("the log shows a token")
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	ended, dump, said := gatehouse(t, nil, "data", "dump", dir)
	if ended != 0 || !strings.Contains(dump, "kept") || strings.Contains(dump+said, canary) {
		t.Errorf("data dump ended with %d, said %q and printed %s, want what users have made, and no token",
			ended, said, dump)
	}
}

// A rightsCell is one operation by one user.
type rightsCell struct {
	kind  root.Kind
	op    root.Op
	user  string
	level root.Level
}

// checkCell tries one operation over each protocol, and returns how often.
func checkCell(t *testing.T, s *server, redis *redisConn, c rightsCell) (tried int) {
	t.Helper()
	mine, known := root.ParseLevel(c.user)
	want, code := 0, ""
	switch {
	case c.user == "" || c.user == "wrong":
		want, code = 401, "NOAUTH"
	case !known || mine < c.level:
		want, code = 403, "NOPERM"
	}
	given := parametersOf(c.kind, c.op)
	method, path := "POST", fmt.Sprintf("/v1/%s/m/%s?%s", c.kind, c.op, strings.Join(given, "&"))
	if c.op == root.OpDelete {
		method, path = "DELETE", fmt.Sprintf("/v1/%s/m", c.kind)
	}
	token := ""
	if c.user != "" {
		token = canary + c.user
	}
	got, text := s.ask(t, asked{method: method, path: path, token: token})
	refused := got == 401 || got == 403
	if want != 0 && got != want || want == 0 && (refused || got == 400) {
		t.Errorf("%s %s by %q = %d %s, want %d", method, path, c.user, got, text, want)
	}
	if strings.Contains(text, canary) {
		t.Errorf("%s %s shows a token: %s", method, path, text)
	}
	if redis == nil {
		redis = dialRedis(t, s.redisAddress(t))
		if c.user == "wrong" {
			redis.want("AUTH "+token, "-WRONGPASS …")
		}
	}
	words := strings.NewReplacer("=", " ").Replace(strings.Join(given, " "))
	command := fmt.Sprintf("GH.%s %s/m %s", strings.ToUpper(c.op.String()), c.kind, words)
	redis.send(command)
	answer := redis.answer()
	isRefused := strings.HasPrefix(answer, "-NO") && !strings.HasPrefix(answer, "-NOTFOUND")
	if code != "" && !strings.HasPrefix(answer, "-"+code) || code == "" && isRefused {
		t.Errorf("%s by %q = %s, want %q", command, c.user, answer, code)
	}
	return 2
}

// TestRightsOfCapacity tries leases over gRPC and JSON, and the pages.
func TestRightsOfCapacity(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	users := append([][2]string{{"as", `may: [{on: "capacity/db*", do: use, as: "me-*"}]`}}, levelUsers...)
	writeUsers(t, file, users...)
	s := start(t, "--grpc", "localhost:0", "--users", file)
	rpc := doormanpb.NewCapacityClient(s.dialGRPC(t))
	for _, c := range []struct {
		user, client, resource string
		grpc                   codes.Code
		http                   int
	}{
		{"", "me-1", "db", codes.Unauthenticated, 401}, {"wrong", "me-1", "db", codes.Unauthenticated, 401},
		{"none", "me-1", "db", codes.PermissionDenied, 403}, {"read", "me-1", "db", codes.PermissionDenied,
			403},
		{"as", "you", "db", codes.PermissionDenied, 403}, {"as", "me-1", "other", codes.PermissionDenied,
			403},
		{"as", "me-1", "db", codes.OK, 200}, {"use", "me-1", "db", codes.OK, 200},
	} {
		ctx, token := t.Context(), ""
		if c.user != "" {
			token = canary + c.user
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		_, err := rpc.ReleaseCapacity(ctx, &doormanpb.ReleaseCapacityRequest{
			ClientId: &c.client, ResourceId: []string{c.resource},
		})
		if got := status.Code(err); got != c.grpc {
			t.Errorf("release of %s as %s by %q over gRPC = %v, want %v", c.resource, c.client, c.user, err,
				c.grpc)
		}
		got, text := s.ask(t, asked{
			method: "POST", path: "/v1/capacity/release", token: token,
			body: fmt.Sprintf(`{"client_id":%q,"resource_id":[%q]}`, c.client, c.resource),
		})
		if got != c.http {
			t.Errorf("release of %s as %s by %q as JSON = %d %s, want %d", c.resource, c.client, c.user, got,
				text,
				c.http)
		}
	}
	// Each refusal is counted once, by the protocol over which it came, and logged with its address.
	_, text := s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "manage"})
	for _, protocol := range []string{"grpc", "http"} {
		for reason, n := range map[string]int{"missing": 1, "wrong": 1, "forbidden": 4} {
			want := fmt.Sprintf("gatehouse_auth_failures_total{protocol=%q,reason=%q} %d\n", protocol, reason,
				n)
			if !strings.Contains(text, want) {
				t.Errorf("/metrics has no %s", want)
			}
		}
	}
	line := awaitLine(t, s.journal, "refused a request")
	if !strings.Contains(line, `"address":"127.0.0.1"`) && !strings.Contains(line, `"address":"::1"`) {
		t.Errorf("the log of a refusal is %s, want its address", line)
	}
}

// TestUsersAreReadAgain changes the file under load: no request is answered by anything but one of its two
// versions, a fault changes nothing, and who waits without the right to is told so.
func TestUsersAreReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	// In each version the user may use one of two names.
	version := func(name string) {
		writeUsers(t, file, [2]string{"u",
			fmt.Sprintf(`may: [{on: "lock/%s", do: use}, {on: "server/*", do: read}]`, name)})
	}
	version("a")
	s := start(t, "--users", file)
	token := canary + "u"
	use := func(name string) int {
		got, _ := s.ask(t, asked{method: "POST", path: "/v1/lock/" + name + "/acquire?key=k&maxwait=0",
			token: token})
		return got
	}
	if a, b := use("a"), use("b"); a != 200 || b != 403 {
		t.Fatalf("before: a = %d, b = %d, want 200 and 403", a, b)
	}
	redis := dialRedis(t, s.redisAddress(t))
	redis.want("AUTH "+token, "OK")
	redis.send("GH.ACQUIRE lock/a KEY other MAXWAIT 60000")
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for ctx.Err() == nil {
				if got := use("a"); got != 200 && got != 403 {
					t.Errorf("under load a = %d, want 200 or 403", got)
				}
			}
		})
	}
	version("b")
	awaitLine(t, s.journal, "the users are in force")
	stop()
	load.Wait()
	if a, b := use("a"), use("b"); a != 403 || b != 200 {
		t.Errorf("after: a = %d, b = %d, want 403 and 200", a, b)
	}
	if got := redis.answer(); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("who waits for a = %s, want -NOPERM", got)
	}
	if err := os.WriteFile(file, []byte("users: [{name: u, tokens: ["+token+"]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, s.journal, "the new users cannot be used")
	if b := use("b"); b != 200 {
		t.Errorf("with a fault in the file: b = %d, want 200", b)
	}
	if _, text := s.ask(t, asked{method: "GET", path: "/metrics", token: token}); !strings.Contains(text,
		"gatehouse_users_stale 1") {
		t.Error("gatehouse_users_stale is not 1")
	}
	lines, _, _ := s.journal.all()
	if strings.Contains(strings.Join(lines, "\n"), canary) {
		t.Error("the log shows a token")
	}
	// The user is gone: its connection ends with its next command.
	writeUsers(t, file, [2]string{"v", "may: []"}, [2]string{"w", "may: []"})
	awaitLine(t, s.journal, `"users":2`)
	redis.want("PING", "-NOAUTH …")
	if _, err := redis.reader.ReadByte(); err == nil {
		t.Error("the connection of a user who is gone goes on, want its end")
	}
}
