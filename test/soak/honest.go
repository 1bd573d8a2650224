//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// What honest clients use. The limiter's window is far longer than a request takes.
const (
	holds        = 100 // of locks, and as many of semaphores
	limitSize    = 50
	limitWindow  = time.Second
	callers      = 4
	betweenCalls = 8 * time.Millisecond
	callPatience = 20 * time.Second
)

// The honestClients is the honest clients and what they were told.
type honestClients struct {
	server *attackedServer
	client *http.Client
	start  time.Time

	mu        sync.Mutex
	calm, hot []time.Duration // latencies before the attack and during it
	attacked  bool
	calls     map[gatehouse.Key][]*oracle.Call
	grants    []oracle.Span  // of the limiter
	unserved  map[string]int // answers that were no decision, and missing ones
	lost      []string       // what is gone that was granted
}

func newHonestClients(s *attackedServer) *honestClients {
	return &honestClients{
		server: s, start: time.Now(), unserved: make(map[string]int),
		calls:  make(map[gatehouse.Key][]*oracle.Call),
		client: &http.Client{Timeout: callPatience, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
	}
}

// beginAttack has latencies counted as those under attack from now on.
func (h *honestClients) beginAttack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attacked = true
}

// An answered is what a request got. The status is 0 when there is no answer.
type answered struct {
	status int
	text   string
	fence  uint64 // the fencing token, if there is one
}

// getPath makes a request.
func (h *honestClients) getPath(ctx context.Context, path string) (a answered) {
	url := "http://" + h.server.http + "/v1/" + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return a
	}
	response, err := h.client.Do(request)
	if err != nil {
		return a
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // all was read, or there is an error
	if err != nil {
		return a
	}
	a.fence, _ = strconv.ParseUint(response.Header.Get("Gatehouse-Fence"), 10, 64)
	a.status, a.text = response.StatusCode, strings.TrimSpace(string(text))
	return a
}

// holdKey returns the key of a hold.
func holdKey(i int) gatehouse.Key {
	key := gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprintf("soak-%d", i)}
	if i >= holds {
		key.Kind = gatehouse.Semaphore
	}
	return key
}

// counterKey is that of the counter that all count.
func counterKey() gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Counter, Name: "soak"} }

// outcomes are those of the answers that are decisions. Other errors say that nothing was done.
var outcomes = map[int]gatehouse.Outcome{
	http.StatusOK: gatehouse.Granted, http.StatusNoContent: gatehouse.Granted,
	http.StatusConflict: gatehouse.Conflict, http.StatusNotFound: gatehouse.Missing,
}

// recordCall gives a command, as the path says it, and records it for the oracle.
func (h *honestClients) recordCall(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command, query string,
) answered {
	call := &oracle.Call{Client: "honest", Key: key, Command: cmd, Begin: time.Since(h.start)}
	a := h.getPath(ctx, key.String()+"/"+cmd.Op.String()+query)
	call.End = time.Since(h.start)
	outcome, decided := outcomes[a.status]
	if a.status != 0 && !decided {
		return a
	}
	value, _ := strconv.ParseInt(a.text, 10, 64) // only of a counter
	call.Answered = decided
	call.Decision = gatehouse.Decision{Outcome: outcome, Fence: a.fence, Value: value, Message: a.text}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[key] = append(h.calls[key], call)
	return a
}

// renewHonest renews a hold.
func (h *honestClients) renewHonest(ctx context.Context, i int) answered {
	cmd := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "honest"}
	return h.recordCall(ctx, holdKey(i), cmd, "?key=honest&expires=0")
}

// acquireHolds takes the holds, which must all be granted.
func (h *honestClients) acquireHolds(ctx context.Context) error {
	for i := range 2 * holds {
		// Without an end: a hold that is gone later was lost and has not expired.
		cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "honest"}
		a := h.recordCall(ctx, holdKey(i), cmd, "?key=honest&expires=0&maxwait=0")
		if a.status != http.StatusOK {
			return fmt.Errorf("acquiring %s: %d %s", holdKey(i), a.status, a.text)
		}
	}
	return nil
}

// callUntil lets clients work until ctx ends.
func (h *honestClients) callUntil(ctx context.Context) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { h.callHTTP(ctx) })
	}
	all.Go(func() { h.callRESP(ctx) })
	all.Wait()
}

// callHTTP makes one request after the other over HTTP.
func (h *honestClients) callHTTP(ctx context.Context) {
	pace := time.NewTicker(betweenCalls)
	defer pace.Stop()
	for awaitTick(ctx, pace) {
		// begin is taken before the request is made, since a grant may come any time after it.
		begin := time.Now()
		switch rand.IntN(4) {
		case 0:
			h.countOnce(ctx, begin)
		case 1:
			h.askLimiter(ctx, begin)
		case 2:
			h.lockNewName(ctx, begin)
		default:
			h.renewHold(ctx, begin, rand.IntN(2*holds))
		}
	}
}

// awaitTick waits for the next tick. It reports false when ctx has ended.
func awaitTick(ctx context.Context, pace *time.Ticker) bool {
	select {
	case <-pace.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (h *honestClients) countOnce(ctx context.Context, begin time.Time) {
	// Not cut short by the end of the run: its outcome would be unknown for no fault of the server.
	cmd := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	a := h.recordCall(context.WithoutCancel(ctx), counterKey(), cmd, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recordLatency(begin, a.status, http.StatusOK)
}

func (h *honestClients) askLimiter(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("slidinglog/soak/acquire?size=%d&interval=%d&maxwait=0",
		limitSize, limitWindow.Milliseconds())
	status := h.getPath(context.WithoutCancel(ctx), path).status
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusNoContent || status == http.StatusOK {
		h.recordGrant(begin)
	}
	// A refusal is a decision like a grant, so its latency counts too.
	h.recordLatency(begin, status, http.StatusOK, http.StatusNoContent, http.StatusRequestTimeout)
}

// recordGrant notes what the limiter let through. The caller has locked.
func (h *honestClients) recordGrant(begin time.Time) {
	h.grants = append(h.grants, oracle.Span{From: begin.Sub(h.start), To: time.Since(h.start), N: 1})
}

// lockNewName takes a lock of a new name. The server must have room for it, no matter how many names
// attackers use.
func (h *honestClients) lockNewName(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("lock/soak-new-%d/acquire?expires=100&maxwait=0", rand.Uint64())
	status := h.getPath(context.WithoutCancel(ctx), path).status
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recordLatency(begin, status, http.StatusOK)
}

func (h *honestClients) renewHold(ctx context.Context, begin time.Time, i int) {
	status := h.renewHonest(context.WithoutCancel(ctx), i).status
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recordLatency(begin, status, http.StatusOK, http.StatusNoContent, http.StatusConflict,
		http.StatusNotFound)
}

// recordLatency notes how long an answer took, or that it was none. The caller has locked.
func (h *honestClients) recordLatency(begin time.Time, status int, wanted ...int) {
	// A refusal for lack of room is fast and would flatter the latency, so it is counted apart.
	switch took := time.Since(begin); {
	case !slices.Contains(wanted, status):
		h.unserved["HTTP "+strconv.Itoa(status)]++
	case h.attacked:
		h.hot = append(h.hot, took)
	default:
		h.calm = append(h.calm, took)
	}
}

// callRESP asks the limiter that HTTP asks, over one connection at a time.
func (h *honestClients) callRESP(ctx context.Context) {
	pace := time.NewTicker(betweenCalls)
	defer pace.Stop()
	var conn net.Conn
	var answers *bufio.Reader
	command := encodeRESP("GH.ACQUIRE", "slidinglog/soak", "SIZE", strconv.Itoa(limitSize),
		"INTERVAL", strconv.FormatInt(limitWindow.Milliseconds(), 10), "MAXWAIT", "0")
	for awaitTick(ctx, pace) {
		// A connection that failed is replaced: an attack may have taken it.
		if conn == nil {
			var err error
			conn, err = net.DialTimeout("tcp", h.server.resp, callPatience)
			if err != nil {
				h.recordFailure("RESP connection")
				continue
			}
			answers = bufio.NewReader(conn)
		}
		begin := time.Now()
		_ = conn.SetDeadline(begin.Add(callPatience))
		_, err := io.WriteString(conn, command)
		line := ""
		if err == nil {
			line, err = answers.ReadString('\n')
		}
		if err != nil {
			// A late answer would be taken for that of the next command.
			_ = conn.Close()
			conn = nil
			h.recordFailure("RESP answer")
			continue
		}
		h.recordRESP(begin, line)
	}
	if conn != nil {
		_ = conn.Close()
	}
}

func (h *honestClients) recordFailure(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unserved[what]++
}

// recordRESP notes an answer over RESP.
func (h *honestClients) recordRESP(begin time.Time, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := http.StatusOK
	// What is neither of these is a refusal, which is a decision as well.
	switch {
	case strings.HasPrefix(line, "+OK"):
		h.recordGrant(begin)
	case strings.HasPrefix(line, "-"):
		h.unserved["RESP "+strings.Fields(line)[0]]++
		return
	}
	h.recordLatency(begin, status, http.StatusOK)
}

// encodeRESP is a command as RESP has it.
func encodeRESP(words ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text.String()
}

// checkGranted asks for all that was granted, after the attack, and returns what the counter has come to.
func (h *honestClients) checkGranted(ctx context.Context) (counted int64, err error) {
	for i := range 2 * holds {
		a := h.renewHonest(ctx, i)
		// The attack is over, so 503 is no excuse now.
		if _, decided := outcomes[a.status]; !decided {
			h.lost = append(h.lost, fmt.Sprintf("%s: %d %s", holdKey(i), a.status, a.text))
		}
	}
	a := h.recordCall(ctx, counterKey(), gatehouse.Command{Op: gatehouse.OpValue}, "")
	counted, err = strconv.ParseInt(a.text, 10, 64)
	if a.status != http.StatusOK || err != nil {
		return 0, fmt.Errorf("reading the counter: %d %s", a.status, a.text)
	}
	return counted, nil
}

// judgeCalls notes what is gone, by the oracle, that was granted.
func (h *honestClients) judgeCalls() {
	for key, calls := range h.calls {
		judge := oracle.Judge{Report: func(p oracle.Promise, _ time.Duration, text string) {
			h.lost = append(h.lost, fmt.Sprintf("%s: %s: %s", key, p, text))
		}}
		judge.Calls(calls)
	}
}
