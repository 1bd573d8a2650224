package resp

import (
	"bytes"
	"fmt"
	"strings"
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
	if c == nil || c.group != rateGroup || l.batch.n > 0 && !l.batch.acceptsCommand(args) {
		s.decideBatch()
	}
	if s.waiting != nil && !s.mayOverlap(c, args) {
		return false
	}
	from := len(l.reply.out)
	switch {
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
