package resp

import (
	"context"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// How many names a list gives.
const (
	defaultPage = 100
	largestPage = 1000
)

// A listRequest is what a list asks for.
type listRequest struct {
	kind  gatehouse.Kind
	after string
	most  int
}

// answerList answers GH.LIST kind [AFTER name] [MOST n]. To find the names that come next all of them are
// looked at, which can take a tenth of a second. So this is not done by the event loop: the command
// blocks its own connection, as one that waits in line does.
func (s *session) answerList(args [][]byte) {
	p, err := readListRequest(args)
	if err != nil {
		s.loop.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		return
	}
	// The arguments lie in the read buffer, so the goroutine gets p, which has copies.
	s.answerInBackground(s.server.config.Budget.List, func(ctx context.Context, a *laterReply) {
		a.names, a.err = s.server.config.Gate.Names(ctx, p.kind, p.after, p.most)
	})
}

// answerInBackground has an answer made outside of the event loop, in its turn: one at a time in all of the
// server.
func (s *session) answerInBackground(turn budget.Mutex, produce func(ctx context.Context, a *laterReply)) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &laterReply{cancel: cancel}
	a.session, a.alone, a.later = s, true, a
	a.state.Store(parked)
	s.enqueueWaiter(&a.waiter)
	go func() { // ends with its answer, or soon after its client has gone
		// Somebody may have asked for thousands. Others are told in good time that theirs is not made.
		patience, stop := context.WithTimeout(ctx, s.server.config.WriteTimeout)
		defer stop()
		switch {
		case turn.Begin(patience):
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

// readListRequest reads the arguments of a list.
func readListRequest(args [][]byte) (p listRequest, err error) {
	p.kind, err = parseKind(args[1])
	if err != nil {
		return p, err
	}
	p.most = defaultPage
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		option := upperWord(rest[0])
		// A word without its value and an unknown word have one error, which says what is wanted.
		if len(rest) == 1 || option != "AFTER" && option != "MOST" {
			return p, gatehouse.Errorf(gatehouse.CodeInvalid,
				"list has %s, want kind [AFTER name] [MOST n]", params.Quote(rest[0]))
		}
		if option == "AFTER" {
			p.after = string(rest[1])
			continue
		}
		p.most, err = strconv.Atoi(string(rest[1]))
		if err != nil || p.most < 1 || p.most > largestPage {
			return p, gatehouse.Errorf(gatehouse.CodeInvalid,
				"most is %s, want a whole number from 1 to %d", params.Quote(rest[1]), largestPage)
		}
	}
	return p, nil
}
