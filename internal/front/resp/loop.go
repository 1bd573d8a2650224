package resp

import (
	"errors"
	"hash/maphash"
	"io"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/panjf2000/gnet/v2"
)

// A loop is what all connections of one event loop share, because only one of them is served at a
// time: room to work in.
type loop struct {
	parser  parser
	reply   reply
	names   names
	tallies tallies

	share share // of the session being served
	turns turns

	// What would have to be made anew for each command otherwise.
	cmd   gatehouse.Command
	form  params.Values
	batch batch

	// The grants of the session being served whose answers are in reply and not written.
	unwritten []grant

	// The command asked for last, which is most likely asked for next.
	latest     *command
	latestName []byte
}

// A grant is something held whose answer is not written yet.
type grant struct {
	end    int64  // of the answer, in bytes of the session's answers
	cancel func() // takes it back; nil if the gate does so by what follows

	key      gatehouse.Key
	cmd      gatehouse.Command
	decision gatehouse.Decision
}

// maxUnwritten is how many grants are collected before their answers are written.
const maxUnwritten = 64

// takeBack takes a grant back.
func (g *grant) takeBack(gate Gate) {
	if g.cancel != nil {
		g.cancel()
		return
	}
	gate.TakeBack(g.key, g.cmd, g.decision)
}

// written forgets the grants that were collected.
func (l *loop) written() {
	clear(l.unwritten)
	l.unwritten = l.unwritten[:0]
}

// flushSize is how much is collected of a connection's answers before they are written.
const flushSize = 64 << 10

// A handler is told by the event loops what happens to connections.
type handler struct {
	gnet.BuiltinEventEngine
	server *Server
}

// OnOpen implements [gnet.EventHandler].
func (h *handler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s := newSession(h.server, c)
	c.SetContext(s)
	h.server.enter(s)
	if h.server.ending.Load() {
		return nil, gnet.Close
	}
	if idle := h.server.config.IdleTimeout; idle > 0 {
		s.arm(idling, idle)
	}
	return nil, gnet.None
}

// OnTraffic implements [gnet.EventHandler]. It is called when a client has sent something and when a
// session is to look after itself.
func (h *handler) OnTraffic(c gnet.Conn) gnet.Action {
	s, ok := c.Context().(*session)
	if !ok {
		return gnet.Close
	}
	turns := &s.loop.turns
	turns.begin(s)
	if !s.serve() {
		return gnet.Close
	}
	turns.wake()
	return gnet.None
}

// OnClose implements [gnet.EventHandler].
func (h *handler) OnClose(c gnet.Conn, why error) gnet.Action {
	if s, ok := c.Context().(*session); ok {
		if errors.Is(why, io.EOF) {
			s.serveRest()
		}
		s.end()
		h.server.sources.Leave(s.client.Addr())
	}
	return gnet.None
}

// loop returns what the connections of an event loop share.
func (s *Server) loop(of gnet.EventLoop) *loop {
	if l, ok := s.loops.Load(of); ok {
		return l.(*loop)
	}
	l, _ := s.loops.LoadOrStore(of, s.newLoop())
	return l.(*loop)
}

func (s *Server) newLoop() *loop {
	return &loop{
		names:   names{seed: maphash.MakeSeed()},
		tallies: tallies{metrics: s.metrics, shard: s.metrics.Shard()},
	}
}

// begin makes ready for a connection. What one that broke off has left behind is for nobody.
func (l *loop) begin(s *session) {
	l.reply.out, l.reply.three, l.batch.n = l.reply.out[:0], s.three, 0
	l.share = newShare(s.conn.InboundBuffered())
	l.written()
	l.tallies.begin()
}

// names remembers the names seen last, so that commands at the same ones share a string.
type names struct {
	seed  maphash.Seed
	slots [nameSlots]string
}

// nameSlots is how many names are remembered: of the longest they are 512 KiB.
const nameSlots = 1024

// get returns a name as a string.
func (n *names) get(name []byte) string {
	if len(name) > gatehouse.MaxName {
		return string(name) // it will be refused
	}
	slot := &n.slots[maphash.Bytes(n.seed, name)%nameSlots]
	if *slot != string(name) {
		*slot = string(name)
	}
	return *slot
}
