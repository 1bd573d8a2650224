package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server does not start where others reach it and nobody is asked who they are, or where tokens could be
// read on their way.
func TestReach(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := os.WriteFile(users, []byte("users: [{name: ops, may: [{on: '*', do: manage}]}]"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const (
		open  = "which need no token; give --users FILE, or --insecure"
		plain = "would send tokens without TLS"
	)
	for _, c := range []struct{ env, args, want string }{
		{"", "", ""},
		{"", "--http 127.0.0.1:0 --resp [::1]:0 --grpc localhost:0", ""},
		{"", "--http :0", open},
		{"", "--http 192.0.2.1:80", open},
		{"", "--resp 0.0.0.0:0", open},
		{"", "--grpc [::]:0", open},
		{"", "--http gate.example:80", open},
		{"", "--http :0 --resp :0 --insecure", ""},
		{"GATEHOUSE_INSECURE=true", "--http :0", ""},
		{"GATEHOUSE_HTTP=:0", "", open},
		{"BOUNCER_HOST=0.0.0.0", "", ""},
		{"BOUNCER_HOST=0.0.0.0", "--resp :0", open},
		{"", "--users " + users, ""},
		{"", "--http :0 --users " + users, plain},
		{"", "--http :0 --trusted-proxy 10.0.0.0/8 --users " + users, ""},
		{"", "--http :0 --insecure --users " + users, ""},
		{"", "--trusted-proxy x --users " + users, `has "x", want addresses`},
		{"", "--users " + users + ".missing", "no such file"},
	} {
		status, _, said := gatehouse(t, strings.Fields(c.env),
			append([]string{"serve", "--check"}, strings.Fields(c.args)...)...)
		if (status == 0) != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s serve --check %s ended with %d and said %q, want %q", c.env, c.args, status, said,
				c.want)
		}
	}
}

// What gatehouse token makes lets its user in, and what token can says is what the server does.
func TestToken(t *testing.T) {
	t.Parallel()
	status, token, lines := gatehouse(t, nil, "token", "ci")
	token = strings.TrimSpace(token)
	_, entry, found := strings.Cut(lines, "users:\n\n")
	if status != 0 || !strings.HasPrefix(token, "gatehouse_") || !found || strings.Contains(lines, token) {
		t.Fatalf("token ci = %d, %q, %q, want a token and lines without it", status, token, lines)
	}
	users := filepath.Join(t.TempDir(), "users.yaml")
	text := "users:\n" + strings.Replace(entry, `on: "*"`, `on: "lock/ci-*"`, 1)
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--users", users)
	for _, c := range []struct {
		op, name string
		may      bool
	}{
		{"acquire", "ci-a", true}, {"holders", "ci-a", true}, {"evict", "ci-a", false}, {"acquire", "other",
			false},
	} {
		status, said, _ := gatehouse(t, nil, "token", "can", "ci", c.op, "lock/"+c.name, "--users", users)
		if (status == 0) != c.may || !strings.HasPrefix(said, map[bool]string{true: "yes: ",
			false: "no: "}[c.may]) {
			t.Errorf("token can ci %s lock/%s = %d, %q, want %t", c.op, c.name, status, said, c.may)
		}
		method := map[bool]string{true: "POST", false: "GET"}[c.op == "evict"]
		got, _ := s.ask(t, asked{method: method, path: "/v1/lock/" + c.name + "/" + c.op + "?id=h1",
			token: token})
		if refused := got == 403; refused == c.may {
			t.Errorf("%s of lock/%s over HTTP = %d, want a refusal: %t", c.op, c.name, got, !c.may)
		}
	}
}

// An asked is one request of a user.
type asked struct {
	method, path, body string
	token              string // none if it is empty
}

// ask sends a request and returns its status and its answer.
func (s *server) ask(t *testing.T, a asked) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), a.method, "http://"+s.address+a.path,
		strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
