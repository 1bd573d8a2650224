package resp

import (
	"context"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// How many names a list gives.
const (
	defaultPage = 100
	largestPage = 1000
)

// A page is what a list asks for.
type page struct {
	kind  gatehouse.Kind
	after string
	most  int
}

// list answers GH.LIST kind [AFTER name] [MOST n]. To find the names that come next all of them are
// looked at, which can take a tenth of a second. So this is not done by the event loop: the command
// blocks its own connection, as one that waits in line does.
func (s *session) list(args [][]byte) {
	p, err := readPage(args)
	if err != nil {
		s.loop.reply.fail(codes[gatehouse.CodeOf(err)], err.Error())
		return
	}
	s.besideLoop(func(ctx context.Context) *answer {
		names, err := s.server.config.Gate.Names(ctx, p.kind, p.after, p.most)
		return &answer{names: &names, err: err}
	})
}

// besideLoop has an answer made outside of the event loop, one at a time in all of the server.
func (s *session) besideLoop(produce func(context.Context) *answer) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiter{session: s, cancel: cancel, alone: true}
	w.state.Store(parked)
	s.enqueue(w)
	turn := s.server.config.Budget.List
	go func() { // ends with its answer, or soon after its client has gone
		if !turn.Begin(ctx) {
			return
		}
		a := produce(ctx)
		turn.End()
		w.settle(a)
	}()
}

// readPage reads the arguments of a list.
func readPage(args [][]byte) (p page, err error) {
	p.kind, err = parseKind(args[1])
	if err != nil {
		return p, err
	}
	p.most = defaultPage
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		option := word(rest[0])
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
