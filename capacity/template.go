package capacity

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// AlgorithmKind says how a resource is shared. Its zero value is NoAlgorithm.
type AlgorithmKind uint8

// The kinds of algorithm, with the numbers they have in doorman's protocol.
const (
	NoAlgorithm       AlgorithmKind = iota // every client gets what it wants
	Static                                 // every client gets at most the capacity, each for itself
	ProportionalShare                      // equal shares; what some leave goes to those that want more
	FairShare                              // max-min: none gets more while another that wants it has less
)

// kindNames are the names of the kinds in doorman's protocol and files.
var kindNames = []string{
	NoAlgorithm: "NO_ALGORITHM", Static: "STATIC",
	ProportionalShare: "PROPORTIONAL_SHARE", FairShare: "FAIR_SHARE",
}

// String returns the name the kind has in doorman's files, such as FAIR_SHARE.
func (k AlgorithmKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// ParseKind returns the kind with this name, in upper case.
func ParseKind(name string) (AlgorithmKind, error) {
	if i := slices.Index(kindNames, name); i >= 0 {
		return AlgorithmKind(i), nil
	}
	return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "kind %s is unknown, want %s", quote(name), kindList())
}

// kindList returns "A, B or C".
func kindList() string {
	last := len(kindNames) - 1
	return strings.Join(kindNames[:last], ", ") + " or " + kindNames[last]
}

// An AlgorithmParameter is a named text that travels with an algorithm.
type AlgorithmParameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An Algorithm says how a resource is shared and how its leases are timed.
type Algorithm struct {
	Kind AlgorithmKind

	// LeaseLength is how long a grant holds, RefreshInterval after how long its holder should ask
	// again. Both are whole seconds, at least one; a lease is at least as long as the interval.
	LeaseLength, RefreshInterval time.Duration

	// Learning is how long after it became master a server repeats what clients say they hold,
	// instead of deciding; nil means as long as a lease, 0 or less not at all.
	Learning *time.Duration

	// Parameters are passed on to servers below. {priority strict} serves the highest priority
	// first, and the others from what it leaves; others mean nothing here.
	Parameters []AlgorithmParameter
}

// The parameter that asks for priorities, and its one value.
const (
	priorityName   = "priority"
	priorityStrict = "strict"
)

// Strict reports whether higher priorities are served before lower ones.
func (a *Algorithm) Strict() bool {
	return slices.Contains(a.Parameters, AlgorithmParameter{priorityName, priorityStrict})
}

// LearningMode returns how long a new master learns: 0 for not at all.
func (a *Algorithm) LearningMode() time.Duration {
	if a.Learning == nil {
		return a.LeaseLength
	}
	return max(*a.Learning, 0)
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

// Templates are searched in order. The last must be "*".
type Templates []Template
