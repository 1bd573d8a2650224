package telemetry

import "github.com/gatehousehq/gatehouse"

// A RequestOutcome says how a request ended, in one word: an outcome of a decision, the code of an error, or
// those that only capacity has.
type RequestOutcome uint8

// The outcomes that no decision has.
const (
	Internal RequestOutcome = RequestOutcome(gatehouse.Exhausted) + 1 + iota
	Unavailable
	Timeout
	// Redirected is a request for capacity whose answer is the address of the master.
	Redirected
	// Unreceived is a request for capacity that did not arrive whole.
	Unreceived
	numOutcomes
)

// codes are the outcomes of errors.
var codes = [...]RequestOutcome{
	gatehouse.CodeInternal:    Internal,
	gatehouse.CodeInvalid:     RequestOutcome(gatehouse.Invalid),
	gatehouse.CodeExhausted:   RequestOutcome(gatehouse.Exhausted),
	gatehouse.CodeUnavailable: Unavailable,
	gatehouse.CodeTimeout:     Timeout,
}

// OutcomeOf returns the outcome of a decision, or of the error that took its place.
func OutcomeOf(d gatehouse.Outcome, err error) RequestOutcome {
	if err != nil {
		return codes[gatehouse.CodeOf(err)]
	}
	return RequestOutcome(d)
}

// String returns the outcome in lower case, as the label outcome spells it.
func (o RequestOutcome) String() string {
	switch o {
	case Internal:
		return gatehouse.CodeInternal.String()
	case Unavailable:
		return gatehouse.CodeUnavailable.String()
	case Timeout:
		return gatehouse.CodeTimeout.String()
	case Redirected:
		return "redirected"
	case Unreceived:
		return "unreceived"
	}
	return gatehouse.Outcome(o).String()
}
