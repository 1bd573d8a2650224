package resp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// newClientCommands returns the subcommands of CLIENT. Clients send most of them as they connect,
// without being asked to. There is nothing to evict, touch or invalidate here, so that some have
// nothing to do.
func newClientCommands() map[string]*command {
	sub := func(name string, arity int, summary string, run func(*session, [][]byte)) *command {
		return &command{name: name, arity: arity, summary: summary, run: run}
	}
	return table(
		sub("CACHING", 3, "Does nothing.", onOff("YES", "NO")),
		sub("GETNAME", 2, "Answers this connection's name.", (*session).clientName),
		sub("GETREDIR", 2, "Answers -1.", func(s *session, _ [][]byte) { s.loop.reply.integer(-1) }),
		sub("HELP", 2, "Answers this text.", (*session).clientHelp),
		sub("ID", 2, "Answers this connection's number.", func(s *session, _ [][]byte) {
			s.loop.reply.integer(s.number)
		}),
		sub("INFO", 2, "Tells about this connection.", func(s *session, _ [][]byte) {
			me := known{s.number, s.client, s.identity()}
			s.loop.reply.plain(me.line())
		}),
		sub("LIST", -2, "Tells about all connections: [TYPE normal] [ID number ...].",
			(*session).clientList),
		sub("NO-EVICT", 3, "Does nothing.", onOff("ON", "OFF")),
		sub("NO-TOUCH", 3, "Does nothing.", onOff("ON", "OFF")),
		sub("SETINFO", 4, "Notes the client's library: LIB-NAME name or LIB-VER version.",
			(*session).clientInfo),
		sub("SETNAME", 3, "Names this connection.", (*session).clientSetName),
		sub("TRACKING", -3, "Does nothing: nothing here is cached by clients.", onOff("ON", "OFF")),
	)
}

// aboutClient answers CLIENT.
func (s *session) aboutClient(args [][]byte) {
	c := find(s.server.clients, args[1])
	switch {
	case c == nil:
		s.unknownSubcommand(args)
	case !c.takes(args):
		s.wrongArity("CLIENT|" + c.name)
	default:
		c.run(s, args)
	}
}

func (s *session) unknownSubcommand(args [][]byte) {
	s.loop.reply.fail("ERR", fmt.Sprintf("unknown subcommand '%.*s'. Try %s HELP.",
		longestQuote, args[1], word(args[0])))
}

// onOff answers OK to one of two words.
func onOff(on, off string) func(*session, [][]byte) {
	return func(s *session, args [][]byte) {
		if choice := word(args[2]); choice != on && choice != off {
			s.loop.reply.fail("ERR", "syntax error")
			return
		}
		s.loop.reply.ok()
	}
}

func (s *session) clientName([][]byte) {
	if name := s.identity().name; name != "" {
		s.loop.reply.text(name)
		return
	}
	s.loop.reply.null()
}

func (s *session) clientSetName(args [][]byte) {
	if s.validName(args[2]) {
		s.setName(args[2])
		s.loop.reply.ok()
	}
}

func (s *session) clientInfo(args [][]byte) {
	value := args[3]
	option := strings.ToLower(string(args[2]))
	switch {
	case option != "lib-name" && option != "lib-ver":
		s.loop.reply.fail("ERR", fmt.Sprintf("Unrecognized option '%.*s'", longestQuote, args[2]))
		return
	case len(value) > gatehouse.MaxName || !visible(value):
		s.loop.reply.fail("ERR", option+" cannot contain spaces, newlines or special characters.")
		return
	}
	s.identify(func(who *identity) {
		if option == "lib-name" {
			who.library = string(value)
		} else {
			who.version = string(value)
		}
	})
	s.loop.reply.ok()
}

// clientList answers CLIENT LIST. Whatever the connections wait for, each is a normal one. There can be so
// many that the event loop has to leave it to a goroutine.
func (s *session) clientList(args [][]byte) {
	var wanted []int64
	switch options := args[2:]; {
	case len(options) == 0:
	case word(options[0]) == "TYPE" && len(options) == 2:
		if word(options[1]) != "NORMAL" {
			s.loop.reply.plain("")
			return
		}
	case word(options[0]) == "ID" && len(options) > 1:
		for _, option := range options[1:] {
			n, err := strconv.ParseInt(string(option), 10, 64)
			if err != nil {
				s.loop.reply.fail("ERR", "Invalid client ID")
				return
			}
			wanted = append(wanted, n)
		}
	default:
		s.loop.reply.fail("ERR", "syntax error")
		return
	}
	three := s.three
	s.besideLoop(func(context.Context) *answer {
		r := reply{three: three}
		if list, ok := s.server.listClients(wanted); ok {
			r.plain(list)
		} else {
			r.fail("ERR", fmt.Sprintf("the list has more than %d bytes; ask by ID", maxUnsent))
		}
		return &answer{text: r.out}
	})
}

// A known client is what CLIENT LIST tells about one connection.
type known struct {
	number int64
	client netip.AddrPort
	who    identity
}

// listClients lists the connections with these numbers, or all without any. It reports false when the list is
// larger than what may be ready for one client.
func (s *Server) listClients(numbers []int64) (list string, ok bool) {
	clients := s.knownClients(numbers)
	slices.SortFunc(clients, func(a, b known) int { return cmp.Compare(a.number, b.number) })
	var text strings.Builder
	for i := range slices.CompactFunc(clients, func(a, b known) bool { return a.number == b.number }) {
		text.WriteString(clients[i].line())
		if text.Len() > maxUnsent {
			return "", false
		}
	}
	return text.String(), true
}

// knownClients copies what is known of connections, under one lock for all of them: one for each would keep
// every event loop from opening and closing connections as often.
func (s *Server) knownClients(numbers []int64) []known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(numbers) == 0 {
		clients := make([]known, 0, len(s.sessions))
		for _, session := range s.sessions {
			clients = append(clients, session.known())
		}
		return clients
	}
	clients := make([]known, 0, len(numbers))
	for _, number := range numbers {
		if session := s.sessions[number]; session != nil {
			clients = append(clients, session.known())
		}
	}
	return clients
}

// known returns what is known of a session. The server's lock is held.
func (s *session) known() known {
	k := known{number: s.number, client: s.client}
	if s.who != nil {
		k.who = *s.who
	}
	return k
}

// line is a connection in the list of clients.
func (k *known) line() string {
	return fmt.Sprintf("id=%d addr=%s name=%s flags=N db=0 user=default lib-name=%s lib-ver=%s\n",
		k.number, k.client, k.who.name, k.who.library, k.who.version)
}

func (s *session) clientHelp([][]byte) {
	lines := []string{"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, name := range slices.Sorted(maps.Keys(s.server.clients)) {
		lines = append(lines, name, "    "+s.server.clients[name].summary)
	}
	s.loop.reply.array(len(lines))
	for _, line := range lines {
		s.loop.reply.simple(line)
	}
}
