package http

import (
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
	"github.com/valyala/fasthttp"
)

// hasLimitHeaders reports whether the answer has RateLimit headers: when something was taken from a limit,
// given back to it or only asked about.
func (r *responder) hasLimitHeaders() bool {
	if r.key.Kind.Limiter() {
		return r.op != gatehouse.OpStats && r.op != gatehouse.OpDelete && r.op != gatehouse.OpBump &&
			!isReport(r.op)
	}
	return r.op == gatehouse.OpAcquire
}

// writeLimitHeaders writes a decision as RateLimit and RateLimit-Policy.
func writeLimitHeaders(resp *fasthttp.Response, r *responder, d *gatehouse.Decision) {
	switch {
	case r.levels != nil:
		writeLevelHeaders(resp, r)
		return
	case len(d.Windows) > 0:
		policies, limits := ratelimit.WindowFields(r.key.Kind, d)
		setLimitHeaders(resp, policies, limits)
		return
	case d.Message != "" && d.Limit == 0 && d.Interval == 0:
		return // granted while the store could not be reached, and only the store knows the limit
	}
	p := ratelimit.OnlyPolicy(r.key.Kind, d)
	// Both fields use the same scratch: the response keeps a copy of each.
	var scratch [96]byte
	fields := p.AppendPolicy(scratch[:0])
	setHeader(resp, ratelimit.PolicyHeader, fields)
	setHeader(resp, ratelimit.LimitHeader, p.AppendLimit(fields[:0]))
}

func setLimitHeaders(resp *fasthttp.Response, policies, limits []byte) {
	setHeader(resp, ratelimit.PolicyHeader, policies)
	setHeader(resp, ratelimit.LimitHeader, limits)
}

// refusedPolicies returns the names of the policies that refused, as in RateLimit-Policy, or nil if the
// answer has no such header.
func (r *responder) refusedPolicies(d *gatehouse.Decision) (names []string) {
	if !r.hasLimitHeaders() {
		return nil
	}
	if r.levels != nil {
		return r.refusedLevels()
	}
	return ratelimit.RefusedNames(r.key.Kind, d)
}

func setUintHeader(resp *fasthttp.Response, header string, value uint64) {
	var scratch [20]byte
	setHeader(resp, header, strconv.AppendUint(scratch[:0], value, 10))
}

// setHeader sets a header in this very spelling. The library would turn RateLimit into Ratelimit.
func setHeader(resp *fasthttp.Response, header string, value []byte) {
	resp.Header.SetCanonical([]byte(header), value)
}

// setTextHeader is setHeader for a fixed value.
func setTextHeader(resp *fasthttp.Response, header, value string) {
	setHeader(resp, header, []byte(value))
}
