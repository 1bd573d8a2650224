package openapi

// grantOperations are those on several names at once.
func grantOperations() []Operation {
	const (
		always = " 400 Invalid 403 Forbidden 503 Unavailable"
		ofOne  = " 404 Missing 409 Conflict" + always
		costs  = `{"tokenbucket/tokens": 4100}`
	)
	// Each operation on a grant that is there differs only in its body.
	operation := func(op, summary, description string, body *Body) Operation {
		return Operation{
			ID: op + "Grant", Tag: "grants", Method: "post", Path: "/v1/grants/{id}/" + op,
			Summary: summary, Description: description, Parameters: []string{"id"}, Body: body,
			Responses: parseResponses("200 OfGrant" + ofOne),
		}
	}
	topUp := operation("topup", "Take more",
		"Adds to what the grant has taken of its limiters, all of it or nothing. Waits only with a maxwait.",
		&Body{Schema: "TopUp", Example: costs})
	topUp.Responses = parseResponses("200 OfGrant 429 RefusedGrant" + ofOne)
	return []Operation{
		{
			ID: "acquireGrant", Tag: "grants", Method: "post", Path: "/v1/grants",
			Summary: "Take all of several, or none",
			Description: "One decision over 1 to 16 limiters, semaphores and locks, which waits for all " +
				"of them " +
				"if necessary. The same id again is answered with the same grant. With an id and Accept: " +
				"text/event-stream its place in each line is told while it waits.",
			Body: &Body{Schema: "AcquireGrant", Example: `{"maxwait": 1000, "want": [` +
				`{"tokenbucket": "tokens", "size": 200000, "interval": 60000, "cost": 3200}, ` +
				`{"semaphore": "calls", "size": 20}]}`},
			Responses: parseResponses("200 OfGrant 409 Conflict 429 RefusedGrant" + always),
		},
		{
			ID: "peekGrant", Tag: "grants", Method: "get", Path: "/v1/grants/{id}",
			Summary: "Look at a grant", Description: "Changes nothing. One that has ended is remembered " +
				"for a while.",
			Parameters: []string{"id"}, Responses: parseResponses("200 OfGrant 404 Missing" + always),
		},
		operation("renew", "Move the end of a grant", "It ends that long from now.",
			&Body{Schema: "RenewGrant", Example: `{"expires": 60000}`, Optional: true}),
		topUp,
		operation("settle", "Say what was spent so far",
			"Less than was taken is given back; more is a debt, or charged as far as it is free. The "+
				"last one counts.",
			&Body{Schema: "Costs", Example: costs}),
		operation("release", "End a grant", "Gives back what is held, and settles what the body says.",
			&Body{Schema: "Costs", Example: costs, Optional: true}),
		{
			ID: "batch", Tag: "grants", Method: "post", Path: "/v1/batch",
			Summary: "Judge up to 1000 commands apart",
			Description: "Each has an outcome of its own, in their order. None waits, and those for one " +
				"name are " +
				"decided in their order.",
			Body: &Body{Schema: "Batch", Example: `{"commands": [{"gcra": "api", "op": "acquire", ` +
				`"size": 5}, ` +
				`{"counter": "visits", "op": "count"}]}`},
			Responses: parseResponses("200 Answers" + always),
		},
	}
}
