package gate

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An atOnceStore is a store that can serve turns before it returns, by the goroutine of its caller, without a
// change and its Done. The memory store is one.
type atOnceStore interface {
	// ServesAtOnce reports whether ServeAtOnce may be called in place of the Apply of store. A store that
	// embeds another one, and has an Apply of its own, must not be passed by.
	ServesAtOnce(store any) bool

	// ServeAtOnce serves turns at one instant, as Apply does, and reports true when each has its decision. If
	// it reports false it has done nothing, and Apply must serve them.
	ServeAtOnce(key gatehouse.Key, turns []control.Turn) (served bool)
}

// decideAtOnce decides the command of a call without a request and a round, if it is one of those that come
// most often, may not wait, and finds no line. It keeps what begin promises: a line that has begun meanwhile
// is served behind the command. What is not valid is left to begin, as all else.
func (g *Gate) decideAtOnce(key gatehouse.Key, c *call) (done bool) {
	cmd := &c.request.Command
	switch cmd.Op {
	case gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew:
	default:
		return false
	}
	// What is not valid is checked once more by prepareRequests, which has the error for the caller.
	if cmd.MaxWait != 0 || g.lineOf(key) != nil || cmd.Check(key) != nil {
		return false
	}
	if !g.atOnce.ServeAtOnce(key, c.turn[:]) {
		return false
	}
	// A request may have joined a line since the look above, and wait for what the command gave back.
	g.serveLineOf(key)
	return true
}
