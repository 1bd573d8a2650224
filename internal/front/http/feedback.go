package http

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// appendReported adds the members about what third parties have reported, as far as it holds back.
func (o jsonObject) appendReported(r *gatehouse.Reported) jsonObject {
	if r.Status != 0 {
		o = o.addNumber("paused_with", int64(r.Status))
		if r.By != "" {
			o = o.addText("paused_by", r.By)
		}
		o = o.addNumber("paused_for", params.CeilMillis(r.PausedFor))
		o = o.addNumber("ramp_for", params.CeilMillis(r.RampFor))
	}
	if r.AdoptedFor > 0 {
		o = o.addNumber("adopted", r.Adopted).addNumber("adopted_for", params.CeilMillis(r.AdoptedFor))
	}
	return o
}
