package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// This file is one process of clients: this test's own program, run again. Its clients take a grant, call a
// third party, report what that answers, and say what the call really cost. They speak plain HTTP.

// callersVariable makes this program a process of clients; its value says which.
const callersVariable = "TESTED_CALLERS"

// A callerSetup says which clients a process has.
type callerSetup struct {
	Process    int
	Goroutines int
	Servers    []string // each client goes from one to the next with every request
	Party      string
	Traced     bool // tell each step, and make a long call, for who is killed between two
}

// A callerPart is what the clients do from now on. It comes on standard input, one to a line; the end of that
// ends the clients.
type callerPart struct {
	Account string // at the third party, and the name of the limiter of requests
	Want    string // the members of a grant, with its estimate to be put in
	Tokens  string // the kind of the limiter of tokens, whose name is that with -tokens behind
	Mean    int64  // of the true costs
	Options string // of a grant
}

// What a process tells, one to a line on its standard output.
type callerLine struct {
	Call   *callRecord   `json:",omitempty"`
	Report *reportRecord `json:",omitempty"`
	Step   *stepRecord   `json:",omitempty"`
	Fault  string        `json:",omitempty"`
}

// A callRecord is one grant, with the call to the third party that it was for. Its instants are those of a
// clock that all processes of the machine share.
type callRecord struct {
	ID, Account    string
	Estimate, Cost int64
	Asked          time.Duration // before the grant was asked for
	Answered       time.Duration // when it was there
	SettleSent     time.Duration
	SettleReceived time.Duration
	ExpiresIn      time.Duration // what the settle said
	Status         int           // of the third party
}

// A reportRecord is a report of a 429.
type reportRecord struct {
	Account            string
	Sent, Received     time.Duration
	PausedFor, RampFor time.Duration // as it was answered
}

// A stepRecord is how far a grant has come. Each step is told before it is begun, and when it is done.
type stepRecord struct {
	ID     string
	Step   string // "grant", "settle" or "release"
	Done   bool
	Figure int64 // the estimate, or the cost
}

// machineTime is the time of a clock that all processes of this machine share and nobody sets.
func machineTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(now.Nano())
}

// A callerProcess is the clients of this process.
type callerProcess struct {
	setup callerSetup
	http  *http.Client
	part  atomic.Pointer[callerPart]
	turn  atomic.Uint64 // of the servers

	mu sync.Mutex // of standard output
}

// runCallers is what this program is instead of tests.
func runCallers(setup string) int {
	p := &callerProcess{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if err := json.Unmarshal([]byte(setup), &p.setup); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		part := new(callerPart)
		if err := json.Unmarshal(lines.Bytes(), part); err != nil {
			return fail(err)
		}
		first := p.part.Swap(part) == nil
		for i := range p.setup.Goroutines {
			if first {
				all.Go(func() { p.callOn(ctx, i) })
			}
		}
	}
	// Who waits for a grant leaves; who has one goes on to its end.
	cancel()
	all.Wait()
	return 0
}

// callOn calls one time after the other.
func (p *callerProcess) callOn(ctx context.Context, client int) {
	for n := 0; ctx.Err() == nil; n++ {
		part := p.part.Load()
		c := &call{callerProcess: p, part: part, late: n%2 == 1}
		c.record.ID = fmt.Sprintf("%s-%d-%d-%d", part.Account, p.setup.Process, client, n)
		c.record.Account = part.Account
		c.record.Cost = 1 + rand.Int64N(2*part.Mean-1)
		// The estimate is up to twice the cost, or half of it.
		c.record.Estimate = max(1, int64(float64(c.record.Cost)*[...]float64{
			0.5 + 0.5*rand.Float64(), 1 + rand.Float64(),
		}[n%2]))
		if err := c.make(ctx); err != nil && (ctx.Err() == nil || c.record.Answered > 0) {
			p.tell(callerLine{Fault: fmt.Sprintf("%s: %v", c.record.ID, err)})
		}
	}
}

// A call is one grant and what it is for.
type call struct {
	*callerProcess
	part   *callerPart
	record callRecord
	late   bool // its long call is behind the settle
}

// make takes a grant, calls, reports, settles and releases.
func (c *call) make(ctx context.Context) error {
	r := &c.record
	want := fmt.Sprintf(c.part.Want, r.Estimate)
	c.tellStep("grant", false, r.Estimate)
	r.Asked = machineTime()
	body := fmt.Sprintf(`{"id":%q,%s,"want":[%s]}`, r.ID, c.part.Options, want)
	if _, err := c.ask(ctx, "/v1/grants", body); err != nil {
		return err
	}
	r.Answered = machineTime()
	c.tellStep("grant", true, r.Estimate)
	// From here on it is carried through, also when the clients are to end.
	ctx = context.WithoutCancel(ctx)
	pause, err := c.callParty(ctx, r.ID, !c.late)
	if err != nil {
		return err
	}
	if r.Status == http.StatusTooManyRequests {
		r.Cost = 0
		if err := c.report(ctx, pause); err != nil {
			return err
		}
	}
	settled := fmt.Sprintf(`{"%s/%s-tokens":%d}`, c.part.Tokens, r.Account, r.Cost)
	c.tellStep("settle", false, r.Cost)
	r.SettleSent = machineTime()
	answer, err := c.ask(ctx, "/v1/grants/"+r.ID+"/settle", settled)
	if err != nil {
		return err
	}
	r.SettleReceived, r.ExpiresIn = machineTime(), inMillis(answer["expires_in"])
	c.tellStep("settle", true, r.Cost)
	if c.setup.Traced {
		if _, err := c.callParty(ctx, r.ID+"-more", c.late); err != nil {
			return err
		}
	}
	c.tellStep("release", false, r.Cost)
	if _, err := c.ask(ctx, "/v1/grants/"+r.ID+"/release", settled); err != nil {
		return err
	}
	c.tellStep("release", true, r.Cost)
	c.tell(callerLine{Call: r})
	return nil
}

// callParty calls the third party, and returns what its Retry-After says.
func (c *call) callParty(ctx context.Context, id string, long bool) (
	retryAfter time.Duration, err error,
) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.setup.Party, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set(partyAccount, c.record.Account)
	request.Header.Set(partyCall, id)
	if long {
		request.Header.Set(partyLong, "true")
	}
	request.Header.Set(partyTokens, strconv.FormatInt(c.record.Cost, 10))
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body) // or the connection would not be used again
	c.record.Status = answer.StatusCode
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // 0 if there is none
	return time.Duration(seconds) * time.Second, err
}

// report tells the limiter of requests of a 429.
func (c *call) report(ctx context.Context, pause time.Duration) error {
	r := reportRecord{Account: c.record.Account, Sent: machineTime()}
	answer, err := c.ask(ctx, fmt.Sprintf("/v1/pace/%s/feedback?status=429&retry-after=%d&details=true",
		r.Account, pause.Milliseconds()), "")
	if err != nil {
		return err
	}
	r.Received = machineTime()
	r.PausedFor, r.RampFor = inMillis(answer["paused_for"]), inMillis(answer["ramp_for"])
	c.tell(callerLine{Report: &r})
	return nil
}

func inMillis(number any) time.Duration {
	millis, _ := number.(float64) // absent is 0
	return time.Duration(millis) * time.Millisecond
}

// ask makes a POST to the next server, which must be answered with 200.
func (c *call) ask(ctx context.Context, path, body string) (answer map[string]any, err error) {
	server := c.setup.Servers[c.turn.Add(1)%uint64(len(c.setup.Servers))]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s = %s %s, %w, want 200", path, body, response.Status, text, err)
	}
	err = json.Unmarshal(text, &answer)
	return answer, err
}

func (c *call) tellStep(step string, done bool, figure int64) {
	if c.setup.Traced {
		c.tell(callerLine{Step: &stepRecord{c.record.ID, step, done, figure}})
	}
}

// tell writes a line. What is written is told, also if the process is killed right behind.
func (p *callerProcess) tell(line callerLine) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // it is all numbers and texts
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n')) // without whom it is told there is nothing to do
}
