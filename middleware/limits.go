package middleware

import (
	"cmp"
	"net/http"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
)

// writeLimits writes RateLimit and RateLimit-Policy as the front of a Gatehouse server does.
func writeLimits(header http.Header, key gatehouse.Key, rule *gatehouse.Rule, d *gatehouse.Decision) {
	var policies, limits []byte
	if len(d.Windows) > 0 {
		policies, limits = ratelimit.WindowFields(key.Kind, d)
	} else {
		one := *d
		one.Interval = cmp.Or(d.Interval, windowOf(key, rule, d.Limit))
		p := ratelimit.OnlyPolicy(key.Kind, &one)
		policies, limits = p.AppendPolicy(nil), p.AppendLimit(nil)
	}
	// In this very spelling, which Set would change.
	header[ratelimit.PolicyHeader] = []string{string(policies)}
	header[ratelimit.LimitHeader] = []string{string(limits)}
}

// windowOf is the window of a rule, where a gate at a distance does not tell it. That of a GCRA is the time
// in which its burst comes back.
func windowOf(key gatehouse.Key, rule *gatehouse.Rule, most int64) time.Duration {
	limit := gatehouse.Limit{Size: rule.Size, Interval: rule.Interval, Calendar: rule.Calendar}
	if rule.Limits.Len() == 1 {
		limit = rule.Limits.At(0)
	}
	window := ratelimit.WindowLength(limit)
	if key.Kind == gatehouse.GCRA && limit.Calendar == gatehouse.NoCalendar && limit.Size > 0 {
		return window / time.Duration(limit.Size) * time.Duration(most)
	}
	return window
}
