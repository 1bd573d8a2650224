package openapi

import "github.com/gatehousehq/gatehouse"

// This file describes what operators look at and do.

// managedOperations are the same for all kinds that have them.
var managedOperations = map[gatehouse.Op]operationText{
	gatehouse.OpEvict: {"Evict a holder",
		"The hold is not renewed any more, and ends with its term; with now=true, or without a term, at " +
			"once. Its holder is told who did so and why. The id is one of the list of holders.",
		"204 Evicted 409 Conflict"},
	gatehouse.OpBump: {"Put a waiter in front",
		"In front of all that wait at this server. The id is one of the list of waiters.",
		"204 Done 409 Conflict"},
	gatehouse.OpClose: {"Close the name",
		"Nothing is granted until it is opened; what is held stays, and who waits goes on waiting.",
		"204 Done"},
	gatehouse.OpOpen: {"Open the name", "One that is open stays so.", "204 Done"},
	gatehouse.OpHolders: {"List who holds", "In the order in which they were granted.",
		"200 Holders 404 Missing"},
	gatehouse.OpWaiters: {"List who waits",
		"At this server, in the order in which they stand, with how long each may have to.",
		"200 Waiters 404 Missing"},
}

// isReport reports whether an operation is a list, which has a form of its own.
func isReport(op gatehouse.Op) bool { return op == gatehouse.OpHolders || op == gatehouse.OpWaiters }

// managedParameters are the parameters of these operations.
func managedParameters(op gatehouse.Op) []string {
	switch op {
	case gatehouse.OpEvict:
		return []string{"id", "now", "owner", "reason"}
	case gatehouse.OpBump:
		return []string{"id"}
	case gatehouse.OpClose:
		return []string{"owner", "reason"}
	case gatehouse.OpHolders, gatehouse.OpWaiters:
		return []string{"after", "limit"}
	}
	return nil
}

// ownerParameters are those that say for whom a command is.
var ownerParameters = []string{"owner", "host", "purpose"}
