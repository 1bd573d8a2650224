package params

import (
	"github.com/gatehousehq/gatehouse"
)

// The range of a third party's status.
const leastStatus, mostStatus = 100, 599

// readFeedback reads what a third party has answered. Other operations check it and leave it at that.
func (r *formReader) readFeedback(cmd *gatehouse.Command) {
	v := &r.values.texts
	f := gatehouse.Feedback{
		Status:     int(r.readNumber(statusParameter, numberRange{leastStatus, leastStatus, mostStatus})),
		RetryAfter: r.readMillis(retryAfterParameter, 0, 0),
		Remaining:  r.readNumber(remainingParameter, numberRange{0, 0, gatehouse.MaxSize}),
		Reset:      r.readMillis(resetParameter, 0, 0),
	}
	// Other operations check what they have no use for, as with all parameters.
	if cmd.Op != gatehouse.OpFeedback {
		return
	}
	switch {
	case v[statusParameter] == nil:
		r.failParameter("status is missing, want that of the third party's answer, such as 429")
	case v[remainingParameter] != nil && v[resetParameter] == nil:
		r.failParameter("remaining is %s without a reset, want in how many milliseconds it counts no more",
			Quote(v[remainingParameter]))
	case v[remainingParameter] == nil:
		f.Reset = 0 // it says when, but not how many
	}
	cmd.Feedback = &f
}
