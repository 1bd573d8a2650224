package resp

import (
	"hash/maphash"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/panjf2000/gnet/v2"
)

// A loop is what all connections of one event loop share, because only one of them is served at a
// time: room to work in.
type loop struct {
	parser parser
	reply  replyWriter
	names  nameCache
	room   []byte // for what was decrypted
	counts answerCounts

	share     timeShare // of the session being served
	round     roundBudget
	wakeQueue wakeQueue

	// What would have to be made again for each command otherwise.
	params params.Values
	batch  *rateBatch
	result rateResult       // of the command that is being answered
	calls  []*nativeCall    // that are not under way
	alone  [1]*gate.Request // a request as Submit takes it

	// The grants of the session being served whose answers are in reply and not written.
	unwritten []revocableDecision

	// The command asked for last, which is most likely asked for next.
	latest     *command
	latestName []byte

	rated *command // the last command if it is in the batch or was, nil otherwise

	// The user of the command that is being answered; nil if rights are off, and if it has none. It is looked
	// up once, so that a policy that comes meanwhile judges no half of a command.
	sender *access.User
}

// A revocableDecision is something held whose answer is not written yet.
type revocableDecision struct {
	end   int64 // of the answer, in bytes of the session's answers
	call  *nativeCall
	grant *jointCall // in place of a call
}

// revokeDecision takes back what was granted.
func (d *revocableDecision) revokeDecision(from Gate) {
	if d.grant != nil {
		d.grant.endUser()
		from.CancelGrant(&d.grant.GrantRequest)
		return
	}
	d.call.endUser()
	from.Cancel(&d.call.Request)
}

// maxUnwritten is how many grants are collected before their answers are written.
const maxUnwritten = 64

// forgetUnwritten forgets the grants that were collected.
func (l *loop) forgetUnwritten() {
	clear(l.unwritten)
	l.unwritten = l.unwritten[:0]
}

// takeCall returns a call for a command.
func (l *loop) takeCall() *nativeCall {
	n := len(l.calls) - 1
	if n < 0 {
		c := newNativeCall()
		c.room = new(callRoom)
		return c
	}
	c := l.calls[n]
	l.calls[n] = nil
	l.calls = l.calls[:n]
	c.room.user = nil
	return c
}

// recycleCall keeps a call that was answered for later commands; nil is none.
func (l *loop) recycleCall(c *nativeCall) {
	if c != nil && len(l.calls) <= maxUnwritten && c.room != nil {
		l.calls = append(l.calls, c)
	}
}

// flushSize is how much is collected of a connection's answers before they are written.
const flushSize = 64 << 10

// A gnetHandler learns from the event loops what happens to connections.
type gnetHandler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// OnOpen implements [gnet.EventHandler].
func (h *gnetHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	conn := c
	if secure, ok := c.Context().(*tlsconn.Connection); ok {
		conn = eventloop.NewSecure(c, secure)
		_ = c.Wake(nil) // commands may have come behind the handshake
	}
	s := newSession(h.server, conn)
	c.SetContext(s)
	h.server.addSession(s)
	if h.server.ending.Load() {
		return nil, gnet.Close
	}
	if s.isUnknown() {
		s.armTimer(unknown, h.server.config.ReadTimeout)
	} else if idle := h.server.config.IdleTimeout; idle > 0 {
		s.armTimer(idling, idle)
	}
	return nil, gnet.None
}

// OnTraffic implements [gnet.EventHandler]. It is called when a client has sent something and when a
// session is to look after itself.
func (h *gnetHandler) OnTraffic(c gnet.Conn) gnet.Action {
	s, ok := c.Context().(*session)
	if !ok {
		return gnet.Close
	}
	turns := &s.loop.wakeQueue
	secure, _ := s.conn.(*eventloop.Secure)
	if secure != nil {
		secure.Receive(&s.loop.room)
		if s.closed { // TLS itself had something to say that could not be sent
			return gnet.None
		}
	}
	// gnet wakes sessions when it has served all that have sent something: a round is over.
	if turns.markServed(s) {
		s.loop.round.used = 0
	}
	if !s.serveConnection() {
		s.last = true // it does not go on if it is found only now that the client is gone
		if secure != nil && !s.closed {
			secure.EndSending()
		}
		return gnet.Close
	}
	if !s.ended && secure != nil && secure.Ended() {
		s.endInput()
	}
	if s.isOver() {
		return gnet.Close
	}
	turns.wakeNext()
	return gnet.None
}

// OnClose implements [gnet.EventHandler].
func (h *gnetHandler) OnClose(c gnet.Conn, why error) gnet.Action {
	s, ok := c.Context().(*session)
	switch {
	case !ok:
	case why != nil && s.outliveConn(c, h): // the client has ended it
	default:
		s.endSession()
		if secure, ok := s.conn.(*eventloop.Secure); ok {
			secure.Forget()
		}
		h.server.sources.Leave(s.client.Addr())
	}
	return gnet.None
}

// loopOf returns what the connections of an event loop share.
func (s *Server) loopOf(of gnet.EventLoop) *loop {
	if l, ok := s.loops.Load(of); ok {
		return l.(*loop)
	}
	l, _ := s.loops.LoadOrStore(of, s.newLoop())
	return l.(*loop)
}

func (s *Server) newLoop() *loop {
	return &loop{
		batch:  newRateBatch(),
		names:  nameCache{seed: maphash.MakeSeed()},
		counts: answerCounts{now: s.now, shard: s.metrics.Shard()},
	}
}

// now is the time by Config.Now, or by the clock of the metrics.
func (s *Server) now() time.Duration {
	if s.config.Now != nil {
		return s.config.Now()
	}
	return s.metrics.Now()
}

// beginSession makes ready for a connection that the loop turns to now. What one that broke off has left
// behind is dropped.
func (l *loop) beginSession(s *session, now time.Duration) {
	l.reply.out, l.reply.three, l.batch.n = l.reply.out[:0], s.three, 0
	l.share = newShare(s.unreadBytes())
	l.forgetUnwritten()
	l.counts.beginRound(now)
}

// nameCache remembers the names seen last, so that commands at the same ones share a string.
type nameCache struct {
	seed  maphash.Seed
	slots [nameSlots]string
}

// nameSlots is how many names are remembered: of the longest they are 512 KiB.
const nameSlots = 1024

// internName returns a name as a string.
func (n *nameCache) internName(name []byte) string {
	if len(name) > gatehouse.MaxName {
		return string(name) // it will be refused
	}
	slot := &n.slots[maphash.Bytes(n.seed, name)%nameSlots]
	if *slot != string(name) {
		*slot = string(name)
	}
	return *slot
}
