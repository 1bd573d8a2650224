package gatehouse

import "strconv"

// An Origin says which request a command came with, to observers of decisions: for logs, traces and the
// explanation of a refusal. Nothing is decided by it. It must not be changed once a command has it.
type Origin struct {
	// RequestID is the id of the request, empty if it has none.
	RequestID string
	// User is the name of the user whose request it is, empty if that is not known.
	User string
	// Trace is what the tracer keeps of the request; nil if it is not traced.
	Trace any
}

// DecisionID is the public id of a decision with a number. It names one that is kept to be explained.
func DecisionID(number uint64) string { return "d" + strconv.FormatUint(number, idBase) }

// ParseDecisionID returns the number of a DecisionID; ok is false for any other text.
func ParseDecisionID(id string) (number uint64, ok bool) {
	number, ok = parseID(id, "d")
	// One spelling for each number: no other text names the same decision.
	return number, ok && number > 0 && DecisionID(number) == id
}
