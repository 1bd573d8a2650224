package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A question is a command that redis-benchmark repeats, and how its answer begins.
type question struct {
	words  []string
	answer string
}

// The limit is such that all are let through: a million a second, and a thousand times that at once.
var (
	increment = question{[]string{"INCR", "bench"}, ":"}
	throttle  = question{[]string{"CL.THROTTLE", "bench", "999999999", "1000000", "1"}, "*5\r\n:0\r\n"}
)

// throttleScript is the generic cell rate algorithm as one writes it for Redis, with the arguments and
// the answer of CL.THROTTLE.
const throttleScript = `
local limit = tonumber(ARGV[1]) + 1
local step = tonumber(ARGV[3]) / tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now))
local room = limit * step - (tat + step - now)
if room < 0 then
	return {1, limit, 0, math.ceil(-room), math.ceil(tat - now)}
end
local new = tat + step
redis.call('SET', KEYS[1], string.format('%.6f', new), 'PX', math.ceil((new - now) * 1000))
return {0, limit, math.floor(room / step), -1, math.ceil(new - now)}
`

// A respServer is one that is asked over RESP.
type respServer struct {
	*server
	ask   question
	speed int // about how many it answers a second, when they come in sixteens
}

// commands measures what one command costs a server over RESP.
func commands(ctx context.Context, b *bench) (text string, rows []row, err error) {
	servers, err := b.respServers(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, pipeline := range []int{16, 1} {
		var measures []func() (float64, error)
		for _, s := range servers {
			// As many as take about a second, so that slow and fast servers are measured for as long.
			n := b.scale(s.speed, s.speed/5)
			if pipeline == 1 {
				// One at a time, the system's calls outweigh the command, and all servers are about as
				// fast.
				n = b.scale(200_000, 20_000)
			}
			measures = append(measures, func() (float64, error) { return s.repeat(ctx, n, pipeline) })
		}
		all, err := b.race(measures...)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, respRows(pipeline, all)...)
	}
	for _, s := range servers { // it was no error that they were so fast with
		if err := s.check(ctx); err != nil {
			return "", nil, err
		}
	}
	text = "`CL.THROTTLE bench 999999999 1000000 1`, all let through, made by redis-benchmark over 50\n" +
		"connections from another core than the server's, 16 commands at a time and one at a time. The\n" +
		"floor is a server on gnet that counts commands and answers each with `:1`. Redis answers `INCR`,\n" +
		"which limits nothing, and `EVALSHA` of the same algorithm in Lua. All have one core. The time is\n" +
		"the server's, in user mode and in the kernel, divided by the commands."
	return text, rows, nil
}

// respRows are the rows for what four servers need: the floor, two of Redis, and ours.
func respRows(pipeline int, all []series) []row {
	gnet, incr, lua, ours := all[0], all[1], all[2], all[3]
	// One at a time, most of the cost is the kernel's, so a ratio to bare gnet means something. In sixteens
	// the floor does almost nothing; there a time is judged besides.
	if pipeline == 1 {
		const what = "CL.THROTTLE, one at a time, against "
		return []row{
			{what + "bare gnet", gnet, ours, nanoseconds, budget{most: 1.15}, ""},
			{what + "Redis, INCR", incr, ours, nanoseconds, budget{}, ""},
			{what + "Redis, GCRA in Lua", lua, ours, nanoseconds, budget{}, ""},
		}
	}
	const what = "CL.THROTTLE, 16 at a time, against "
	return []row{
		{what + "bare gnet", gnet, ours, nanoseconds, budget{most: 1.45}, ""},
		{what + "bare gnet, the time", gnet, ours, nanoseconds, budget{most: 500, absolute: true}, ""},
		{what + "Redis, INCR", incr, ours, nanoseconds, budget{most: 1}, ""},
		{what + "Redis, GCRA in Lua", lua, ours, nanoseconds, budget{most: 1 / 6.5}, ""},
	}
}

// respServers starts the four.
func (b *bench) respServers(ctx context.Context) ([]respServer, error) {
	servers := []respServer{
		{nil, question{throttle.words, ":1\r\n"}, 2_000_000},
		{nil, increment, 1_000_000},
		{nil, throttle, 200_000},
		{nil, throttle, 1_000_000},
	}
	for i, command := range []func(string) []string{b.role("gnet"), b.redis, b.redis, b.gatehouseRESP} {
		s, err := b.start(ctx, command)
		if err != nil {
			return nil, err
		}
		servers[i].server = s
	}
	// By EVALSHA, as clients do: EVAL would send the text of the script each time.
	lua := &servers[2]
	load := question{[]string{"SCRIPT", "LOAD", throttleScript}, "$40\r\n"}
	answer, err := lua.once(ctx, load)
	if err != nil {
		return nil, err
	}
	// A SHA-1 in hexadecimal has 40 digits.
	digest := answer[len(load.answer):][:40]
	lua.ask.words = append([]string{"EVALSHA", digest, "1"}, throttle.words[1:]...)
	for _, s := range servers {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
		if _, err := s.repeat(ctx, s.speed/10, 16); err != nil { // to warm up
			return nil, err
		}
	}
	return servers, nil
}

// redis is a command that runs Redis. It writes nothing.
func (b *bench) redis(address string) []string {
	_, port, _ := strings.Cut(address, ":")
	return []string{
		"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", b.dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning",
	}
}

// gatehouseRESP is a command that runs the server built from here, with no other door.
func (b *bench) gatehouseRESP(address string) []string {
	return []string{
		b.ours, "serve", "--log-level", "error", "--http", "", "--grpc", "", "--resp", address, manyPerAddress,
	}
}

// check makes sure that the answer is the one wanted.
func (s respServer) check(ctx context.Context) error {
	_, err := s.once(ctx, s.ask)
	return err
}

// once asks one question and returns the answer as it comes.
func (s respServer) once(ctx context.Context, ask question) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // all was read, or there is an error already
	// A server that never answers would hang the bench for good: Read has no end of its own.
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, inRESP(ask.words)); err != nil {
		return "", err
	}
	buffer := make([]byte, 4096)
	// One read is enough: the answers are short and come in one segment on the loopback interface.
	n, err := conn.Read(buffer)
	if err != nil {
		return "", fmt.Errorf("answer of %s to %s: %w", s.address, ask.words[0], err)
	}
	answer := string(buffer[:n])
	if !strings.HasPrefix(answer, ask.answer) {
		return "", fmt.Errorf("answer of %s to %s is %q, want %q", s.address, ask.words[0], answer, ask.answer)
	}
	return answer, nil
}

// inRESP is a command as RESP has it.
func inRESP(words []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text.String()
}

// repeat returns the server's nanoseconds of CPU for one of n commands.
func (s respServer) repeat(ctx context.Context, n, pipeline int) (float64, error) {
	_, core, err := cores()
	if err != nil {
		return 0, err
	}
	_, port, _ := strings.Cut(s.address, ":")
	command := []string{
		"redis-benchmark", "-p", port, "-c", "50", "-q",
		"-n", strconv.Itoa(n), "-P", strconv.Itoa(pipeline),
	}
	used, err := s.cpuWhile(func() error {
		benchmark := pinned(ctx, core, append(command, s.ask.words...)...)
		benchmark.Stderr = nil // it warns that there is no Redis's CONFIG
		report, err := benchmark.Output()
		if err == nil && !strings.Contains(string(report), "requests per second") {
			err = errors.New("no result in its report:\n" + string(report))
		}
		if err != nil {
			return fmt.Errorf("redis-benchmark: %w", err)
		}
		return nil
	})
	return float64(used) / float64(n), err
}
