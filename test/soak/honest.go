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

// A span is when a request was made and answered.
type span struct{ begin, end time.Time }

// A crowd is the honest clients and what they were told.
type crowd struct {
	server *server
	client *http.Client

	mu        sync.Mutex
	calm, hot []time.Duration // latencies before the attack and during it
	attacked  bool
	counted   int64 // counts that were answered
	unsure    int64 // counts whose answers did not come
	grants    []span
	unserved  map[string]int // answers that were no decision, and missing ones
	lost      []string       // what is gone that was granted
}

func newCrowd(s *server) *crowd {
	return &crowd{
		server: s, unserved: make(map[string]int),
		client: &http.Client{Timeout: callPatience, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
	}
}

// get makes a request. The status is 0 when there is no answer.
func (h *crowd) get(ctx context.Context, path string) (status int, body string) {
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

// hold returns the path of a hold.
func hold(i int) string {
	if i < holds {
		return fmt.Sprintf("lock/soak-%d", i)
	}
	return fmt.Sprintf("semaphore/soak-%d", i)
}

// begin takes the holds, which must all be granted.
func (h *crowd) begin(ctx context.Context) error {
	for i := range 2 * holds {
		status, text := h.get(ctx, hold(i)+"/acquire?key=honest&expires=0&maxwait=0")
		if status != http.StatusOK {
			return fmt.Errorf("acquiring %s: %d %s", hold(i), status, text)
		}
	}
	return nil
}

// work lets clients work until ctx ends.
func (h *crowd) work(ctx context.Context) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { h.call(ctx) })
	}
	all.Go(func() { h.callRESP(ctx) })
	all.Wait()
}

// call makes one request after the other over HTTP.
func (h *crowd) call(ctx context.Context) {
	pace := time.NewTicker(betweenCalls)
	defer pace.Stop()
	for wait(ctx, pace) {
		begin := time.Now()
		switch rand.IntN(4) {
		case 0:
			h.count(ctx, begin)
		case 1:
			h.limit(ctx, begin)
		case 2:
			h.lock(ctx, begin)
		default:
			h.renew(ctx, begin, rand.IntN(2*holds))
		}
	}
}

// wait waits for the next tick. It reports false when ctx has ended.
func wait(ctx context.Context, pace *time.Ticker) bool {
	select {
	case <-pace.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (h *crowd) count(ctx context.Context, begin time.Time) {
	status, _ := h.get(context.WithoutCancel(ctx), "counter/soak/count")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch status {
	case http.StatusOK:
		h.counted++
	case 0:
		h.unsure++
	}
	h.answered(begin, status, http.StatusOK)
}

func (h *crowd) limit(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("slidinglog/soak/acquire?size=%d&interval=%d&maxwait=0",
		limitSize, limitWindow.Milliseconds())
	status, _ := h.get(context.WithoutCancel(ctx), path)
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusNoContent || status == http.StatusOK {
		h.grants = append(h.grants, span{begin, time.Now()})
	}
	h.answered(begin, status, http.StatusOK, http.StatusNoContent, http.StatusRequestTimeout)
}

// lock takes a lock that nobody had before. There is room for it however many names others use.
func (h *crowd) lock(ctx context.Context, begin time.Time) {
	path := fmt.Sprintf("lock/soak-new-%d/acquire?expires=100&maxwait=0", rand.Uint64())
	status, _ := h.get(context.WithoutCancel(ctx), path)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered(begin, status, http.StatusOK)
}

func (h *crowd) renew(ctx context.Context, begin time.Time, i int) {
	status, text := h.get(context.WithoutCancel(ctx), hold(i)+"/renew?key=honest&expires=0")
	h.mu.Lock()
	defer h.mu.Unlock()
	if status == http.StatusConflict || status == http.StatusNotFound {
		h.lost = append(h.lost, hold(i)+": "+strings.TrimSpace(text))
	}
	h.answered(begin, status, http.StatusOK, http.StatusNoContent, http.StatusConflict, http.StatusNotFound)
}

// answered notes how long an answer took, or that it was none. The caller has locked.
func (h *crowd) answered(begin time.Time, status int, wanted ...int) {
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
func (h *crowd) callRESP(ctx context.Context) {
	pace := time.NewTicker(betweenCalls)
	defer pace.Stop()
	var conn net.Conn
	var answers *bufio.Reader
	command := inRESP("GH.ACQUIRE", "slidinglog/soak", "SIZE", strconv.Itoa(limitSize),
		"INTERVAL", strconv.FormatInt(limitWindow.Milliseconds(), 10), "MAXWAIT", "0")
	for wait(ctx, pace) {
		if conn == nil {
			var err error
			if conn, err = net.DialTimeout("tcp", h.server.resp, callPatience); err != nil {
				h.fails("RESP connection")
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
			_ = conn.Close()
			conn = nil
			h.fails("RESP answer")
			continue
		}
		h.heard(begin, line)
	}
	if conn != nil {
		_ = conn.Close()
	}
}

func (h *crowd) fails(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unserved[what]++
}

// heard notes an answer over RESP.
func (h *crowd) heard(begin time.Time, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := http.StatusOK
	switch {
	case strings.HasPrefix(line, "+OK"):
		h.grants = append(h.grants, span{begin, time.Now()})
	case strings.HasPrefix(line, "-"):
		h.unserved["RESP "+strings.Fields(line)[0]]++
		return
	}
	h.answered(begin, status, http.StatusOK)
}

// inRESP is a command as RESP has it.
func inRESP(words ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text.String()
}

// check asks for all that was granted, after the attack.
func (h *crowd) check(ctx context.Context) error {
	for i := range 2 * holds {
		status, text := h.get(ctx, hold(i)+"/renew?key=honest&expires=0")
		if status != http.StatusOK && status != http.StatusNoContent {
			h.lost = append(h.lost, fmt.Sprintf("%s: %d %s", hold(i), status, strings.TrimSpace(text)))
		}
	}
	status, text := h.get(ctx, "counter/soak/value")
	value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if status != http.StatusOK || err != nil {
		return fmt.Errorf("reading the counter: %d %s", status, text)
	}
	if value < h.counted || value > h.counted+h.unsure {
		h.lost = append(h.lost, fmt.Sprintf("the counter is at %d, want %d to %d",
			value, h.counted, h.counted+h.unsure))
	}
	return nil
}

// mostInWindow is the most grants that surely fall into one window of the limiter. The time of a grant lies
// between a request and its answer.
func mostInWindow(grants []span) int {
	most := 0
	slices.SortFunc(grants, func(a, b span) int { return a.begin.Compare(b.begin) })
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
