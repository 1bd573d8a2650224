package resp

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A command is what clients can ask for.
type command struct {
	name string
	// arity is the number of arguments, the name included; below 0, that of the least.
	arity int
	flags []string
	// keyed says that the first argument after the name is a key, by which a client can spread commands
	// over several servers.
	keyed   bool
	group   string
	syntax  string // of what follows the name: words, and in brackets what may be left out
	summary string
	run     func(s *session, args [][]byte)
}

// The flags of commands, as COMMAND tells them.
const (
	fast     = "fast"
	writes   = "write"
	readonly = "readonly"
	blocking = "blocking"
	loading  = "loading"
	noAuth   = "no_auth"
)

// longestName is more than any command's name has.
const longestName = 32

// commandTable returns commands by their names.
func commandTable(commands ...*command) map[string]*command {
	t := make(map[string]*command, len(commands))
	for _, c := range commands {
		t[c.name] = c
	}
	return t
}

// newCommands returns all commands there are.
func newCommands() map[string]*command {
	all := append(connectionCommands(), serverCommands()...)
	all = append(all, throttleCommands()...)
	return commandTable(append(all, nativeCommands()...)...)
}

// findCommand returns the command with a name in any letter case, nil when there is none.
func findCommand(in map[string]*command, name []byte) *command {
	// An array on the stack, so that looking up a command allocates nothing.
	var upper [longestName]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, c := range name {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	return in[string(upper[:len(name)])]
}

func (c *command) acceptsArity(args [][]byte) bool {
	return len(args) == c.arity || c.arity < 0 && len(args) >= -c.arity
}

// grantCommand is the command about several names. It is the only one that asks for a decision and has no key
// by which it could be sent to one of several servers.
const grantCommand = "GH.GRANT"

// decides reports whether a command asks for a decision that may take time.
func (c *command) decides() bool {
	return c.keyed && c.group != rateGroup || c.name == grantCommand
}

// runCommand answers one command, or queues its answer behind the answers that are still under way. It
// reports false when the command must be read again later: those have to be answered first, or the loop has
// no time for it now.
func (s *session) runCommand(args [][]byte) bool {
	l := s.loop
	// Pipelines mostly repeat one command, which is looked up once. Unknown names are remembered, too.
	if !bytes.Equal(args[0], l.latestName) {
		l.latest = findCommand(s.server.commands, args[0])
		l.latestName = append(l.latestName[:0], args[0]...)
	}
	c := l.latest
	if l.share.putsOff(c) {
		return false
	}
	// Answers have the order of their commands: before anything that does not fit into the batch, the batch
	// is decided. On a slow store that submits it, so s.waiting is looked at only after this.
	if c == nil || c.group != rateGroup || l.batch.n > 0 && !l.batch.acceptsCommand(s, args) {
		s.decideBatch()
	}
	if s.waiting != nil && !s.mayOverlap(c, args) {
		return false
	}
	from, rated := len(l.reply.out), l.rated
	l.rated = nil
	switch {
	case c != nil && s.account() != nil && s.refuses(c):
	// The same command for a rate again, perhaps for another key.
	case rated != nil && rated == c && l.parser.repeated:
		s.limitRate(args[1], &l.batch.wanted)
	case c == nil:
		s.answerUnknown(args)
	case !c.acceptsArity(args):
		s.wrongArity(c.name)
	default:
		c.run(s, args)
	}
	// What was just written belongs behind the answers that are under way, not before them.
	if s.waiting != nil {
		s.queueReply(from)
	}
	return true
}

func (s *session) wrongArity(name string) {
	s.answerError("ERR",
		fmt.Sprintf("wrong number of arguments for '%s' command", strings.ToLower(name)))
}

// longestQuote is how much of an unknown command is repeated.
const longestQuote = 128

// answerUnknown answers a command that there is none of, in Redis's words. What looks like HTTP is sent by a
// browser that was tricked into it, and may have commands of an attacker in its body.
func (s *session) answerUnknown(args [][]byte) {
	if name := strings.ToUpper(string(args[0])); name == "POST" || name == "HOST:" {
		s.last = true
		return
	}
	// Clients log errors. With users the arguments may be a token, behind a misspelled AUTH.
	if s.account() != nil {
		s.loop.reply.writeError("ERR", fmt.Sprintf("unknown command '%.*s'", longestQuote, args[0]))
		return
	}
	// The answer repeats at most longestQuote bytes of the arguments, however long the command was.
	var rest strings.Builder
	for _, arg := range args[1:] {
		if rest.Len() >= longestQuote {
			break
		}
		fmt.Fprintf(&rest, "'%.*s' ", longestQuote-rest.Len(), arg)
	}
	s.loop.reply.writeError("ERR", fmt.Sprintf("unknown command '%.*s', with args beginning with: %s",
		longestQuote, args[0], rest.String()))
}

// upperWord returns an argument in upper case, as keywords are read.
func upperWord(arg []byte) string { return strings.ToUpper(string(arg)) }

// summaries say what each operation does.
var summaries = [gatehouse.OpUndo]string{
	gatehouse.OpAcquire:  "Takes tokens, slots or the lock, and waits for them up to MAXWAIT milliseconds.",
	gatehouse.OpRelease:  "Gives back the slots or the lock that KEY holds, or ends a grant.",
	gatehouse.OpRenew:    "Extends the hold of KEY, or a grant, to EXPIRES milliseconds from now.",
	gatehouse.OpWait:     "Waits for an event, for a watchdog to fire, or for a barrier to open.",
	gatehouse.OpSend:     "Sends an event and its MESSAGE to all present and later waiters.",
	gatehouse.OpKick:     "Tells a watchdog that all is well for EXPIRES milliseconds.",
	gatehouse.OpCount:    "Adds AMOUNT to a counter.",
	gatehouse.OpValue:    "Reads a counter.",
	gatehouse.OpReset:    "Sets a counter to VALUE, or clears what was taken from a limiter.",
	gatehouse.OpPeek:     "Replies as an acquire would, and takes nothing.",
	gatehouse.OpDelay:    "Replies how many milliseconds to wait for an acquire, and takes nothing.",
	gatehouse.OpReserve:  "Takes the earliest free place, and replies the milliseconds until then.",
	gatehouse.OpCancel:   "Gives back the place that KEY reserved.",
	gatehouse.OpRefund:   "Gives back COST of what was taken.",
	gatehouse.OpCharge:   "Charges COST that was spent already; any amount beyond the limit is a debt.",
	gatehouse.OpTopUp:    "Adds to what a grant has taken of limiters, and waits only with a MAXWAIT.",
	gatehouse.OpSettle:   "Says what a grant has cost so far of limiters; the last time counts.",
	gatehouse.OpStats:    "Reads the statistics of any controller.",
	gatehouse.OpDelete:   "Deletes any controller; waiting commands fail with DELETED.",
	gatehouse.OpEvict:    "Has the hold with an ID end with its term, or with NOW true at once.",
	gatehouse.OpBump:     "Puts the waiter with an ID in front of those that wait at this server.",
	gatehouse.OpClose:    "Has nothing granted until GH.OPEN; REASON is told to who is refused.",
	gatehouse.OpOpen:     "Opens a name that was closed.",
	gatehouse.OpHolders:  "Lists who holds, LIMIT at a time, AFTER an id.",
	gatehouse.OpWaiters:  "Lists who waits at this server, LIMIT at a time, AFTER an id.",
	gatehouse.OpFeedback: "Tells with which STATUS a third party answered: 429 pauses a limiter for all.",
}

// nativeCommands are GH.<OP> for every operation, GH.LIST and GH.DELETEPREFIX.
func nativeCommands() []*command {
	const group = "gatehouse"
	all := []*command{{"GH.LIST", -2, []string{readonly}, false, group,
		"kind [AFTER name] [MOST n] [PREFIX text] [WITH DETAILS]",
		"Lists the names of a kind, in order.", (*session).answerList},
		{"GH.CYCLES", 1, []string{readonly}, false, group, "",
			"Lists owners that wait for each other.", (*session).answerCycles},
		{"GH.EXPLAIN", 2, []string{readonly, fast}, false, group, "id | LAST",
			"Explains a refusal by its id, or the last one of this connection.", (*session).answerExplain},
		{"GH.DELETEPREFIX", -5, []string{writes}, false, group, "kind prefix CONFIRM kind [AFTER name]",
			"Deletes the first 1000 names of a kind that begin alike.", (*session).deletePrefix},
		{grantCommand, -3, []string{writes, blocking}, false, group,
			"[PARAMETER value ...] WANT kind/name [PARAMETER value ...] [WANT ...]",
			"Takes all of several names or none, and waits for them up to MAXWAIT milliseconds.",
			(*session).acquireGrant}}
	// OpUndo, the last operation, is for gates alone.
	for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
		flags := []string{writes}
		if op.Reads() {
			flags = []string{readonly}
		}
		least, syntax := -2, "kind/name [PARAMETER value ...]"
		if op == gatehouse.OpTopUp || op == gatehouse.OpSettle {
			least, syntax = -4, "grant/id kind/name n [kind/name n ...] [PARAMETER value ...]"
		}
		if op.Waits() || op == gatehouse.OpTopUp {
			flags = append(flags, blocking)
		}
		all = append(all, &command{"GH." + strings.ToUpper(op.String()), least, flags, true, group,
			syntax, summaries[op],
			func(s *session, args [][]byte) { s.answerNative(op, args) }})
	}
	return all
}

// answerNative answers GH.<OP> kind/name [PARAMETER value ...].
func (s *session) answerNative(op gatehouse.Op, args [][]byte) {
	if isGrant(args[1]) && gatehouse.Grant.Has(op) && op != gatehouse.OpAcquire && op < gatehouse.OpStats {
		s.changeGrant(op, args)
		return
	}
	l := s.loop
	c := l.takeCall()
	if err := s.readRequest(c, op, args); err != nil {
		s.countAnswer(c.Key, op, nil, err)
		l.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		l.recycleCall(c)
		return
	}
	parents, err := l.params.Parents(c.Key)
	if err != nil {
		s.countAnswer(c.Key, op, nil, err)
		l.reply.writeError(codes[gatehouse.CodeOf(err)], err.Error())
		l.recycleCall(c)
		return
	}
	if parents != nil {
		s.submitLevels(c, parents)
		return
	}
	// A hold is not acquired for a client that would never read of it.
	if params.TakesForClient(c.Command.Op, c.Key.Kind, false) && s.hungUp() {
		s.server.metrics.Hangups.Inc()
		s.last = true
		l.recycleCall(c)
		return
	}
	if !s.enterCall(c) {
		l.recycleCall(c)
		return
	}
	s.submitCall(c)
}

// readRequest reads the arguments of a command into the call.
func (s *session) readRequest(c *nativeCall, op gatehouse.Op, args [][]byte) error {
	c.Key, c.details, c.progress = gatehouse.Key{}, false, false
	kind, name, ok := bytes.Cut(args[1], []byte{'/'})
	if !ok {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s has %s, want kind/name, such as gcra/user:1",
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
	f.Reset()
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) == 1:
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s has no value, want PARAMETER value", params.Quote(rest[0]))
		// WITH is no parameter of the operation: it chooses the form of the answer.
		case bytes.EqualFold(rest[0], []byte("with")):
			if err := c.setForm(rest[1]); err != nil {
				return err
			}
		default:
			if err := f.Set(rest[0], rest[1]); err != nil {
				return err
			}
		}
	}
	c.Command = gatehouse.Command{Op: op, Keep: s.server.config.Keep}
	err = f.Read(c.Key.Kind, &c.Command)
	c.Command.Explain = c.explains()
	if c.progress && err == nil && (!s.three || c.heldBy() == "" || !f.HasKey()) {
		return errPushes
	}
	return err
}

// setForm notes how a call is to be answered.
func (c *nativeCall) setForm(word []byte) error {
	switch {
	case bytes.EqualFold(word, []byte("details")):
		c.details = true
	case bytes.EqualFold(word, []byte("progress")):
		c.progress = true
	default:
		return gatehouse.Errorf(gatehouse.CodeInvalid, "with is %s, want DETAILS or PROGRESS",
			params.Quote(word))
	}
	return nil
}

// parseKind reads the name of a kind in any letter case.
func parseKind(name []byte) (gatehouse.Kind, error) {
	kind, ok := gatehouse.ParseKind(string(name))
	if !ok {
		kind, ok = gatehouse.ParseKind(strings.ToLower(string(name)))
	}
	if kind == gatehouse.Grant && ok {
		return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "grants have GH.GRANT, and GH.PEEK, "+
			"RENEW, TOPUP, SETTLE and RELEASE with grant/id, and no other command")
	}
	if !ok {
		return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "kind %s is unknown, want one such as gcra or lock",
			params.Quote(name))
	}
	return kind, nil
}
