package resp

import (
	"bytes"
	"strconv"

	"github.com/gatehousehq/gatehouse"
)

// compatible is the version of Redis whose commands for connections are followed. Clients ask for it to
// know what they may send.
const compatible = "7.2.0"

// connectionCommands are those about the connection itself.
func connectionCommands() []*command {
	const group = "connection"
	// The flags follow Redis; those for scripts and replicas are left out.
	return []*command{
		{"PING", -1, []string{fast}, false, group, "[message]",
			"Answers PONG, or its argument.", (*session).answerPing},
		{"ECHO", 2, []string{fast, loading}, false, group, "message",
			"Answers its argument.", (*session).answerEcho},
		{"QUIT", -1, []string{fast, noAuth, loading}, false, group, "",
			"Closes the connection.", (*session).answerQuit},
		{"HELLO", -1, []string{fast, noAuth, loading}, false, group,
			"[version] [AUTH user password] [SETNAME name]",
			"Chooses the version of the protocol.", (*session).answerHello},
		{"AUTH", -2, []string{fast, noAuth, loading}, false, group, "[user] password",
			"Says who this connection is, by a token.", (*session).answerAuth},
		{"ACL", -2, []string{loading}, false, group, "WHOAMI",
			"Answers who this connection is.", (*session).answerACL},
		{"SELECT", 2, []string{fast, loading}, false, group, "database",
			"Selects database 0, the only one.", (*session).answerSelect},
		{"RESET", 1, []string{fast, noAuth, loading}, false, group, "",
			"Makes the connection as it was at first.", (*session).answerReset},
		{"CLIENT", -2, []string{loading}, false, group, "subcommand [argument ...]",
			"Tells about connections; CLIENT HELP says what.", (*session).answerClient},
	}
}

func (s *session) answerPing(args [][]byte) {
	switch len(args) {
	case 1:
		s.loop.reply.writeSimple("PONG")
	case 2:
		s.loop.reply.writeBulk(args[1])
	default:
		s.wrongArity("PING")
	}
}

func (s *session) answerEcho(args [][]byte) { s.loop.reply.writeBulk(args[1]) }

func (s *session) answerQuit([][]byte) {
	s.loop.reply.writeOK()
	s.last = true
}

func (s *session) answerReset([][]byte) {
	// There are no transactions, subscriptions or tracking to end, as there are in Redis.
	s.setProtocol(false)
	s.changeIdentity(func(who *identity) { who.name = "" })
	s.admitUser()
	s.loop.reply.writeSimple("RESET")
}

// setProtocol chooses the version of the protocol.
func (s *session) setProtocol(three bool) {
	// The loop's writer is changed, too: the rest of this pipeline is answered in the new version.
	s.three = three
	s.loop.reply.three = three
}

// answerSelect answers SELECT.
func (s *session) answerSelect(args [][]byte) {
	n, err := strconv.Atoi(string(args[1]))
	switch {
	case err != nil:
		s.loop.reply.writeError("ERR", "value is not an integer or out of range")
	case n != 0:
		s.loop.reply.writeError("ERR", "DB index is out of range")
	default:
		s.loop.reply.writeOK()
	}
}

// answerAuth logs the connection in. Without users it answers as a Redis whose default user has no password.
func (s *session) answerAuth(args [][]byte) {
	switch {
	case len(args) > 3:
		s.loop.reply.writeError("ERR", "syntax error")
	case s.account() != nil:
		name := ""
		if len(args) == 3 {
			name = string(args[1])
		}
		l := s.readLogin(name, args[len(args)-1])
		if l != nil && s.logIn(l) {
			s.loop.reply.writeOK()
		}
	// Word for word as Redis, which libraries look for.
	case len(args) == 2:
		s.loop.reply.writeError("ERR", "AUTH <password> called without any password configured for the "+
			"default user. Are you sure your configuration is correct?")
	case !s.knownUser(args[1]):
	default:
		s.loop.reply.writeOK()
	}
}

// knownUser refuses all users except the default one, which any password opens.
func (s *session) knownUser(name []byte) bool {
	if string(name) == "default" {
		return true
	}
	s.loop.reply.writeError("WRONGPASS", "invalid username-password pair or user is disabled.")
	return false
}

// answerHello answers HELLO [version [AUTH user password] [SETNAME name]].
func (s *session) answerHello(args [][]byte) {
	// Nothing changes before all arguments are read: a HELLO that is refused leaves the version as it was.
	three := s.three
	if len(args) > 1 {
		version, err := strconv.Atoi(string(args[1]))
		switch {
		case err != nil:
			s.loop.reply.writeError("ERR", "Protocol version is not an integer or out of range")
			return
		case version != 2 && version != 3:
			s.loop.reply.writeError("NOPROTO", "unsupported protocol version")
			return
		}
		three = version == 3
		if !s.helloOptions(args[2:]) {
			return
		}
	}
	if s.lacksSender() {
		s.loop.reply.writeError("NOAUTH", helloText)
		return
	}
	// The answer itself is written in the new version already, which is how clients tell that it is spoken.
	s.setProtocol(three)
	r := &s.loop.reply
	r.writeMap(7)
	r.writeTexts("server", "gatehouse", "version", compatible)
	r.writePair("proto", int64(2+boolToInt(three)))
	r.writePair("id", s.number)
	// There is no cluster and no replication, so each server answers as a Redis that stands alone.
	r.writeTexts("mode", "standalone", "role", "master", "modules")
	r.writeArray(0)
}

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// helloOptions reads what comes behind the version, and does nothing if any of it is wrong.
func (s *session) helloOptions(options [][]byte) bool {
	var name []byte
	var login *sessionLogin
	for len(options) > 0 {
		switch option := upperWord(options[0]); {
		case option == "AUTH" && len(options) > 2 && s.account() != nil:
			login = s.readLogin(string(options[1]), options[2])
			if login == nil {
				return false
			}
			options = options[3:]
		// The default user has no password, so options[2] may be anything.
		case option == "AUTH" && len(options) > 2:
			if !s.knownUser(options[1]) {
				return false
			}
			options = options[3:]
		case option == "SETNAME" && len(options) > 1:
			// The name is set last: an option behind it may still be wrong, and then HELLO did nothing.
			name = options[1]
			if !s.validName(name) {
				return false
			}
			options = options[2:]
		default:
			s.loop.reply.writeError("ERR", "Syntax error in HELLO option '"+string(options[0])+"'")
			return false
		}
	}
	if login != nil && !s.logIn(login) {
		return false
	}
	if name != nil {
		s.setName(name)
	}
	return true
}

// validName refuses a connection's name that would break the list of clients.
func (s *session) validName(name []byte) bool {
	if len(name) > gatehouse.MaxName || !isVisible(name) {
		s.loop.reply.writeError("ERR", "Client names cannot contain spaces, newlines or special characters.")
		return false
	}
	return true
}

// isVisible reports whether a text is of letters, digits and signs alone.
func isVisible(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' })
}

func (s *session) setName(name []byte) {
	s.changeIdentity(func(who *identity) { who.name = string(name) })
}

// changeIdentity changes what the client says about itself.
func (s *session) changeIdentity(change func(*identity)) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.who == nil {
		s.who = new(identity)
	}
	change(s.who)
}

// clientIdentity returns what the client says about itself.
func (s *session) clientIdentity() identity {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.who == nil {
		return identity{}
	}
	return *s.who
}
