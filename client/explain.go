package client

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Explain returns what the first server that answers knows of a refusal by its id, see
// [gatehouse.DecisionID], as the JSON of GET /v1/decisions/<id>. Each server knows only its own: found is
// false if this one has no such refusal, and text is then a sentence that says why.
func (c *Client) Explain(ctx context.Context, id string) (text []byte, found bool, err error) {
	if _, ok := gatehouse.ParseDecisionID(id); !ok {
		return nil, false, gatehouse.Errorf(gatehouse.CodeInvalid,
			"decision is %.40q, want an id such as d1x8k2, from the header Gatehouse-Decision", id)
	}
	r := exchange{subject: "decision " + id, op: gatehouse.OpStats, repeatable: true}
	err = c.sendExchange(ctx, &r, func(time.Duration) message {
		path := "/v1/decisions/" + id
		return message{method: http.MethodGet, path: path, rawPath: path}
	}, func(a *reply) error {
		// A copy, as the body is gone once it was read.
		text, found = slices.Clone(a.body), a.status == http.StatusOK
		if found {
			return nil
		}
		failure := problemOf(r.subject, a)
		// No failure of this server: another one may have refused it.
		if a.status == http.StatusNotFound {
			text = []byte(failure.Error())
			return nil
		}
		return failure
	})
	return text, found, err
}
