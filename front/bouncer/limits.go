package bouncer

import (
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// writeLimits writes what was decided as the RateLimit and RateLimit-Policy fields of
// draft-ietf-httpapi-ratelimit-headers-11. The policy is named after the kind. It is the only place
// that knows their syntax, because the draft still moves.
func writeLimits(resp *fasthttp.Response, r *reply, d *gatehouse.Decision) {
	kind := r.key.Kind
	name := append(append(append(r.scratch[:0], '"'), kind.String()...), '"')
	start := len(name)

	policy := appendParam(name, ";q=", d.Limit)
	if kind == gatehouse.TokenBucket {
		if d.Interval%time.Second == 0 { // the field has no fractions
			policy = appendParam(policy, ";w=", int64(d.Interval/time.Second))
		}
	} else {
		policy = append(policy, `;qu="concurrent-requests"`...)
	}
	setBytes(resp, "RateLimit-Policy", policy)

	limit := appendParam(policy[:start], ";r=", d.Remaining)
	if kind == gatehouse.TokenBucket && d.Limit > 0 { // of size 0 it never fills
		limit = appendParam(limit, ";t=", int64(seconds(d.ResetAfter))) // #nosec G115 -- at most 100 years
	}
	setBytes(resp, "RateLimit", limit)
}

func appendParam(dst []byte, param string, value int64) []byte {
	return strconv.AppendInt(append(dst, param...), value, 10)
}

func setUint(resp *fasthttp.Response, header string, value uint64) {
	var scratch [20]byte
	setBytes(resp, header, strconv.AppendUint(scratch[:0], value, 10))
}

// setBytes sets a header that is spelled as it is to be sent; the library would make it Ratelimit.
func setBytes(resp *fasthttp.Response, header string, value []byte) {
	resp.Header.SetCanonical([]byte(header), value)
}

// seconds rounds a wait up to whole seconds.
func seconds(d time.Duration) uint64 { return ceil(d, time.Second) }

// ceil is how many units cover d, at least 1: what is told to wait must not come back too early.
func ceil(d, unit time.Duration) uint64 {
	return uint64(max(1, (d+unit-1)/unit)) // #nosec G115 -- at least 1
}
