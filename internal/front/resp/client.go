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
	"github.com/gatehousehq/gatehouse/internal/glob"
)

// newClientCommands returns the subcommands of CLIENT. Clients send most of them as they connect,
// without being asked to. There is nothing to evict, touch or invalidate here, so that some have
// nothing to do.
func newClientCommands() map[string]*command {
	// The arity counts CLIENT and the subcommand. Those that do nothing check their word nevertheless: a
	// client that misspells it gets the error that Redis would send.
	sub := func(name string, arity int, summary string, run func(*session, [][]byte)) *command {
		return &command{name: name, arity: arity, summary: summary, run: run}
	}
	return commandTable(
		sub("CACHING", 3, "Does nothing.", eitherWord("YES", "NO")),
		sub("GETNAME", 2, "Answers this connection's name.", (*session).answerClientName),
		// -1 is Redis's answer while tracking is off, and it always is here.
		sub("GETREDIR", 2, "Answers -1.", func(s *session, _ [][]byte) { s.loop.reply.writeInteger(-1) }),
		sub("HELP", 2, "Answers this text.", (*session).clientHelp),
		sub("ID", 2, "Answers this connection's number.", func(s *session, _ [][]byte) {
			s.loop.reply.writeInteger(s.number)
		}),
		sub("INFO", 2, "Tells about this connection.", func(s *session, _ [][]byte) {
			me := clientRecord{s.number, s.client, s.clientIdentity()}
			s.loop.reply.writeVerbatim(me.listLine())
		}),
		sub("LIST", -2, "Tells about all connections: [TYPE normal] [ID number ...].",
			(*session).clientList),
		sub("NO-EVICT", 3, "Does nothing.", eitherWord("ON", "OFF")),
		sub("NO-TOUCH", 3, "Does nothing.", eitherWord("ON", "OFF")),
		sub("SETINFO", 4, "Notes the client's library: LIB-NAME name or LIB-VER version.",
			(*session).clientInfo),
		sub("SETNAME", 3, "Names this connection.", (*session).clientSetName),
		// More arguments may follow, such as REDIRECT or PREFIX. They would only say how to track.
		sub("TRACKING", -3, "Does nothing: nothing here is cached by clients.", eitherWord("ON", "OFF")),
	)
}

// answerClient answers CLIENT.
func (s *session) answerClient(args [][]byte) {
	c := findCommand(s.server.clients, args[1])
	switch {
	case c == nil:
		s.unknownSubcommand(args)
	case !c.acceptsArity(args):
		s.wrongArity("CLIENT|" + c.name)
	default:
		c.run(s, args)
	}
}

// unknownSubcommand answers a subcommand that a command does not have. Behind its error stands that HELP says
// which it has, so that every such command has that one.
func (s *session) unknownSubcommand(args [][]byte) {
	if c := findCommand(s.server.commands, args[0]); upperWord(args[1]) == "HELP" && len(args) == 2 {
		s.loop.reply.writeArray(1)
		s.loop.reply.writeSimple(c.name + " " + c.syntax)
		return
	}
	s.loop.reply.writeError("ERR", fmt.Sprintf("unknown subcommand '%.*s'. Try %s HELP.",
		longestQuote, args[1], upperWord(args[0])))
}

// eitherWord answers OK to one of two words.
func eitherWord(on, off string) func(*session, [][]byte) {
	return func(s *session, args [][]byte) {
		if choice := upperWord(args[2]); choice != on && choice != off {
			s.loop.reply.writeError("ERR", "syntax error")
			return
		}
		s.loop.reply.writeOK()
	}
}

func (s *session) answerClientName([][]byte) {
	if name := s.clientIdentity().name; name != "" {
		s.loop.reply.writeText(name)
		return
	}
	s.loop.reply.writeNull()
}

func (s *session) clientSetName(args [][]byte) {
	if s.validName(args[2]) {
		s.setName(args[2])
		s.loop.reply.writeOK()
	}
}

func (s *session) clientInfo(args [][]byte) {
	value := args[3]
	option := strings.ToLower(string(args[2]))
	// LIST shows these values in lines of words, so a space or a line end would forge fields.
	switch {
	case option != "lib-name" && option != "lib-ver":
		s.loop.reply.writeError("ERR", fmt.Sprintf("Unrecognized option '%.*s'", longestQuote, args[2]))
		return
	case len(value) > gatehouse.MaxName || !isVisible(value):
		s.loop.reply.writeError("ERR", option+" cannot contain spaces, newlines or special characters.")
		return
	}
	s.changeIdentity(func(who *identity) {
		if option == "lib-name" {
			who.library = string(value)
		} else {
			who.version = string(value)
		}
	})
	s.loop.reply.writeOK()
}

// clientList answers CLIENT LIST. Whatever the connections wait for, each is a normal one. There can be so
// many that the event loop has to leave it to a goroutine.
func (s *session) clientList(args [][]byte) {
	if err := s.user().Require(glob.Server, "clients", gatehouse.LevelRead, "to look at"); err != nil {
		s.answerRefused(err)
		return
	}
	var wanted []int64
	switch options := args[2:]; {
	case len(options) == 0:
	case upperWord(options[0]) == "TYPE" && len(options) == 2:
		if upperWord(options[1]) != "NORMAL" {
			s.loop.reply.writeVerbatim("")
			return
		}
	case upperWord(options[0]) == "ID" && len(options) > 1:
		for _, option := range options[1:] {
			n, err := strconv.ParseInt(string(option), 10, 64)
			if err != nil {
				s.loop.reply.writeError("ERR", "Invalid client ID")
				return
			}
			wanted = append(wanted, n)
		}
	default:
		s.loop.reply.writeError("ERR", "syntax error")
		return
	}
	// The goroutine may touch neither the session nor the writer, which belong to the event loop. It gets a
	// copy of the protocol's version and writes into an answer of its own.
	three := s.three
	s.answerInBackground(s.server.config.Budget.List, func(_ context.Context, a *laterReply) {
		r := replyWriter{three: three}
		if list, ok := s.server.listClients(wanted); ok {
			r.writeVerbatim(list)
		} else {
			r.writeError("ERR", fmt.Sprintf("the list has more than %d bytes; ask by ID", maxUnsent))
		}
		a.text = r.out
	})
}

// A clientRecord is what CLIENT LIST tells about one connection.
type clientRecord struct {
	number int64
	client netip.AddrPort
	who    identity
}

// listClients lists the connections with these numbers, or all without any. It reports false when the list is
// larger than what may be ready for one client.
func (s *Server) listClients(numbers []int64) (list string, ok bool) {
	clients := s.knownClients(numbers)
	slices.SortFunc(clients, func(a, b clientRecord) int { return cmp.Compare(a.number, b.number) })
	var text strings.Builder
	// A client may have asked for one number twice; it is listed once.
	for i := range slices.CompactFunc(clients, func(a, b clientRecord) bool { return a.number == b.number }) {
		text.WriteString(clients[i].listLine())
		if text.Len() > maxUnsent {
			return "", false
		}
	}
	return text.String(), true
}

// knownClients copies what is known of connections, under one lock for all of them: one for each would keep
// every event loop from opening and closing connections as often.
func (s *Server) knownClients(numbers []int64) []clientRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(numbers) == 0 {
		numbers = slices.Collect(maps.Keys(s.sessions))
	}
	// An unknown number is left out and no error: its connection may have just ended.
	clients := make([]clientRecord, 0, len(numbers))
	for _, number := range numbers {
		if session := s.sessions[number]; session != nil {
			clients = append(clients, session.clientRecord())
		}
	}
	return clients
}

// clientRecord returns what is known of a session. The server's lock is held.
func (s *session) clientRecord() clientRecord {
	k := clientRecord{number: s.number, client: s.client}
	if s.who != nil {
		k.who = *s.who
	}
	return k
}

// listLine is a connection in the list of clients.
func (k *clientRecord) listLine() string {
	return fmt.Sprintf("id=%d addr=%s name=%s flags=N db=0 user=%s lib-name=%s lib-ver=%s\n",
		k.number, k.client, k.who.name, cmp.Or(k.who.user, "default"), k.who.library, k.who.version)
}

func (s *session) clientHelp([][]byte) {
	lines := []string{"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, name := range slices.Sorted(maps.Keys(s.server.clients)) {
		lines = append(lines, name, "    "+s.server.clients[name].summary)
	}
	s.loop.reply.writeArray(len(lines))
	for _, line := range lines {
		s.loop.reply.writeSimple(line)
	}
}
