// Package middleware limits HTTP: what a server lets in, and what a program sends to a third party.
//
// [Handler] refuses requests with 429 and says in RateLimit headers what is left. [NewTransport] has
// requests to a third party wait for a limit that all processes share, and reports what the third party
// answers, so that one 429 pauses all of them. The same for gRPC is in grpcmiddleware, so that a program for
// HTTP alone does not compile gRPC.
//
// # When the gate does not answer
//
// A question may take Config.Within, 100 ms unless said otherwise. Then the request is let through, or
// refused with 503 if the Config says FailClosed; and for ten times Within all others are decided so at
// once, without asking. What makes no sense, such as a name of 600 bytes that a client has made up, is 400
// in any case.
package middleware

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/asking"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
)

// A Config says what is limited, and how.
type Config struct {
	Gate gatehouse.Gate

	// Key says which limiter a request is counted by, such as one for each user; the zero Key is none.
	Key func(*http.Request) gatehouse.Key

	// Rule is the limit; the zero Rule is the limit in force under the name.
	Rule gatehouse.Rule

	// Cost is how much a request takes; nil means 1 each.
	Cost func(*http.Request) int64

	// MaxWait is how long a request may wait in line. 0 means not at all for a Handler, and as long as the
	// request's context lasts for a transport.
	MaxWait time.Duration

	// Within is how long the gate may take to answer, beside MaxWait; 0 means 100 ms.
	Within time.Duration

	// FailClosed has requests refused, and not let through, while the gate does not answer.
	FailClosed bool

	// Unit says which of the counts that a third party tells the limiter is about. Only transports read it.
	Unit Unit
}

// asker returns what asks for requests of the Config.
func (c *Config) asker() *asking.Asker {
	return &asking.Asker{
		Gate: c.Gate, Rule: c.Rule, MaxWait: c.MaxWait, Within: c.Within, FailClosed: c.FailClosed,
	}
}

// costOf is how much a request takes.
func (c *Config) costOf(r *http.Request) int64 {
	if c.Cost == nil {
		return 1
	}
	return c.Cost(r)
}

// Handler lets requests through to next as the Config says. Answers have the headers RateLimit and
// RateLimit-Policy, as those of a Gatehouse server have them. A refusal is 429 with Retry-After and a problem
// in JSON, and next does not see the request.
func Handler(config Config, next http.Handler) http.Handler {
	asker := config.asker()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := config.Key(r)
		if key == (gatehouse.Key{}) {
			next.ServeHTTP(w, r)
			return
		}
		v := asker.AskOnce(r.Context(), key, config.costOf(r))
		switch {
		case v.Err == nil:
			writeLimits(w.Header(), key, &config.Rule, &v.Decision)
			if !v.Pass {
				refuse(w, key, &v.Decision)
				return
			}
		case v.Pass:
		case r.Context().Err() != nil:
			return // the client is gone
		case gatehouse.CodeOf(v.Err) == gatehouse.CodeInvalid:
			writeProblem(w, problem{Status: http.StatusBadRequest, Detail: v.Err.Error(), Code: "invalid"})
			return
		default:
			w.Header().Set("Retry-After", "1")
			writeProblem(w, problem{
				Status: http.StatusServiceUnavailable, Detail: v.Err.Error(), Code: "unavailable",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A problem is an answer that is no success, as in RFC 9457.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Code     string   `json:"code"`
	Retry    int64    `json:"retry_after_ms,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// refuse answers a request that is refused.
func refuse(w http.ResponseWriter, key gatehouse.Key, d *gatehouse.Decision) {
	p := problem{
		Type: ratelimit.QuotaExceededType, Title: ratelimit.QuotaExceededTitle,
		Status: http.StatusTooManyRequests, Code: "refused", Detail: fmt.Sprintf("%s allows no more", key),
		Violated: ratelimit.RefusedNames(key.Kind, d),
	}
	if d.RetryAfter != gatehouse.Forever {
		p.Retry = ratelimit.CeilUnits(d.RetryAfter, time.Millisecond)
		p.Detail += fmt.Sprintf("; try again in %d ms", p.Retry)
		seconds := ratelimit.CeilUnits(d.RetryAfter, time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p problem) {
	if p.Type == "" {
		p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // an error means that the client is gone
}
