package resp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// This file tells who a connection is. Without Config.Users connections have no user.

// maxUnknown is how much a client may send before it has said who it is, in bytes.
const maxUnknown = 4 << 10

// A sessionLogin is who a connection is.
type sessionLogin struct {
	login   *access.Login
	counted access.ConnectionCount
	proved  bool // it gave a token, or a user's certificate
	sent    int  // bytes of commands without a token
}

// The refusals in Redis's words.
const (
	noAuthText    = "Authentication required."
	wrongPassText = "invalid username-password pair or user is disabled."
	helloText     = "HELLO must be called with the client already authenticated, otherwise the " +
		"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the " +
		"RESP protocol version at the same time"
	noPermText = "No permissions to access a key: "
)

// A commandGuard is what a command needs.
type commandGuard struct {
	// entered commands are judged and counted as they are put to the gate.
	entered bool
	// key and level say what else a client needs, beside being known. Without a level that is enough.
	key   gatehouse.Key
	level gatehouse.Level
}

// commandGuards are those of all commands but those for rates, GH.<OP>, and those that need no login. A
// command without one is refused, so that no new one is open by accident.
var commandGuards = map[string]commandGuard{
	"PING": {}, "ECHO": {}, "SELECT": {}, "ACL": {}, "CLIENT": {},
	"COMMAND": {}, "INFO": {}, "CONFIG": {}, "CLUSTER": {},
	"GH.EXPLAIN": {}, "GH.LIST": {}, "GH.DELETEPREFIX": {}, // judged where their names are read
	grantCommand: {entered: true},
	"GH.CYCLES":  {key: access.ServerKey("cycles"), level: gatehouse.LevelRead},
}

// guardOf returns the guard of a command. known is false if there is none.
func guardOf(c *command) (g commandGuard, known bool) {
	g, known = commandGuards[c.name]
	if known {
		return g, true
	}
	word, native := strings.CutPrefix(c.name, "GH.")
	op, isOp := gatehouse.ParseOp(strings.ToLower(word))
	return commandGuard{entered: true}, c.group == rateGroup || native && isOp && op < gatehouse.OpUndo
}

// needsLogin reports whether a command needs to know who sends it.
func (c *command) needsLogin() bool {
	return !slices.Contains(c.flags, noAuth)
}

// source is where the connection is from.
func (s *session) source() access.From {
	_, secure := s.conn.(*eventloop.Secure)
	return access.From{Address: s.client.Addr(), Certificate: s.certificate(), Secure: secure}
}

// admitUser makes the connection that of the user of its certificate, or of the anonymous one.
func (s *session) admitUser() {
	if s.server.config.Users == nil {
		return
	}
	s.endLogin()
	from := s.source()
	login, user := s.server.config.Users.Admit(from)
	l := &sessionLogin{login: login, proved: user != nil && from.Certificate != nil}
	// A RESET does not let a client without a token send more.
	if s.account() != nil && !s.account().proved {
		l.sent = s.account().sent
	}
	s.setAccount(l, user)
}

// account is who the connection is, nil if rights are off. Only the event loop writes who, so that it may
// read that without the lock.
func (s *session) account() *sessionLogin {
	if s.who == nil {
		return nil
	}
	return s.who.account
}

// setAccount makes the connection that of a login, whose user is nil if it is not known.
func (s *session) setAccount(l *sessionLogin, user *access.User) {
	s.changeIdentity(func(who *identity) {
		who.account, who.user = l, ""
		if user != nil {
			who.user = user.Name
		}
	})
}

// endLogin ends the counting of the connection for its user.
func (s *session) endLogin() {
	if s.account() != nil {
		s.account().counted.End()
	}
}

// lookUpSender looks up who sends the next command, of which n bytes have come. It returns an error if that
// is not known, and more was sent than may be until it is.
func (s *session) lookUpSender(n int) error {
	s.loop.sender = s.server.config.Users.Current(s.account().login)
	if s.loop.sender != nil {
		return nil
	}
	return s.account().checkUnknown(n)
}

// lacksSender reports whether rights are on, and it is not known who sends the command.
func (s *session) lacksSender() bool { return s.account() != nil && s.loop.sender == nil }

// user returns who sends the command that is being answered, nil if rights are off, and [access.Unknown] if
// it is not known.
func (s *session) user() *access.User {
	if s.lacksSender() {
		return access.Unknown()
	}
	return s.loop.sender
}

// refuses answers a command that the connection may not send, and reports whether it was one.
func (s *session) refuses(c *command) bool {
	users, user := s.server.config.Users, s.loop.sender
	if user == nil {
		if !c.needsLogin() && !s.account().proved {
			return false
		}
		// A user that is gone from the file, or whose token is, has its connections ended.
		s.answerError("NOAUTH", noAuthText)
		users.CountFailure(telemetry.RESP, access.Missing(s.account().login), s.client.Addr(), nil)
		s.last = s.last || s.account().proved
		return true
	}
	// First of all: a client who may become somebody else must not be held up by who it is still.
	if !c.needsLogin() {
		return false
	}
	if err := s.account().counted.Set(user); err != nil {
		s.answerRefused(err)
		s.last = true
		return true
	}
	g, known := guardOf(c)
	if !known {
		g = commandGuard{key: access.ServerKey("unknown"), level: gatehouse.LevelManage}
	}
	var err error
	if !g.entered {
		err = user.TakeRate()
	}
	if err == nil && g.level != gatehouse.NoLevel {
		err = user.Require(g.key.Kind, g.key.Name, g.level, "to look at")
	}
	if err != nil {
		s.answerRefused(err)
	}
	return err != nil
}

// answerRefused answers a command that is refused for its sender.
func (s *session) answerRefused(err error) {
	s.server.config.Users.CountFailure(telemetry.RESP, err, s.client.Addr(), s.user())
	s.answerError(codes[gatehouse.CodeOf(err)], refusedText(err))
}

// refusedText is the text of a refusal, which begins as Redis's does.
func refusedText(err error) string {
	switch gatehouse.CodeOf(err) {
	case gatehouse.CodeForbidden:
		return noPermText + err.Error()
	case gatehouse.CodeUnauthenticated:
		return noAuthText + " " + err.Error()
	}
	return err.Error()
}

// readLogin returns the login of a token, nil if that is not valid; the client is told so.
func (s *session) readLogin(name string, token []byte) *sessionLogin {
	// Redis's clients send the name of its one user if they are given none.
	if name == "default" {
		name = ""
	}
	users, from := s.server.config.Users, s.source()
	login, _, err := users.LogIn(token, name, from)
	if err != nil {
		users.CountFailure(telemetry.RESP, err, s.client.Addr(), nil)
		text := wrongPassText
		// The answer says that tokens need TLS, and is the same for right and wrong tokens.
		if users.IsReadable(from) {
			text += " " + err.Error()
		}
		s.answerError("WRONGPASS", text)
		return nil
	}
	return &sessionLogin{login: login, proved: true}
}

// logIn makes the connection that of a login. It reports false if its user has too many; the client is told
// so.
func (s *session) logIn(l *sessionLogin) bool {
	user := s.server.config.Users.Current(l.login)
	if user == nil { // since it was read
		s.answerError("WRONGPASS", wrongPassText)
		return false
	}
	l.counted = s.account().counted
	s.setAccount(l, user)
	s.loop.sender = user
	if err := s.account().counted.Set(user); err != nil {
		s.answerRefused(err)
		s.last = true
		return false
	}
	return true
}

// isUnknown reports whether it is not known at present who the connection is.
func (s *session) isUnknown() bool {
	return s.account() != nil && s.server.config.Users.Current(s.account().login) == nil
}

// answerACL answers ACL WHOAMI.
func (s *session) answerACL(args [][]byte) {
	switch {
	case upperWord(args[1]) != "WHOAMI":
		s.unknownSubcommand(args)
	case len(args) != 2:
		s.wrongArity("ACL|WHOAMI")
	case s.account() == nil:
		s.loop.reply.writeText("default")
	default:
		s.loop.reply.writeText(s.user().Name)
	}
}

// writeFailed answers an error of a command, with the words that Redis has for a refusal.
func (r *replyWriter) writeFailed(err error) {
	text := err.Error()
	if access.IsRefusal(err) {
		text = refusedText(err)
	}
	r.writeError(codes[gatehouse.CodeOf(err)], text)
}

// checkUnknown returns an error for a client that sends too much before it says who it is. n is the bytes of
// its next command, or of what has come of it.
func (l *sessionLogin) checkUnknown(n int) error {
	if l.sent+n > maxUnknown {
		return protocolError(fmt.Sprintf("more than %d bytes before AUTH", maxUnknown))
	}
	return nil
}
