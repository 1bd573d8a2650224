package telemetry

import "github.com/gatehousehq/gatehouse"

// An Outcome says how a request ended, in one word: an outcome of a decision, the code of an error, or one of
// those that only capacity has.
type Outcome uint8

// The outcomes that no decision has.
const (
	Internal Outcome = Outcome(gatehouse.Exhausted) + 1 + iota
	Unavailable
	Timeout
	// Redirected is a request for capacity whose answer is the address of the master.
	Redirected
	// Unreceived is a request for capacity that did not arrive whole.
	Unreceived
	numOutcomes
)

// codes are the outcomes of errors.
var codes = [...]Outcome{
	gatehouse.CodeInternal:    Internal,
	gatehouse.CodeInvalid:     Outcome(gatehouse.Invalid),
	gatehouse.CodeExhausted:   Outcome(gatehouse.Exhausted),
	gatehouse.CodeUnavailable: Unavailable,
	gatehouse.CodeTimeout:     Timeout,
}

// OutcomeOf returns the outcome of a decision, or of the error that took its place.
func OutcomeOf(d gatehouse.Outcome, err error) Outcome {
	if err != nil {
		return codes[gatehouse.CodeOf(err)]
	}
	return Outcome(d)
}

// String returns the outcome in lower case, as the label outcome spells it.
func (o Outcome) String() string {
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
