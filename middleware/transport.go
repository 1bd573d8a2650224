package middleware

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/asking"
)

// A limitedTransport has requests wait for their turn, and reports what comes back.
type limitedTransport struct {
	config Config
	asker  *asking.Asker
	base   http.RoundTripper

	reported atomic.Pointer[time.Time] // when a success was reported last
	failed   atomic.Bool               // the last report was of a failure
}

// NewTransport returns a transport that lets requests through to base as the Config says, which nil makes
// [http.DefaultTransport]. A request waits for its turn, and fails with an error of code
// [gatehouse.CodeTimeout] when it is not its turn within MaxWait or before its context ends. What the answer
// says is reported to the limiter: each 429, and a 503 that says when to come back, at once; a success now
// and then, with what the third party says is left. Transports can be put one before the other, for limits
// of requests and of tokens.
func NewTransport(config Config, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &limitedTransport{config: config, asker: config.asker(), base: base}
}

// RoundTrip implements [http.RoundTripper].
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.config.Key(r)
	if key == (gatehouse.Key{}) {
		return t.base.RoundTrip(r)
	}
	v := t.asker.AskInLine(r.Context(), key, t.config.costOf(r))
	if !v.Pass {
		if r.Body != nil {
			_ = r.Body.Close() // as a transport must
		}
		if v.Err != nil {
			return nil, v.Err
		}
		return nil, gatehouse.Errorf(gatehouse.CodeTimeout, "%s allows no more within %s", key,
			t.config.MaxWait)
	}
	response, err := t.base.RoundTrip(r)
	if err == nil {
		t.report(r, key, response)
	}
	return response, err
}

// successInterval is how often a success is reported that has nothing new to say.
const successInterval = time.Second

// report tells the limiter what the answer says, before the caller can send another request.
func (t *limitedTransport) report(r *http.Request, key gatehouse.Key, response *http.Response) {
	now := time.Now()
	f := ReadFeedback(response, t.config.Unit, now)
	if !f.Pauses() {
		last := t.reported.Load()
		// The first success after a failure makes the next pause short again, and an empty count is news.
		news := t.failed.Load() || f.Reset > 0 && f.Remaining == 0
		if !f.Succeeds() || !news && (f.Reset == 0 || last != nil && now.Sub(*last) < successInterval) {
			return
		}
		t.reported.Store(&now)
	}
	t.failed.Store(f.Pauses())
	t.asker.Report(r.Context(), key, f)
}
