package middleware

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Unit is what a third party counts.
type Unit uint8

// The units. Providers of language models tell a count of each.
const (
	Requests Unit = iota
	Tokens
	InputTokens
	OutputTokens
)

// unitNames are the units in the names of headers.
var unitNames = [...]string{"requests", "tokens", "input-tokens", "output-tokens"}

// String returns the unit's name, such as "input-tokens".
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return "none"
}

// ReadFeedback reads what an answer of a third party says of its limits: its status, when to come back, and
// how many of a unit are left until when. It knows
//
//   - Retry-After in seconds or as a date, and retry-after-ms;
//   - anthropic-ratelimit-requests-remaining and -reset, and the same of tokens, input-tokens and
//     output-tokens;
//   - x-ratelimit-remaining-requests and x-ratelimit-reset-requests, and of tokens, as OpenAI and others have
//     it;
//   - for requests: RateLimit as structured fields and as it was before, RateLimit-Remaining and -Reset,
//     X-RateLimit-Remaining with -Reset or -Reset-After, X-Rate-Limit-Remaining and -Reset. A reset is a
//     number of seconds from now, or an instant in seconds or milliseconds since 1970.
//
// Of several counts that with the least left is taken. What is not understood is as if it were not there.
func ReadFeedback(response *http.Response, unit Unit, now time.Time) gatehouse.Feedback {
	f := gatehouse.Feedback{Status: response.StatusCode}
	h := response.Header
	if f.Status < 200 || f.Status > 599 {
		f.Status = http.StatusOK // what a limiter makes nothing of
	}
	f.RetryAfter = readRetryAfter(h, now)
	best := count{remaining: math.MaxInt64}
	for _, c := range counts(h, unit, now) {
		if c.reset > 0 && c.remaining >= 0 && c.remaining < best.remaining {
			best = c
		}
	}
	if best.reset > 0 {
		f.Remaining, f.Reset = min(best.remaining, gatehouse.MaxSize), min(best.reset, gatehouse.MaxDuration)
	}
	return f
}

// readRetryAfter reads how long no call is wanted; 0 if the answer does not say.
func readRetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, ok := readNumber(h.Get("Retry-After-Ms")); ok {
		return inUnits(ms, time.Millisecond)
	}
	text := h.Get("Retry-After")
	if seconds, ok := readNumber(text); ok {
		return inUnits(seconds, time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), gatehouse.MaxDuration)
	}
	return 0
}

// A count is how many a third party lets through until its reset. Below 0 is unknown.
type count struct {
	remaining int64
	reset     time.Duration
}

// counts are all that an answer tells of a unit.
func counts(h http.Header, unit Unit, now time.Time) []count {
	name := unit.String()
	all := []count{
		newCount(h.Get("Anthropic-Ratelimit-"+name+"-Remaining"),
			h.Get("Anthropic-Ratelimit-"+name+"-Reset"), now),
		newCount(h.Get("X-Ratelimit-Remaining-"+name), h.Get("X-Ratelimit-Reset-"+name), now),
	}
	if unit != Requests {
		return all
	}
	reset := h.Get("X-Ratelimit-Reset-After")
	if reset == "" {
		reset = h.Get("X-Ratelimit-Reset")
	}
	all = append(all,
		newCount(h.Get("Ratelimit-Remaining"), h.Get("Ratelimit-Reset"), now),
		newCount(h.Get("X-Ratelimit-Remaining"), reset, now),
		newCount(h.Get("X-Rate-Limit-Remaining"), h.Get("X-Rate-Limit-Reset"), now),
	)
	return append(all, fieldCounts(h, now)...)
}

// newCount reads a count and its reset.
func newCount(remaining, reset string, now time.Time) count {
	n, ok := readNumber(remaining)
	if !ok {
		return count{remaining: -1}
	}
	return count{int64(min(n, float64(gatehouse.MaxSize))), readReset(reset, now)}
}

// Instants since 1970 are distinguished from lengths of time by their size: no window lasts for thirty years.
const (
	leastEpoch       = 1e9
	leastEpochMillis = 1e12
)

// readReset reads when a count counts no more, as a length of time from now; 0 if it is not understood.
func readReset(text string, now time.Time) time.Duration {
	if n, ok := readNumber(text); ok {
		switch {
		case n >= leastEpochMillis:
			return max(0, time.UnixMilli(int64(n)).Sub(now))
		case n >= leastEpoch:
			return max(0, time.UnixMilli(int64(n*1000)).Sub(now))
		}
		return inUnits(n, time.Second)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(0, at.Sub(now))
	}
	d, err := time.ParseDuration(text) // such as 6m0s, and 1d is unknown
	if err != nil {
		return 0
	}
	return max(0, d)
}

// fieldCounts reads the field RateLimit: `"default";r=50;t=30, …`, and before that limit=100, remaining=50,
// reset=30.
func fieldCounts(h http.Header, now time.Time) (all []count) {
	var fields []string
	for name, values := range h {
		// Headers that were not read by net/http may have the very spelling of the draft.
		if strings.EqualFold(name, "RateLimit") {
			fields = append(fields, values...)
		}
	}
	text := strings.Join(fields, ",")
	old := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		parts := strings.Split(item, ";")
		if name, value, ok := strings.Cut(strings.TrimSpace(parts[0]), "="); ok {
			old[name] = value
			continue
		}
		parameters := map[string]string{}
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			parameters[name] = value
		}
		all = append(all, newCount(parameters["r"], parameters["t"], now))
	}
	return append(all, newCount(old["remaining"], old["reset"], now))
}

// readNumber reads a number from 0, which may have a fraction.
func readNumber(text string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

// inUnits is a length of time, rounded up to a nanosecond and bounded.
func inUnits(n float64, unit time.Duration) time.Duration {
	return time.Duration(min(math.Ceil(n*float64(unit)), float64(gatehouse.MaxDuration)))
}
