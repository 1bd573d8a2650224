package capacity

import "time"

// Kind says how a resource is shared. Its zero value is NoAlgorithm.
type Kind uint8

// The kinds of algorithm, with the numbers they have in doorman's protocol.
const (
	NoAlgorithm       Kind = iota // everybody gets what they want
	Static                        // everybody gets at most the capacity, each client alone
	ProportionalShare             // equal shares; what some leave goes to those who want more
	FairShare                     // max-min: nobody gets more while somebody who wants it has less
)

// A Parameter is a named text that travels with an algorithm.
type Parameter struct{ Name, Value string }

// An Algorithm says how a resource is shared and how its leases are timed.
type Algorithm struct {
	Kind Kind

	// LeaseLength is how long a grant holds, RefreshInterval after how long its holder should ask
	// again. Both are whole seconds, at least one; a lease is at least as long as the interval.
	LeaseLength, RefreshInterval time.Duration

	// Learning is how long after it became master a server repeats what clients say they hold,
	// instead of deciding; nil means as long as a lease, 0 or less not at all.
	Learning *time.Duration

	// Parameters are passed on to servers below. {priority strict} serves the highest priority
	// first, and the others from what it leaves.
	Parameters []Parameter
}

// A Template describes all resources whose names its glob matches.
type Template struct {
	// Glob is a resource's name, or a pattern as path.Match has them. "*" matches every name.
	Glob     string
	Capacity float64 // what all together may have; 0 and more

	// Safe is what each client may use when it reaches no server and holds no lease: -1 without
	// limit, 0 nothing. nil means the capacity divided by the number of clients.
	Safe *float64

	Algorithm   Algorithm
	Description string
}

// Templates are looked through in order. The last must be "*".
type Templates []Template
