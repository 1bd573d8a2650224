package middleware

import (
	"net/http"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/asking"
)

// A limitedTransport has requests wait for their turn, and reports what comes back.
type limitedTransport struct {
	config Config
	asker  *asking.Asker
	base   http.RoundTripper
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
		// Before the caller can send another request.
		t.asker.ReportAnswer(r.Context(), key, ReadFeedback(response, t.config.Unit, time.Now()))
	}
	return response, err
}
