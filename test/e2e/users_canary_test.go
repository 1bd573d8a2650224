package e2e

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/metadata"
)

// A tokenHunt looks for tokens in all that a server tells, by the source of the text.
type tokenHunt struct {
	t      *testing.T
	hidden []string
}

// look wants no token in a text.
func (h tokenHunt) look(where, text string) {
	h.t.Helper()
	for _, token := range h.hidden {
		if strings.Contains(text, token) {
			h.t.Errorf("%s shows a token or its hash: %.2000s", where, text)
		}
	}
}

// TestTokensAreShownNowhere gives right and wrong tokens in every way there is to a server that keeps its
// state on disk and logs all it can. No answer, page, metric, log line, command or file has one of them,
// nor its hash.
func TestTokensAreShownNowhere(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, data := filepath.Join(folder, "users.yaml"), filepath.Join(folder, "data")
	writeUsers(t, file, [2]string{"ops", `may: [{on: "*", do: manage}]`},
		[2]string{"ci", `may: [{on: "lock/*", do: use}]`})
	s := start(t, "--users", file, "--store", "disk:"+data, "--log-level", "debug",
		"--grpc", "localhost:0")
	right, wrong := canary+"ops", canary+"wrong"
	basic := base64.StdEncoding.EncodeToString([]byte("ci:" + canary + "ci"))
	hunt := tokenHunt{t, []string{canary, hashOf(right)[len("sha256:"):], hashOf(canary + "ci")[7:],
		hashOf(wrong)[7:], basic}}
	hunt.useTokens(s, right, wrong, basic)

	ask := func(path string) (status int, text string) {
		status, text = s.ask(t, asked{method: "GET", path: path, token: right})
		hunt.look(path, text)
		return status, text
	}
	for _, path := range []string{
		"/v1/whoami", "/v1/names", "/v1/top", "/v1/lock", "/v1/lock/held/holders", "/v1/lock/held/stats",
		"/v1/activity/lock/held", "/metrics", "/capacity", "/capacity?format=json", "/debug/status",
		"/healthz", "/readyz",
	} {
		if status, text := ask(path); status != http.StatusOK {
			t.Errorf("%s = %d %s, want 200", path, status, text)
		}
	}
	refused := s.get(t, "/v1/lock/held/acquire?key=other&maxwait=0", "Authorization: Bearer "+right)
	if status, text := ask("/v1/decisions/" + refused.header.Get("Gatehouse-Decision")); status != 200 {
		t.Errorf("a decision is explained by %d %s, want 200", status, text)
	}
	env := []string{"GATEHOUSE_TOKEN=" + right, "GATEHOUSE_SERVER=" + s.address}
	for _, args := range [][]string{
		{"peek", "lock/held"}, {"acquire", "gcra/x", "--limits", "no"},
		{"top", "--once", "--every", "100ms"}, {"ls"}, {"ps", "lock/held"},
		{"token", "can", "--users", file, "ci", "acquire", "lock/held"},
		{"serve", "--check", "--users", file, "--store", "disk:" + data},
	} {
		_, out, said := gatehouse(t, env, args...)
		hunt.look(strings.Join(args, " "), out+said)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	log := s.journal.String()
	if !strings.Contains(log, `"DEBUG"`) || !strings.Contains(log, "refused a request") {
		t.Errorf("the log has no line at level debug, or none of a refusal:\n%s", log)
	}
	hunt.look("the log", log)
	status, out, said := gatehouse(t, nil, "data", "dump", data)
	if status != 0 || !strings.Contains(out, `"held"`) || !strings.Contains(out, "ci~k") {
		t.Errorf("data dump ended with %d, said %q and printed %s, want what ci holds", status, said, out)
	}
	hunt.look("data dump", out)
	err := filepath.WalkDir(data, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			hunt.look(path, string(readFile(t, path)))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// useTokens gives tokens that are right, wrong and odd, in every way.
func (h tokenHunt) useTokens(s *server, right, wrong, basic string) {
	t := h.t
	for _, header := range []string{
		"Bearer " + wrong, "Basic " + basic, "Basic " + basic[:9] + "!", "Token " + right,
		"Bearer  " + right + " x", "Bearer " + strings.Repeat(right, 100), right,
	} {
		for _, path := range []string{"/v1/lock/held/acquire?key=k&maxwait=0", "/v1/lock/held/close",
			"/v1/lock/held/acquire?token=" + right, "/metrics"} {
			a := s.get(t, path, "Authorization: "+header)
			h.look(path+" with "+header, a.String())
		}
	}
	for _, commands := range [][]string{
		{"AUTH ci " + canary + "ci", "GH.ACQUIRE lock/other KEY k MAXWAIT 0", "GH.CLOSE lock/other",
			"GH.ACQUIRE lock/other TOKEN " + right, "CLIENT LIST", "CLIENT INFO"},
		{"HELLO 3 AUTH ci " + canary + "ci", "ACL WHOAMI", "INFO"},
		{"AUTH " + wrong}, {"AUTH ops " + wrong}, {"HELLO 2 AUTH ci " + wrong}, {"AUTH a b " + right},
		{"HELLO 9 AUTH ci " + right}, {"HELLO 2 AUTH " + right}, {"AUTHX " + right},
	} {
		c := dialRedis(t, s.redisAddress(t))
		for _, command := range commands {
			c.send(command)
			h.look(command, c.answer())
		}
	}
	rpc := doormanpb.NewCapacityClient(s.dialGRPC(t))
	id, resource := "c", []string{"r"}
	for _, header := range []string{"Bearer " + right, "Bearer " + wrong, "Basic " + basic, right} {
		ctx := metadata.AppendToOutgoingContext(soon(t), "authorization", header)
		request := &doormanpb.ReleaseCapacityRequest{ClientId: &id, ResourceId: resource}
		_, err := rpc.ReleaseCapacity(ctx, request)
		if err != nil {
			h.look("gRPC with "+header, err.Error())
		}
	}
}
