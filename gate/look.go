package gate

// This file has the first look of the store at requests that may wait, when there is no line yet. Such a
// request is put to the store at once, since most are granted. Only if the answer takes time, or is that it
// must wait, it gets into the line, in which it then has been from its Submit on:
//
//	Submit ──▶ Apply ──▶ answered before Apply returned ──▶ granted: decided, in no line
//	             │                        └── refused ──▶ waitAfterLook ──┐
//	             └──▶ answered later: enterLook ── Done ──▶ finishLook ◀──┘
//	                                                           └──▶ decided, or goes on waiting
//
// While the store looks at one of its requests, a line is not served: what has joined behind that one must
// not overtake it.

// waitAfterLook works off a round whose answer has come before Apply returned, some of whose requests must
// wait.
func (g *Gate) waitAfterLook(rd *round) {
	n := 0
	for i, r := range rd.requests {
		turn := &rd.change.Turns[i]
		if mustWait(turn) {
			// Swapped, not copied: each turn keeps a command of its own.
			rd.requests[n], rd.requests[i] = r, rd.requests[n]
			rd.change.Turns[n], rd.change.Turns[i] = *turn, rd.change.Turns[n]
			n++
			continue
		}
		r.setDecision(turn)
		r.atOnce = true
		// finishLook tells them, when all others are in the line already.
		rd.replies = append(rd.replies, r)
	}
	// A round of the pool must not keep what belongs to callers again.
	clear(rd.requests[n:])
	clear(rd.change.Turns[n:])
	rd.requests, rd.change.Turns = rd.requests[:n], rd.change.Turns[:n]
	g.enterLook(rd)
	rd.line.finishLook(rd)
}

// enterLook puts the requests of a round, which the store has or has answered, into the line of their key,
// behind those that it has seen. Locks are taken in the order shard, line.
func (g *Gate) enterLook(rd *round) {
	key := rd.change.Key
	sh := g.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := g.lineIn(sh, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	// From here until finishLook, serveLine leaves the line alone.
	l.looks++
	rd.line = l
	for _, r := range rd.requests {
		l.linkTicket(r, l.firstUnseen)
		// Whether there is room in line is looked at when it must wait: one that is granted needs none.
		r.offered, r.unchecked = true, true
		r.Decision = nil // its room is the caller's again
	}
}

// finishLook works off the answer to the first look at requests, which are in the line now. Those that must
// wait are looked at once more, as the line watches the controller only from then on.
func (l *line) finishLook(rd *round) {
	l.mu.Lock()
	l.processDecisions(rd)
	for _, r := range rd.requests {
		if !r.removed {
			l.recheckTicket(r)
		}
	}
	// A serveLine that came meanwhile has done nothing, hence the one below.
	l.looks--
	l.unlockStirred()
	rd.sendReplies()
	rd.release()
	l.serveLine()
}
