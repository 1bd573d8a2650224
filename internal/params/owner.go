package params

import "github.com/gatehousehq/gatehouse"

// This file reads for whom a command is, and what lists and operators give besides.

// readOwner reads them. Most commands have none.
func (r *formReader) readOwner(cmd *gatehouse.Command) {
	if r.values.named&ownerParameters != 0 {
		cmd.Owner = r.readNames()
		if reason := r.readText(reasonParameter); cmd.Op == gatehouse.OpEvict || cmd.Op == gatehouse.OpClose {
			cmd.Message = reason
		}
		cmd.Now = r.readBool(nowParameter) // an evict frees the slots at once
	}
	// Every operation checks it, and only lists have a use for it.
	most := r.readNumber(limitParameter, numberRange{gatehouse.DefaultListed, 1, gatehouse.MaxListed})
	if cmd.Op == gatehouse.OpHolders || cmd.Op == gatehouse.OpWaiters {
		cmd.Amount = most
	}
	r.readID(cmd)
}

// readNames returns for whom a command is, nil if it does not say.
func (r *formReader) readNames() *gatehouse.Owner {
	if r.values.named&ownerParameters == 0 {
		return nil
	}
	owner := gatehouse.Owner{
		Name: r.readText(ownerParameter), Host: r.readText(hostParameter),
		Purpose: r.readText(purposeParameter),
	}
	// Given but empty is as if it were absent, and nothing is kept for it.
	if owner == (gatehouse.Owner{}) {
		return nil
	}
	return new(owner)
}

// readText reads a text that people are shown.
func (r *formReader) readText(parameter int) string {
	text := string(r.values.texts[parameter])
	if bad := gatehouse.TextFault(text); bad != "" {
		r.failParameter("%s %s", names[parameter], bad)
		return ""
	}
	return text
}

// readID reads the public id of the hold to evict, of the waiter to bump, or behind which a list begins. For
// all other operations id is what it is in bouncer: a mark in the log of a proxy.
func (r *formReader) readID(cmd *gatehouse.Command) {
	parameter, what, parse := idParameter, "a holder", gatehouse.ParseHolderID
	switch cmd.Op {
	case gatehouse.OpEvict:
	case gatehouse.OpBump:
		what, parse = "a waiter", gatehouse.ParseWaiterID
	case gatehouse.OpHolders:
		parameter = afterParameter
	case gatehouse.OpWaiters:
		parameter, what, parse = afterParameter, "a waiter", gatehouse.ParseWaiterID
	default:
		return
	}
	text := r.values.texts[parameter]
	// A list without a place to go on from begins at its beginning.
	if len(text) == 0 && parameter == afterParameter {
		cmd.Fence = 0
		return
	}
	// A 0 would mean no hold at all to the command.
	number, ok := parse(string(text))
	switch {
	case len(text) == 0:
		r.failParameter("%s is missing, want that of %s, as a list has it", names[parameter], what)
	case !ok || number == 0:
		r.failParameter("%s is %s, want the id of %s, as a list has it", names[parameter], Quote(text), what)
	}
	cmd.Fence = number
}
