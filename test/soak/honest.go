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

// A requestSpan is when a request was made and answered.
type requestSpan struct{ begin, end time.Time }

// The honestClients is the honest clients and what they were told.
type honestClients struct {
	server *attackedServer
	client *http.Client

	mu        sync.Mutex
	calm, hot []time.Duration // latencies before the attack and during it
	attacked  bool
	counted   int64 // counts that were answered
	unsure    int64 // counts whose answers did not come
	grants    []requestSpan
	unserved  map[string]int // answers that were no decision, and missing ones
	lost      []string       // what is gone that was granted
}

func newHonestClients(s *attackedServer) *honestClients {
	return &honestClients{
		server: s, unserved: make(map[string]int),
		client: &http.Client{Timeout: callPatience, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
	}
}

// beginAttack has latencies counted as those under attack from now on.
func (h *honestClients) beginAttack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attacked = true
}

// getPath makes a request. The status is 0 when there is no answer.
func (h *honestClients) getPath(ctx context.Context, path string) (status int, body string) {
	url := "http://" + h.server.http + "/v1/" + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, ""
	}
	response, err := h.client.Do(request)
	if err != nil {
		return 0, ""
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // all was read, or there is an error
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(text)
}

// holdPath returns the path of a hold.
func holdPath(i int) string {
	if i < holds {
		return fmt.Sprintf("lock/soak-%d", i)
	}
	return fmt.Sprintf("semaphore/soak-%d", i)
}

// acquireHolds takes the holds, which must all be granted.
func (h *honestClients) acquireHolds(ctx context.Context) error {
	for i := range 2 * holds {
		// Without an end: a hold that is gone later was lost and has not expired.
		status, text := h.getPath(ctx, holdPath(i)+"/acquire?key=honest&expires=0&maxwait=0")
		if status != http.StatusOK {
			return fmt.Errorf("acquiring %s: %d %s", holdPath(i), status, text)
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
	status, _ := h.getPath(context.WithoutCancel(ctx), "counter/soak/count")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch status {
	case http.StatusOK:
		h.counted++
	// Other errors say that nothing was counted.
	case 0:
		h.unsure++
	}
	h.recordLatency(begin, status, http.StatusOK)
}

func (h *honestClients) askLimiter(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("slidinglog/soak/acquire?size=%d&interval=%d&maxwait=0",
		limitSize, limitWindow.Milliseconds())
	status, _ := h.getPath(context.WithoutCancel(ctx), path)
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusNoContent || status == http.StatusOK {
		h.grants = append(h.grants, requestSpan{begin, time.Now()})
	}
	// A refusal is a decision like a grant, so its latency counts too.
	h.recordLatency(begin, status, http.StatusOK, http.StatusNoContent, http.StatusRequestTimeout)
}

// lockNewName takes a lock of a new name. The server must have room for it, no matter how many names
// attackers use.
func (h *honestClients) lockNewName(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("lock/soak-new-%d/acquire?expires=100&maxwait=0", rand.Uint64())
	status, _ := h.getPath(context.WithoutCancel(ctx), path)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recordLatency(begin, status, http.StatusOK)
}

func (h *honestClients) renewHold(ctx context.Context, begin time.Time, i int) {
	status, text := h.getPath(context.WithoutCancel(ctx), holdPath(i)+"/renew?key=honest&expires=0")
	h.mu.Lock()
	defer h.mu.Unlock()
	// Only these say that the hold is gone. A server that is full answers 503, and that is no loss.
	if status == http.StatusConflict || status == http.StatusNotFound {
		h.lost = append(h.lost, holdPath(i)+": "+strings.TrimSpace(text))
	}
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
		h.grants = append(h.grants, requestSpan{begin, time.Now()})
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

// checkGranted asks for all that was granted, after the attack.
func (h *honestClients) checkGranted(ctx context.Context) error {
	for i := range 2 * holds {
		// The attack is over, so 503 is no excuse now.
		status, text := h.getPath(ctx, holdPath(i)+"/renew?key=honest&expires=0")
		if status != http.StatusOK && status != http.StatusNoContent {
			h.lost = append(h.lost, fmt.Sprintf("%s: %d %s", holdPath(i), status, strings.TrimSpace(text)))
		}
	}
	status, text := h.getPath(ctx, "counter/soak/value")
	value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if status != http.StatusOK || err != nil {
		return fmt.Errorf("reading the counter: %d %s", status, text)
	}
	// Counts without an answer may be in it or not.
	if value < h.counted || value > h.counted+h.unsure {
		h.lost = append(h.lost, fmt.Sprintf("the counter is at %d, want %d to %d",
			value, h.counted, h.counted+h.unsure))
	}
	return nil
}

// mostInWindow is the most grants that surely fall into one window of the limiter. The time of a grant lies
// between a request and its answer.
func mostInWindow(grants []requestSpan) int {
	most := 0
	slices.SortFunc(grants, func(a, b requestSpan) int { return a.begin.Compare(b.begin) })
	// Each window that begins with a grant. A grant that is answered after the end may have been given after
	// it.
	for i := range grants {
		until, n := grants[i].begin.Add(limitWindow), 0
		for _, g := range grants[i:] {
			if !g.begin.Before(until) {
				break
			}
			if g.end.Before(until) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
