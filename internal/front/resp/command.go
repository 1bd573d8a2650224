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

// table returns commands by their names.
func table(commands ...*command) map[string]*command {
	t := make(map[string]*command, len(commands))
	for _, c := range commands {
		t[c.name] = c
	}
	return t
}

// newCommands returns all commands there are.
func newCommands() map[string]*command {
	all := append(connectionCommands(), describeCommands()...)
	all = append(all, throttleCommands()...)
	return table(append(all, nativeCommands()...)...)
}

// find returns the command with a name in any letter case, nil when there is none.
func find(in map[string]*command, name []byte) *command {
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

func (c *command) takes(args [][]byte) bool {
	return len(args) == c.arity || c.arity < 0 && len(args) >= -c.arity
}

// run answers one command, or sees to it that it is answered in its turn. It reports false when that has to
// be tried again, because its turn to be looked at has not come.
func (s *session) run(args [][]byte) bool {
	l := s.loop
	if !bytes.Equal(args[0], l.latestName) {
		l.latest = find(s.server.commands, args[0])
		l.latestName = append(l.latestName[:0], args[0]...)
	}
	c := l.latest
	if c == nil || c.group != rateGroup || l.batch.n > 0 && !l.batch.takes(args) {
		s.settle()
	}
	if s.waiting != nil && !s.beside(c, args) {
		return false
	}
	from := len(l.reply.out)
	switch {
	case c == nil:
		s.unknown(args)
	case !c.takes(args):
		s.wrongArity(c.name)
	default:
		c.run(s, args)
	}
	if s.waiting != nil {
		s.putOff(from)
	}
	return true
}

func (s *session) wrongArity(name string) {
	s.fail("ERR",
		fmt.Sprintf("wrong number of arguments for '%s' command", strings.ToLower(name)))
}

// longestQuote is how much of an unknown command is repeated.
const longestQuote = 128

// unknown answers a command that there is none of, in Redis's words. What looks like HTTP is sent by a
// browser that somebody tricked into it, and may have commands of theirs in its body.
func (s *session) unknown(args [][]byte) {
	if name := strings.ToUpper(string(args[0])); name == "POST" || name == "HOST:" {
		s.last = true
		return
	}
	var rest strings.Builder
	for _, arg := range args[1:] {
		if rest.Len() >= longestQuote {
			break
		}
		fmt.Fprintf(&rest, "'%.*s' ", longestQuote-rest.Len(), arg)
	}
	s.loop.reply.fail("ERR", fmt.Sprintf("unknown command '%.*s', with args beginning with: %s",
		longestQuote, args[0], rest.String()))
}

// word returns an argument in upper case, as keywords are read.
func word(arg []byte) string { return strings.ToUpper(string(arg)) }
