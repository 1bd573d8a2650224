package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

const (
	callerProcesses  = 10
	callerGoroutines = 20
)

// callers are clients in processes of their own.
type callers struct {
	t     *testing.T
	party *party
	procs []*callersAt

	mu      sync.Mutex
	calls   []callRecord
	reports []reportRecord
	steps   []stepRecord
}

// callersAt is one process of clients, as the test sees it.
type callersAt struct {
	process *exec.Cmd
	input   io.WriteCloser
	told    chan struct{} // closed when all it has said is there
	killed  bool
}

// startCallers starts the clients of some servers. They do nothing before they are told what.
func startCallers(t *testing.T, traced bool, servers ...*server) *callers {
	t.Helper()
	c := &callers{t: t, party: newParty(t)}
	setup := callerSetup{Goroutines: callerGoroutines, Party: c.party.address, Traced: traced}
	for _, s := range servers {
		setup.Servers = append(setup.Servers, s.address)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for setup.Process = range callerProcesses {
		text, err := json.Marshal(setup)
		if err != nil {
			t.Fatal(err)
		}
		p := &callersAt{process: exec.CommandContext(t.Context(), self), told: make(chan struct{})}
		p.process.Env = append(os.Environ(), callersVariable+"="+string(text), "GOMAXPROCS=1")
		p.process.Stderr = os.Stderr
		if p.input, err = p.process.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		output, err := p.process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.process.Start(); err != nil {
			t.Fatal(err)
		}
		c.procs = append(c.procs, p)
		go c.follow(p, output)
	}
	t.Cleanup(c.end)
	return c
}

// follow notes what a process tells.
func (c *callers) follow(p *callersAt, output io.Reader) {
	defer close(p.told)
	for lines := json.NewDecoder(output); ; {
		var line callerLine
		if err := lines.Decode(&line); err != nil {
			return // it has ended
		}
		c.mu.Lock()
		switch {
		case line.Call != nil:
			c.calls = append(c.calls, *line.Call)
		case line.Report != nil:
			c.reports = append(c.reports, *line.Report)
		case line.Step != nil:
			c.steps = append(c.steps, *line.Step)
		case line.Fault != "":
			c.t.Errorf("process %d: %s", p.process.Process.Pid, line.Fault)
		}
		c.mu.Unlock()
	}
}

// do has all clients do something else from now on.
func (c *callers) do(part *callerPart) {
	c.t.Helper()
	for _, p := range c.procs {
		c.tell(p, part)
	}
}

// tell is do for one process.
func (c *callers) tell(p *callersAt, part *callerPart) {
	c.t.Helper()
	text, err := json.Marshal(part)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := p.input.Write(append(text, '\n')); err != nil {
		c.t.Fatalf("telling clients what to do: %v", err)
	}
}

// end ends all clients, and returns when all they have told is known.
func (c *callers) end() {
	for _, p := range c.procs {
		_ = p.input.Close()
	}
	for _, p := range c.procs {
		<-p.told
		if err := p.process.Wait(); err != nil && !p.killed {
			c.t.Errorf("clients ended with %v", err)
		}
	}
	c.procs = nil
}

// kill ends some of the processes at once, wherever their clients are.
func (c *callers) kill(some []*callersAt) {
	for _, p := range some {
		p.killed = true
		_ = p.process.Process.Kill() // it runs
	}
	for _, p := range some {
		<-p.told
	}
}

// callWindow is the interval of the third party's limits.
const callWindow = 400 * time.Millisecond

// Its limits, and mean costs of a call with which the one or the other is met.
const (
	callRequests = 50
	callTokens   = 20_000
	lightCall    = 100
	heavyCall    = 500
)

// grantLength is how long a grant lasts: far longer than a call.
const grantLength = 10 * time.Minute

// callPart is calls of one account by both limits.
func callPart(account, kind string, mean int64, guard time.Duration) *callerPart {
	tokens := fmt.Sprintf(`{"slidinglog":"%s-tokens","size":%d,"interval":%d,"cost":%%d}`, account,
		callTokens, (callWindow + guard).Milliseconds())
	if kind == "pace" {
		tokens = fmt.Sprintf(`{"pace":"%s-tokens","size":%d,"interval":%d,"guard":%d,"cost":%%d}`, account,
			callTokens, callWindow.Milliseconds(), guard.Milliseconds())
	}
	return &callerPart{
		Account: account, Tokens: kind, Mean: mean,
		Options: fmt.Sprintf(`"expires":%d`, grantLength.Milliseconds()),
		Want: fmt.Sprintf(`{"pace":%q,"size":%d,"interval":%d,"guard":%d},`, account, callRequests,
			callWindow.Milliseconds(), guard.Milliseconds()) + tokens,
	}
}

// Real clients in ten processes keep the limits of a third party that counts strictly, and use them; one 429
// stops all of them.
func TestCallersOfAThirdParty(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-connections-per-address", "4000")
	playCallers(t, "slidinglog", 2, s)
}

// The same on a shared store: each client goes from one server to the next, so that one grants, another
// settles and a third releases.
func TestCallersOnRedis(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skip("make callers does it: it takes long")
	}
	for _, kind := range []string{"slidinglog", "pace"} {
		t.Run(kind, func(t *testing.T) {
			servers := startShared(t, redistest.Start(t), 3, patient...)
			playCallers(t, kind, 10, servers...)
		})
	}
}

// longVariable is set for those that are too long for every commit.
const longVariable = "TESTED_LONG"

// playCallers plays all parts, with so many windows in each.
func playCallers(t *testing.T, kind string, windows int, servers ...*server) {
	t.Helper()
	c := startCallers(t, false, servers...)
	name := fresh(t)
	// A first part says how late clients are on this machine.
	first := callPart(name+"-first", kind, lightCall, 0)
	c.do(first)
	c.party.serves(t, first.Account, windows/2*callRequests+1)
	j := &callJudge{t: t, party: c.party, guard: c.greatestLateness(first.Account)}
	mark := func() { j.marks = append(j.marks, c.markNow(servers)) }

	// In the second, tokens are short. Clients that still wait for the first come when they are through.
	heavy := callPart(name+"-heavy", kind, heavyCall, j.guard)
	c.do(heavy)
	c.party.serves(t, heavy.Account, callTokens/heavyCall)
	mark()
	c.party.serves(t, heavy.Account, (windows*callTokens+callTokens/2)/heavyCall)
	mark()

	// In the third requests are, and the third party refuses for a while.
	light := callPart(name+"-light", kind, lightCall, j.guard)
	c.do(light)
	c.party.serves(t, light.Account, 2*callRequests)
	mark()
	c.party.serves(t, light.Account, windows*callRequests+1)
	mark()
	c.party.refuse(light.Account, time.Second)
	c.party.serves(t, light.Account, callRequests*3/2)
	mark()
	c.end()
	j.reports = c.reports
	j.judge(c.calls, heavy.Account)
	j.judgeTokenRate()
	j.judgeTotal(servers[0].debtOf(t, kind+"/"+heavy.Account+"-tokens"))
	j.judge(c.calls, light.Account)
	j.judgeRequestRate()
	j.judgePause()
	j.judgeRamp()
}

// debtOf is how much of what a limiter was charged lies ahead.
func (s *server) debtOf(t *testing.T, limiter string) int64 {
	t.Helper()
	if s.stats(t, limiter)["debt"] == nil {
		return 0 // it is left out
	}
	return int64(s.stat(t, limiter, "debt"))
}

// A callMark is an instant, and how long the servers and the others had waited for a processor until then.
type callMark struct {
	at, servers, test time.Duration
	clients           []time.Duration // by process
}

func (c *callers) markNow(servers []*server) callMark {
	m := callMark{at: machineTime(), test: waitedForProcessor(os.Getpid())}
	for _, s := range servers {
		m.servers += waitedForProcessor(s.process.Pid)
	}
	for _, p := range c.procs {
		m.clients = append(m.clients, waitedForProcessor(p.process.Process.Pid))
	}
	return m
}

// others is how long the clients of one process and the third party have waited since another mark, at most.
func (m *callMark) others(since *callMark) (longest time.Duration) {
	for i := range m.clients {
		longest = max(longest, m.clients[i]-since.clients[i])
	}
	return longest + m.test - since.test
}

// waitedForProcessor is how long the threads of a process were ready and did not run.
func waitedForProcessor(pid int) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited time.Duration
		if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &ran, &waited); err == nil {
			sum += waited
		}
	}
	return sum
}

// greatestLateness is how late the latest client has called after its grant, in whole milliseconds.
func (c *callers) greatestLateness(account string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	latest := time.Duration(0)
	for _, one := range c.party.judged(c.calls, account) {
		latest = max(latest, one.lateness())
	}
	return (latest + time.Millisecond - 1).Truncate(time.Millisecond)
}
