package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/middleware"
)

// TestReadFeedback reads answers as third parties send them. The present is 2026-01-31T09:30:00Z, 1769851800.
func TestReadFeedback(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	for _, test := range []struct {
		name, header string
		unit         middleware.Unit
		want         gatehouse.Feedback
	}{
		{"nothing", "", 0, gatehouse.Feedback{}},
		{"seconds", "Retry-After: 30", 0, gatehouse.Feedback{RetryAfter: 30 * time.Second}},
		{"date", "Retry-After: Sat, 31 Jan 2026 09:31:00 GMT", 0, gatehouse.Feedback{
			RetryAfter: time.Minute,
		}},
		{"past date", "Retry-After: Sat, 31 Jan 2026 09:00:00 GMT", 0, gatehouse.Feedback{}},
		{"milliseconds", "retry-after-ms: 1500\nRetry-After: 2", 0, gatehouse.Feedback{
			RetryAfter: 1500 * time.Millisecond,
		}},
		{"nonsense", "Retry-After: soon\nX-RateLimit-Remaining: many\nRateLimit: ;;=", 0,
			gatehouse.Feedback{}},
		{"structured", `RateLimit: "burst";r=4;t=1, "daily";r=2;t=3600`, 0, gatehouse.Feedback{
			Remaining: 2, Reset: time.Hour,
		}},
		{"draft 7", "RateLimit: limit=100, remaining=50, reset=5", 0, gatehouse.Feedback{
			Remaining: 50, Reset: 5 * time.Second,
		}},
		{"draft 3", "RateLimit-Limit: 10\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", 0, gatehouse.Feedback{
			Reset: 7 * time.Second,
		}},
		{"GitHub", "X-RateLimit-Remaining: 12\nX-RateLimit-Reset: 1769851860", 0, gatehouse.Feedback{
			Remaining: 12, Reset: time.Minute,
		}},
		{"Discord", "X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1769851801\nX-RateLimit-Reset-After: 1.5",
			0, gatehouse.Feedback{Remaining: 1, Reset: 1500 * time.Millisecond}},
		{"epoch in milliseconds", "X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1769851802000", 0,
			gatehouse.Feedback{Remaining: 1, Reset: 2 * time.Second}},
		{"X-Rate-Limit", "x-rate-limit-remaining: 3\nx-rate-limit-reset: 1769852700", 0, gatehouse.Feedback{
			Remaining: 3, Reset: 15 * time.Minute,
		}},
		{"OpenAI requests", openAI, middleware.Requests, gatehouse.Feedback{
			Remaining: 59, Reset: time.Second,
		}},
		{"OpenAI tokens", openAI, middleware.Tokens, gatehouse.Feedback{
			Remaining: 149984, Reset: 6*time.Minute + 500*time.Millisecond,
		}},
		{"Anthropic requests", anthropic, middleware.Requests, gatehouse.Feedback{
			Remaining: 49, Reset: 30 * time.Second,
		}},
		{"Anthropic input", anthropic, middleware.InputTokens, gatehouse.Feedback{
			Remaining: 20000, Reset: time.Minute,
		}},
		{"Anthropic output", anthropic, middleware.OutputTokens, gatehouse.Feedback{
			Reset: 2 * time.Minute,
		}},
		{"not of this unit", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", middleware.Tokens,
			gatehouse.Feedback{}},
	} {
		response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}}
		for line := range strings.Lines(test.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			response.Header.Add(name, value)
		}
		test.want.Status = http.StatusTooManyRequests
		if got := middleware.ReadFeedback(response, test.unit, now); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// What two providers of language models send.
const (
	openAI = `x-ratelimit-limit-requests: 60
x-ratelimit-limit-tokens: 150000
x-ratelimit-remaining-requests: 59
x-ratelimit-remaining-tokens: 149984
x-ratelimit-reset-requests: 1s
x-ratelimit-reset-tokens: 6m0.5s`
	anthropic = `anthropic-ratelimit-requests-limit: 50
anthropic-ratelimit-requests-remaining: 49
anthropic-ratelimit-requests-reset: 2026-01-31T09:30:30Z
anthropic-ratelimit-input-tokens-remaining: 20000
anthropic-ratelimit-input-tokens-reset: 2026-01-31T09:31:00Z
anthropic-ratelimit-output-tokens-remaining: 0
anthropic-ratelimit-output-tokens-reset: 2026-01-31T09:32:00Z
retry-after: 0`
)
