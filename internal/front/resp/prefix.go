package resp

import (
	"context"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// mostDeleted is how many names one command deletes at most.
const mostDeleted = 1000

// deletePrefix answers GH.DELETEPREFIX kind prefix CONFIRM kind [AFTER name] with how many names it has
// deleted, and the name after which to go on. It blocks its own connection, as a list does.
func (s *session) deletePrefix(args [][]byte) {
	p, err := readPrefix(args)
	if err != nil {
		s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		return
	}
	s.answerInBackground(s.server.config.Budget.Deletion, func(ctx context.Context, a *laterReply) {
		deleted, next, err := s.server.config.Gate.DeletePrefix(ctx, p, mostDeleted)
		// The second is empty when none are left, so that a client can loop until then.
		a.names, a.err = []string{strconv.Itoa(deleted), next}, err
	})
}

// readPrefix reads the arguments.
func readPrefix(args [][]byte) (p gate.Prefix, err error) {
	p.Kind, err = parseKind(args[1])
	if err != nil {
		return p, err
	}
	const want = "want kind prefix CONFIRM kind [AFTER name]"
	p.Prefix = string(args[2])
	// An empty prefix would be all names of the kind, more likely a variable that was not set.
	if p.Prefix == "" {
		return p, gatehouse.Errorf(gatehouse.CodeInvalid, "prefix is empty, %s", want)
	}
	// The kind is given twice on purpose: deleting cannot be undone.
	if upperWord(args[3]) != "CONFIRM" || string(args[4]) != p.Kind.String() {
		return p, gatehouse.Errorf(gatehouse.CodeInvalid,
			"names that begin with %s are deleted only with CONFIRM %s", params.Quote(args[2]), p.Kind)
	}
	switch rest := args[5:]; {
	case len(rest) == 2 && upperWord(rest[0]) == "AFTER":
		p.After = string(rest[1])
	case len(rest) > 0:
		return p, gatehouse.Errorf(gatehouse.CodeInvalid, "command has %s, %s", params.Quote(rest[0]), want)
	}
	return p, nil
}
