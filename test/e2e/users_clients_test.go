package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
)

// The programs in Python and JavaScript have the address as argument, and the token too if it is not in the
// environment.
const (
	pythonWithToken = `
import sys, gatehouse
given = {"token": sys.argv[2]} if len(sys.argv) > 2 else {}
with gatehouse.Client(sys.argv[1], timeout=2, **given) as gh:
    with gh.lock("python", max_wait=60) as hold:
        print("HELD", hold.fence)
`
	asyncioWithToken = `
import asyncio, sys
from gatehouse import aio
given = {"token": sys.argv[2]} if len(sys.argv) > 2 else {}
async def main():
    async with aio.Client(sys.argv[1], timeout=2, **given) as gh:
        async with gh.lock("asyncio", max_wait=60) as hold:
            print("HELD", hold.fence)
asyncio.run(main())
`
	nodeWithToken = `
const { Client } = await import(process.cwd() + "/../../clients/js/src/index.js");
const [address, token] = process.argv.slice(1);
const gh = new Client(address, token === undefined ? { timeout: 2000 } : { timeout: 2000, token });
await gh.lock("node", { maxWait: 60_000 }).run((hold) => console.log("HELD", hold.fence));
`
)

// TestClientsWithTokens asks a server with users by all clients there are, with the right token, a wrong one
// and none, given by parameter, file or environment. No client shows its token.
func TestClientsWithTokens(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	users, tokenFile := filepath.Join(folder, "users.yaml"), filepath.Join(folder, "token")
	right, entry := newToken(t, "ci", "- {on: 'lock/*', do: use}")
	wrong, _ := newToken(t, "ci", "- {on: 'lock/*', do: use}")
	for path, text := range map[string]string{users: "users:\n" + entry, tokenFile: right + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, "--users", users)
	for _, c := range []struct {
		name        string
		program     []string
		environment bool // the token is there, and not an argument
	}{
		{"python", []string{"python3", "-c", pythonWithToken, s.address}, false},
		{"asyncio", []string{"python3", "-c", asyncioWithToken, s.address}, true},
		{"node", []string{"node", "--input-type=module", "--eval", nodeWithToken, "--", s.address}, false},
		{"acquire", strings.Fields(binary() + " acquire lock/cli --maxwait 60s --expires 1ms --server " +
			s.address), true},
		{"run", strings.Fields(binary() + " run --lock run --server " + s.address + " -- echo HELD"), true},
	} {
		for fact, token := range map[string]string{"right": right, "wrong": wrong, "no": ""} {
			t.Run(c.name+"/"+fact+" token", func(t *testing.T) {
				t.Parallel()
				program, env := c.program, []string{"GATEHOUSE_TOKEN="}
				switch {
				case c.environment:
					env[0] += token
				case token != "":
					program = append(slices.Clip(program), token)
				}
				said, ok := runWith(soon(t), env, program)
				held := strings.Contains(said, "HELD") || strings.Contains(said, ": granted")
				if want := fact == "right"; ok != want || held != want {
					t.Errorf("with the %s token it ended well: %t, and said %q, want success = %t",
						fact, ok, said, want)
				}
				if token != "" && strings.Contains(said, token) {
					t.Errorf("it shows its token: %q", said)
				}
			})
		}
	}
	said, ok := runWith(soon(t), nil, []string{binary(), "acquire", "lock/file", "--token-file", tokenFile,
		"--server", s.address})
	if !ok || !strings.Contains(said, "granted") {
		t.Errorf("acquire --token-file ended well: %t, and said %q, want it granted", ok, said)
	}
	said, ok = runWith(soon(t), nil, []string{binary(), "peek", "gcra/file", "--token-file", os.DevNull})
	if ok || !strings.Contains(said, "/dev/null is empty, want a token") {
		t.Errorf("with an empty --token-file it ended well: %t, and said %q, want a failure", ok, said)
	}
	for token, want := range map[string]root.Code{right: 0, wrong: root.CodeUnauthenticated} {
		gate, err := client.New(client.Config{Addresses: []string{s.address}, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		_, err = gate.Do(t.Context(), root.Key{Kind: root.Lock, Name: "go"}, root.Command{
			Op: root.OpAcquire, Holder: "k", Cost: 1,
		})
		gate.Close()
		if (err == nil) != (want == 0) || err != nil && root.CodeOf(err) != want {
			t.Errorf("the Go client gets %v, want code %v", err, want)
		}
	}
}

// runWith runs a program, and returns what it said and whether it ended with 0.
func runWith(ctx context.Context, env, program []string) (said string, ok bool) {
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = append(append(os.Environ(), "PYTHONPATH=../../clients/python"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}
