package e2e

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// runQuietly runs a program to its end. It must succeed and complain of nothing.
func runQuietly(t *testing.T, input, program string, args ...string) (output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaints strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("%s %s: %v, and it complains: %s", program, strings.Join(args, " "), err, &complaints)
	}
	return out.String()
}

// flagsOf are the host and port as Redis's tools want them.
func flagsOf(address string) []string {
	host, port, _ := net.SplitHostPort(address)
	return []string{"-h", host, "-p", port}
}

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	address := start(t).redisAddress(t)
	for _, c := range []struct{ args, input, want string }{
		{"CL.THROTTLE user123 15 30 60", "", "0\n16\n15\n-1\n2\n"},
		{"-3 --no-raw CL.THROTTLE three 15 30 60", "", "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n" +
			"4) (integer) -1\n5) (integer) 2\n"},
		{"--no-raw GH.ACQUIRE semaphore/db SIZE 10 EXPIRES 60000 MAXWAIT 5000 KEY k", "", "\"k\"\n"},
		{"-3 --no-raw GH.PEEK gcra/new SIZE 10", "", "1# \"granted\" => (integer) 1\n" +
			"2# \"limit\" => (integer) 10\n3# \"remaining\" => (integer) 10\n" +
			"4# \"retry_after\" => (integer) 0\n5# \"reset_after\" => (integer) 0\n"},
		{"--no-raw GH.ACQUIRE semaphore/none SIZE 0 MAXWAIT 0", "", "(nil)\n"},
		{"--no-raw GH.RELEASE lock/l KEY k", "", "(error) CONFLICT lock/l is not held with this key…\n"},
		{"--no-raw SET a b", "", "(error) ERR unknown command 'SET', with args beginning with: 'a' 'b' \n"},
		{"--no-raw GET", "", "(error) ERR unknown command 'GET', with args beginning with: \n"},
		{"--no-raw GCRASETVALUE a 1", "",
			"(error) ERR unknown command 'GCRASETVALUE', with args beginning with: 'a' '1' \n"},
		{"", "PING\nGH.COUNT counter/c\nGH.COUNT counter/c AMOUNT 41\nPING bye\n", "PONG\n1\n42\nbye\n"},
		{"help CL.THROTTLE", "", "…CL.THROTTLE…key max_burst count period [quantity]…redis-cell…"},
		{"-3 help GH.ACQUIRE", "", "…kind/name [PARAMETER value ...]…"},
		{"--pipe", redisCommand("GH.COUNT counter/p") + redisCommand("GH.COUNT counter/p"),
			"…errors: 0, replies: 2\n"},
		{"-r 3 GH.COUNT counter/r", "", "1\n2\n3\n"},
		{"INFO server", "", "# Server\r\ngatehouse_version:…redis_mode:standalone…"},
	} {
		args := append(flagsOf(address), strings.Fields(c.args)...)
		if got := runQuietly(t, c.input, "redis-cli", args...); !matches(c.want, got) {
			t.Errorf("redis-cli %s\nsays %q\nwant %q", c.args, got, c.want)
		}
	}
}

func TestRedisBenchmark(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.redisAddress(t)
	for _, args := range []string{
		"-n 10000 -c 50 -P 16 CL.THROTTLE user:1 15 30 60", "-n 2000 -c 10 THROTTLE user:1 16 30 60",
		"-3 -n 10000 -c 10 -P 100 -r 1000 GCRA user:__rand_int__ 15 30 60", "-n 1000 -t ping",
		"--threads 2 -n 10000 -P 4 GH.COUNT counter/benchmark",
	} {
		all := append(append(flagsOf(address), "-q"), strings.Fields(args)...)
		got := runQuietly(t, "", "redis-benchmark", all...)
		if !strings.Contains(got, "requests per second") {
			t.Errorf("redis-benchmark %s says %q, want requests per second", args, got)
		}
	}
	dialRedis(t, address).want("GH.VALUE counter/benchmark", "10000")
}

// debianPython is the Python that has Debian's package python3-redis.
const debianPython = "/usr/bin/python3"

// pythonClient uses what redis-py has for connections, pipelines, errors and threads.
const pythonClient = `
import redis, sys, threading
host, port = sys.argv[1:]
r = redis.Redis(host=host, port=port, db=0, client_name="test", decode_responses=True)
assert r.ping()
assert r.execute_command("CL.THROTTLE", "user123", 15, 30, 60) == [0, 16, 15, -1, 2]
assert r.execute_command("THROTTLE", "user:123", 10, 100, 60) == [1, 10, 9, 0, 0]
assert r.client_getname() == "test"
assert [c["name"] for c in r.client_list()] == ["test"]
assert r.info()["redis_mode"] == "standalone"
assert r.config_get("save") == {"save": ""}
pipe = r.pipeline(transaction=False)
for _ in range(1000):
    pipe.execute_command("GH.COUNT", "counter/python")
assert pipe.execute() == list(range(1, 1001))
key = r.execute_command("GH.ACQUIRE", "lock/python")
assert r.execute_command("GH.ACQUIRE", "lock/python", "MAXWAIT", 0) is None
got = []
def wait():
    got.append(r.execute_command("GH.ACQUIRE", "lock/python", "KEY", "t"))
waiter = threading.Thread(target=wait)
waiter.start()
while dict(zip(*[iter(r.execute_command("GH.STATS", "lock/python"))] * 2))["waiting"] != 1:
    pass
assert r.execute_command("GH.RELEASE", "lock/python", "KEY", key) == "OK"
waiter.join()
assert got == ["t"], got
for words, error in (
    (["CL.THROTTLE", "a"], "Usage: cl.throttle <key>"),
    (["GH.RELEASE", "lock/python", "KEY", "x"], "CONFLICT lock/python is not held"),
    (["GET", "a"], "unknown command 'GET'"),
):
    try:
        r.execute_command(*words)
        assert False, words
    except redis.ResponseError as e:
        assert str(e).startswith(error), e
print("done")
`

func TestRedisPy(t *testing.T) {
	t.Parallel()
	host, port, _ := net.SplitHostPort(start(t).redisAddress(t))
	if got := runQuietly(t, pythonClient, debianPython, "-W", "error", "-", host, port); got != "done\n" {
		t.Errorf("redis-py says %q, want done", got)
	}
}
