package resp

import (
	"bytes"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// summaries say what each operation does.
var summaries = [gatehouse.OpUndo]string{
	gatehouse.OpAcquire: "Takes tokens, slots or the lock, and waits for them up to MAXWAIT milliseconds.",
	gatehouse.OpRelease: "Gives back the slots or the lock that KEY holds.",
	gatehouse.OpRenew:   "Extends the hold of KEY to EXPIRES milliseconds from now.",
	gatehouse.OpWait:    "Waits for an event, for a watchdog to fire, or for a barrier to open.",
	gatehouse.OpSend:    "Sends an event and its MESSAGE to all present and later waiters.",
	gatehouse.OpKick:    "Tells a watchdog that all is well for EXPIRES milliseconds.",
	gatehouse.OpCount:   "Adds AMOUNT to a counter.",
	gatehouse.OpValue:   "Reads a counter.",
	gatehouse.OpReset:   "Sets a counter to VALUE, or clears what was taken from a limiter.",
	gatehouse.OpPeek:    "Replies as an acquire would, and takes nothing.",
	gatehouse.OpDelay:   "Replies how many milliseconds to wait for an acquire, and takes nothing.",
	gatehouse.OpReserve: "Takes the earliest free place, and replies the milliseconds until then.",
	gatehouse.OpCancel:  "Gives back the place that KEY reserved.",
	gatehouse.OpRefund:  "Gives back COST of what was taken.",
	gatehouse.OpCharge:  "Charges COST that was spent already; any amount beyond the limit is a debt.",
	gatehouse.OpStats:   "Reads the statistics of any controller.",
	gatehouse.OpDelete:  "Deletes any controller; waiting commands fail with DELETED.",
}

// nativeCommands are GH.<OP> for every operation, GH.LIST and GH.DELETEPREFIX.
func nativeCommands() []*command {
	const group = "gatehouse"
	all := []*command{{"GH.LIST", -2, []string{readonly}, false, group, "kind [AFTER name] [MOST n]",
		"Lists the names of a kind, in order.", (*session).answerList},
		{"GH.DELETEPREFIX", -5, []string{writes}, false, group, "kind prefix CONFIRM kind [AFTER name]",
			"Deletes the first 1000 names of a kind that begin alike.", (*session).deletePrefix}}
	// OpUndo, the last operation, is for gates alone.
	for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
		flags := []string{writes}
		switch op {
		case gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpStats, gatehouse.OpValue:
			flags = []string{readonly}
		}
		if op.Waits() {
			flags = append(flags, blocking)
		}
		all = append(all, &command{"GH." + strings.ToUpper(op.String()), -2, flags, true, group,
			"kind/name [PARAMETER value ...]", summaries[op],
			func(s *session, args [][]byte) { s.answerNative(op, args) }})
	}
	return all
}

// answerNative answers GH.<OP> kind/name [PARAMETER value ...].
func (s *session) answerNative(op gatehouse.Op, args [][]byte) {
	l := s.loop
	c := l.takeCall()
	if err := s.readRequest(c, op, args); err != nil {
		s.countAnswer(c.Key, op, nil, err)
		l.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		l.recycleCall(c)
		return
	}
	if c.heldBy() != "" && s.hungUp() { // it would be held by nobody
		s.server.metrics.Hangups.Inc()
		s.last = true
		l.recycleCall(c)
		return
	}
	s.submitCall(c)
}

// readRequest reads the arguments of a command into the call.
func (s *session) readRequest(c *nativeCall, op gatehouse.Op, args [][]byte) error {
	c.Key, c.details = gatehouse.Key{}, false
	kind, name, ok := bytes.Cut(args[1], []byte{'/'})
	if !ok {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is at %s, want kind/name, such as gcra/user:1",
			op, params.Quote(args[1]))
	}
	parsed, err := parseKind(kind)
	if err != nil {
		return err
	}
	// The kind is set before the parameters are read: an invalid request is counted under its kind.
	c.Key.Kind = parsed
	c.Key.Name = s.loop.names.internName(name)
	f := &s.loop.params
	// All commands of the loop share these values. One that the last command set would pass for this one's.
	*f = params.Values{}
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) == 1:
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s has no value, want PARAMETER value", params.Quote(rest[0]))
		// WITH is no parameter of the operation: it chooses the form of the answer.
		case bytes.EqualFold(rest[0], []byte("with")):
			if !bytes.EqualFold(rest[1], []byte("details")) {
				return gatehouse.Errorf(gatehouse.CodeInvalid,
					"with is %s, want DETAILS", params.Quote(rest[1]))
			}
			c.details = true
		default:
			if err := f.Set(rest[0], rest[1]); err != nil {
				return err
			}
		}
	}
	c.Command = gatehouse.Command{Op: op, Keep: s.server.config.Keep}
	return f.Read(c.Key.Kind, &c.Command)
}

// parseKind reads the name of a kind in any letter case.
func parseKind(name []byte) (gatehouse.Kind, error) {
	kind, ok := gatehouse.ParseKind(string(name))
	if !ok {
		kind, ok = gatehouse.ParseKind(strings.ToLower(string(name)))
	}
	if !ok {
		return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "kind %s is unknown, want one such as gcra or lock",
			params.Quote(name))
	}
	return kind, nil
}
