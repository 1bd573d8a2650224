package resp

import (
	"sync"

	"github.com/gatehousehq/gatehouse"
)

// A pushedProgress is how a command that waits WITH PROGRESS is told its place: as push messages of RESP3,
// which the event loop writes before whatever it answers next. Few commands have one, so that it is not a
// part of them.
type pushedProgress struct {
	mu      sync.Mutex
	pending []byte // a push message that is not written yet; a later one takes its place
	stop    func()
}

// errPushes is why there are no push messages.
var errPushes = gatehouse.Errorf(gatehouse.CodeInvalid,
	"progress is told by push messages, want RESP3 (HELLO 3) and an acquire with a KEY")

// followCall has the client told the place of a call that waits.
func (s *session) followCall(c *nativeCall) {
	p := new(pushedProgress)
	s.server.progress.Store(c, p)
	stop := s.server.config.Gate.Follow(&c.Request, func(entry gatehouse.WaiterEntry) {
		r := replyWriter{three: true}
		if c.user() != nil {
			entry.Grant = c.user().pass.User().ShownGrant(entry.Grant)
		}
		r.writePush(c.shownKey(), &entry)
		p.mu.Lock()
		p.pending = r.out
		p.mu.Unlock()
		// The event loop alone writes to its connections.
		s.wake()
	})
	p.mu.Lock()
	p.stop = stop
	p.mu.Unlock()
}

// writePush writes a place as a push message: a word that tells what it is, the name, and a map.
func (r *replyWriter) writePush(key gatehouse.Key, entry *gatehouse.WaiterEntry) {
	r.writeHeader('>', 3)
	r.writeTexts("gatehouse.waiting", key.String())
	r.writeWaiterEntry(entry)
}

// writePushes collects the push messages for the commands that wait here.
func (s *session) writePushes() {
	for w := s.waiting; w != nil; w = w.next {
		if w.call == nil || !w.call.progress {
			continue
		}
		if p, ok := s.server.progress.Load(w.call); ok {
			s.loop.reply.out = append(s.loop.reply.out, p.(*pushedProgress).takePending()...)
		}
	}
}

func (p *pushedProgress) takePending() (message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	message, p.pending = p.pending, nil
	return message
}

// endProgress ends the push messages for a command that is answered or given up.
func (s *session) endProgress(c *nativeCall) {
	if c == nil || !c.progress {
		return
	}
	p, ok := s.server.progress.LoadAndDelete(c)
	if !ok {
		return
	}
	p.(*pushedProgress).mu.Lock()
	stop := p.(*pushedProgress).stop
	p.(*pushedProgress).mu.Unlock()
	// Not under the lock, which the function that is told of places takes.
	stop()
}
