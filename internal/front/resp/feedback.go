package resp

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// countReported is how many pairs writeReported writes.
func countReported(d *gatehouse.Decision) (pairs int) {
	if d.Reported == nil {
		return 0
	}
	return 3*boolToInt(d.Reported.Status != 0) + boolToInt(d.Reported.By != "") +
		2*boolToInt(d.Reported.AdoptedFor > 0)
}

// writeReported writes what third parties have reported, as far as it holds back.
func (r *replyWriter) writeReported(d *gatehouse.Decision) {
	if d.Reported == nil {
		return
	}
	if d.Reported.Status != 0 {
		r.writePair("paused_with", int64(d.Reported.Status))
		if d.Reported.By != "" {
			r.writeTexts("paused_by", d.Reported.By)
		}
		r.writePair("paused_for", params.CeilMillis(d.Reported.PausedFor))
		r.writePair("ramp_for", params.CeilMillis(d.Reported.RampFor))
	}
	if d.Reported.AdoptedFor > 0 {
		r.writePair("adopted", d.Reported.Adopted)
		r.writePair("adopted_for", params.CeilMillis(d.Reported.AdoptedFor))
	}
}
