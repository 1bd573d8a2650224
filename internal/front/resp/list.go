package resp

import (
	"context"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// How many names a list gives.
const (
	defaultPage = 100
	largestPage = 1000
)

// answerList answers GH.LIST kind [AFTER name] [MOST n]. To find the names that come next all of them are
// looked at, which can take a tenth of a second. So this is not done by the event loop: the command
// blocks its own connection, as one that waits in line does.
func (s *session) answerList(args [][]byte) {
	list, err := readListRequest(args)
	if err != nil {
		s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		return
	}
	if list.details || list.Prefix.Prefix != "" || s.account() != nil {
		s.answerDescribed(&list)
		return
	}
	// The arguments lie in the read buffer, so the goroutine gets the list, which has copies.
	s.answerInBackground(s.server.config.Budget.List, func(ctx context.Context, a *laterReply) {
		a.names, a.err = s.server.config.Gate.Names(ctx, list.Kind, list.After, list.most)
	})
}

// answerInBackground has an answer made outside of the event loop, in its turn: one at a time in all of the
// server.
func (s *session) answerInBackground(turn budget.Mutex, produce func(ctx context.Context, a *laterReply)) {
	if s.ended { // as in endInput
		s.broken = true
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &laterReply{cancel: cancel}
	a.session, a.alone, a.later = s, true, a
	a.state.Store(parked)
	s.enqueueWaiter(&a.waiter)
	go func() { // ends with its answer, or soon after its client has gone
		// Somebody may have asked for thousands. Others are told in good time that theirs is not made.
		switch {
		case turn.BeginWithin(ctx, s.server.config.WriteTimeout):
			produce(ctx, a)
			turn.End()
		case ctx.Err() != nil:
			return
		default:
			a.err = gatehouse.Errorf(gatehouse.CodeExhausted,
				"server makes one such answer at a time, and others came first; try again soon")
		}
		a.setDecided()
	}()
}

// A listRequest is which names to list: of one kind, behind a name, with a prefix, and how many at most.
type listRequest struct {
	gate.Prefix
	most    int
	details bool
}

// readListRequest reads the arguments of a list.
func readListRequest(args [][]byte) (list listRequest, err error) {
	list.most = defaultPage
	list.Kind, err = parseKind(args[1])
	for rest := args[2:]; err == nil && len(rest) > 0; rest = rest[2:] {
		known := len(rest) > 1
		if known {
			known, err = list.readOption(upperWord(rest[0]), rest[1])
		}
		// A word without its value and an unknown word have one error, which says what is wanted.
		if !known {
			return list, gatehouse.Errorf(gatehouse.CodeInvalid,
				"list has %s, want kind [AFTER name] [MOST n] [PREFIX text] [WITH DETAILS]",
				params.Quote(rest[0]))
		}
	}
	return list, err
}

// readOption reads one option. known is false if there is none of this name.
func (l *listRequest) readOption(option string, value []byte) (known bool, err error) {
	switch option {
	case "AFTER":
		l.After = string(value)
	case "PREFIX":
		l.Prefix.Prefix = string(value)
	case "WITH":
		// Another word behind WITH is an unknown option, and not one with a wrong value.
		l.details = upperWord(value) == "DETAILS"
		return l.details, nil
	case "MOST":
		var wrong error
		l.most, wrong = strconv.Atoi(string(value))
		if wrong != nil || l.most < 1 || l.most > largestPage {
			return true, gatehouse.Errorf(gatehouse.CodeInvalid,
				"most is %s, want a whole number from 1 to %d", params.Quote(value), largestPage)
		}
	default:
		return false, nil
	}
	return true, nil
}

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
	user := s.user()
	if err := user.RequireAll(p.Kind, p.Prefix, gatehouse.LevelManage, "to delete"); err != nil {
		s.answerRefused(err)
		return
	}
	p.Prefix = user.Inside(p.Prefix)
	if p.After != "" {
		p.After = user.Inside(p.After)
	}
	s.answerInBackground(s.server.config.Budget.Deletion, func(ctx context.Context, a *laterReply) {
		deleted, next, err := s.server.config.Gate.DeletePrefix(ctx, p, mostDeleted)
		next, _ = user.Outside(next)
		err = user.HideError(err)
		if err == nil {
			user.Audit("delete", p.Kind.String()+"/"+p.Prefix+"*", s.client.Addr())
		}
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
