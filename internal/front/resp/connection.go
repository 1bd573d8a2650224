package resp

import (
	"strconv"

	"github.com/gatehousehq/gatehouse"
)

// compatible is the version of Redis whose commands for connections are followed. Clients ask for it to
// know what they may send.
const compatible = "7.2.0"

// connectionCommands are those about the connection itself.
func connectionCommands() []*command {
	const group = "connection"
	return []*command{
		{"PING", -1, []string{fast}, false, group, "[message]",
			"Answers PONG, or its argument.", (*session).ping},
		{"ECHO", 2, []string{fast, loading}, false, group, "message",
			"Answers its argument.", (*session).echo},
		{"QUIT", -1, []string{fast, noAuth, loading}, false, group, "",
			"Closes the connection.", (*session).quit},
		{"HELLO", -1, []string{fast, noAuth, loading}, false, group,
			"[version] [AUTH user password] [SETNAME name]",
			"Chooses the version of the protocol.", (*session).hello},
		{"AUTH", -2, []string{fast, noAuth, loading}, false, group, "[user] password",
			"Answers that there are no passwords.", (*session).auth},
		{"SELECT", 2, []string{fast, loading}, false, group, "database",
			"Selects database 0, the only one.", (*session).choose},
		{"RESET", 1, []string{fast, noAuth, loading}, false, group, "",
			"Makes the connection as it was at first.", (*session).reset},
		{"CLIENT", -2, []string{loading}, false, group, "subcommand [argument ...]",
			"Tells about connections; CLIENT HELP says what.", (*session).aboutClient},
	}
}

func (s *session) ping(args [][]byte) {
	switch len(args) {
	case 1:
		s.loop.reply.simple("PONG")
	case 2:
		s.loop.reply.bulk(args[1])
	default:
		s.wrongArity("PING")
	}
}

func (s *session) echo(args [][]byte) { s.loop.reply.bulk(args[1]) }

func (s *session) quit([][]byte) {
	s.loop.reply.ok()
	s.last = true
}

func (s *session) reset([][]byte) {
	s.speak(false)
	s.identify(func(who *identity) { who.name = "" })
	s.loop.reply.simple("RESET")
}

// speak chooses the version of the protocol.
func (s *session) speak(three bool) {
	s.three = three
	s.loop.reply.three = three
}

// choose answers SELECT.
func (s *session) choose(args [][]byte) {
	n, err := strconv.Atoi(string(args[1]))
	switch {
	case err != nil:
		s.loop.reply.fail("ERR", "value is not an integer or out of range")
	case n != 0:
		s.loop.reply.fail("ERR", "DB index is out of range")
	default:
		s.loop.reply.ok()
	}
}

// auth answers as a Redis whose default user has no password.
func (s *session) auth(args [][]byte) {
	switch {
	case len(args) > 3:
		s.loop.reply.fail("ERR", "syntax error")
	case len(args) == 2:
		s.loop.reply.fail("ERR", "AUTH <password> called without any password configured for the default "+
			"user. Are you sure your configuration is correct?")
	case !s.knownUser(args[1]):
	default:
		s.loop.reply.ok()
	}
}

// knownUser refuses all users but the default one, who has any password.
func (s *session) knownUser(name []byte) bool {
	if string(name) == "default" {
		return true
	}
	s.loop.reply.fail("WRONGPASS", "invalid username-password pair or user is disabled.")
	return false
}

// hello answers HELLO [version [AUTH user password] [SETNAME name]].
func (s *session) hello(args [][]byte) {
	three := s.three
	if len(args) > 1 {
		version, err := strconv.Atoi(string(args[1]))
		switch {
		case err != nil:
			s.loop.reply.fail("ERR", "Protocol version is not an integer or out of range")
			return
		case version != 2 && version != 3:
			s.loop.reply.fail("NOPROTO", "unsupported protocol version")
			return
		}
		three = version == 3
		if !s.helloOptions(args[2:]) {
			return
		}
	}
	s.speak(three)
	r := &s.loop.reply
	r.mapping(7)
	r.text("server")
	r.text("gatehouse")
	r.text("version")
	r.text(compatible)
	r.text("proto")
	r.integer(int64(2 + count(three)))
	r.text("id")
	r.integer(s.number)
	r.text("mode")
	r.text("standalone")
	r.text("role")
	r.text("master")
	r.text("modules")
	r.array(0)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// helloOptions reads what comes behind the version, and does nothing if any of it is wrong.
func (s *session) helloOptions(options [][]byte) bool {
	var name []byte
	for len(options) > 0 {
		switch option := word(options[0]); {
		case option == "AUTH" && len(options) > 2:
			if !s.knownUser(options[1]) {
				return false
			}
			options = options[3:]
		case option == "SETNAME" && len(options) > 1:
			name = options[1]
			if !s.validName(name) {
				return false
			}
			options = options[2:]
		default:
			s.loop.reply.fail("ERR", "Syntax error in HELLO option '"+string(options[0])+"'")
			return false
		}
	}
	if name != nil {
		s.setName(name)
	}
	return true
}

// validName refuses a connection's name that would break the list of clients.
func (s *session) validName(name []byte) bool {
	if len(name) > gatehouse.MaxName || !visible(name) {
		s.loop.reply.fail("ERR", "Client names cannot contain spaces, newlines or special characters.")
		return false
	}
	return true
}

// visible reports whether a text is of letters, digits and signs alone.
func visible(text []byte) bool {
	for _, c := range text {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

func (s *session) setName(name []byte) {
	s.identify(func(who *identity) { who.name = string(name) })
}

// identify changes what the client says about itself.
func (s *session) identify(change func(*identity)) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.who == nil {
		s.who = new(identity)
	}
	change(s.who)
}

// identity returns what the client says about itself.
func (s *session) identity() identity {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.who == nil {
		return identity{}
	}
	return *s.who
}
