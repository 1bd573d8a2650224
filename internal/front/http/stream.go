package http

import (
	"bytes"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// This file is how a request that waits is told its place, as a stream of events (text/event-stream):
//
//	POST, Accept: text/event-stream ──▶ decided in the handler ──▶ one event, the outcome
//	                                │
//	                                └──▶ waits: the headers, and a "waiting" event whenever the place
//	                                     changes; the outcome is the last event and ends the connection
//
// A stream that waits costs what any request that waits does, and an entry among the followers of its line.

const eventStreamType = "text/event-stream"

// checkStream rejects a request that asks for a stream where there is none. That is only for an acquire with
// a key, by POST: what opens streams opens them again by itself when a connection breaks, and then the
// repeated request must be the same hold, and no cache or browser may send it.
func (r *httpRequest) checkStream(ctx *fasthttp.RequestCtx, from *sender) *rejection {
	// A command that cannot wait has no place to tell: it is answered without a stream.
	r.stream = r.Command.Op.Waits() && bytes.Contains(from.accept, []byte(eventStreamType))
	switch {
	case !r.stream:
		return nil
	case !ctx.IsPost():
		return reject(fasthttp.StatusNotAcceptable, "Accept is %s, which is for POST alone", eventStreamType)
	case !params.HasHolders(r.Key.Kind):
		return reject(fasthttp.StatusNotAcceptable,
			"Accept is %s, which is for an acquire of a semaphore or a lock", eventStreamType)
	case !r.form.HasKey():
		return reject(fasthttp.StatusNotAcceptable,
			"Accept is %s, which needs a key, so that a repeated request is the same hold", eventStreamType)
	}
	return nil
}

// A stream is what a waiter has that is told its place. A waiter without one is told only its outcome. It
// belongs to the loop of the waiter's connection.
type stream struct {
	begun bool   // the headers are sent
	stop  func() // ends the following
}

// beginStream sends the headers of a waiter's stream, and has it told its place from now on.
func (w *waiter) beginStream() {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	forbidStoring(resp)
	allowOrigin(resp, w.responder.origin)
	resp.Header.SetContentType(eventStreamType)
	resp.Header.Set(headerNoSniff, "nosniff")
	if w.responder.requestID != "" {
		setTextHeader(resp, headerRequestID, w.responder.requestID)
	}
	resp.SetConnectionClose()
	// Without a length the body lasts as long as the connection.
	resp.Header.SetContentLength(-2)
	// Before the following begins, whose first place may come at once.
	w.stream.begun = true
	w.sendPart(resp.Header.Header())
	w.stream.stop = w.follow()
}

// follow has the client told its place, or its places in several lines.
func (w *waiter) follow() (stop func()) {
	switch task := w.task.(type) {
	case *grantTask:
		return w.server.config.Gate.FollowGrant(&task.GrantRequest, w.sendGrantPlace)
	case *viewTask:
		return task.followActivity(w)
	}
	return w.server.config.Gate.Follow(&w.Request, func(entry gatehouse.WaiterEntry) {
		w.hidePlace(&entry)
		w.sendPlace(encodeJSON(waitersJSON([]gatehouse.WaiterEntry{entry})[0]))
	})
}

// sendGrantPlace tells the client its place in the line of one name, which comes first.
func (w *waiter) sendGrantPlace(key gatehouse.Key, entry gatehouse.WaiterEntry) {
	key.Name = w.hidePlace(&entry).shownName(key.Name)
	place := encodeJSON(waitersJSON([]gatehouse.WaiterEntry{entry})[0])
	name := jsonObject{}.addText(key.Kind.String(), key.Name)
	w.sendPlace(append(append(append([]byte{'{'}, name...), ','), place[1:]...))
}

// sendPart writes a part of the stream. A client that has not taken the part before does not read what it
// asked for, and is not waited for.
func (w *waiter) sendPart(part []byte) {
	c := w.conn
	c.loop.flushAnswers()
	if c.sending {
		c.fail()
		return
	}
	c.write(part)
}

// sendPlace tells the client its place.
func (w *waiter) sendPlace(place []byte) {
	event := appendRawEvent(nil, "waiting", place)
	w.conn.addTask(func() {
		if w.conn.waiter == w {
			w.sendPart(event)
		}
	})
}

// endStream returns what ends a stream that has begun: the outcome as the last event. Nothing else is written
// after it returns. begun is false if no header was sent, and the answer is one like any other.
func (w *waiter) endStream() (message []byte, begun bool) {
	if w.stream == nil {
		return nil, false
	}
	w.stopStream()
	// Then it is answered as without a stream, with a status that tells the outcome.
	if !w.stream.begun {
		return nil, false
	}
	switch task := w.task.(type) {
	case *grantTask:
		return w.grantEvent(task), true
	case *viewTask:
		return task.lastEvent(w.conn), true
	}
	return w.responder.outcomeEvent(w.Decision, w.Err), true
}

// grantEvent returns the outcome of a grant as an event. It leaves the names out where there is no room for
// them.
func (w *waiter) grantEvent(g *grantTask) []byte {
	event := g.outcomeEvent(&w.responder, g.wantJSON())
	switch size := len(event); {
	case size <= budget.Tiny:
	case w.server.config.Budget.Take(size):
		w.charged = size
	default:
		return g.outcomeEvent(&w.responder, nil)
	}
	return event
}

// stopStream ends the following of a waiter whose client is gone.
func (w *waiter) stopStream() {
	if w.stream != nil && w.stream.stop != nil {
		w.stream.stop()
	}
}

// outcomeEvent returns the last event of a stream: what a request with details is answered, or the problem.
func (r *responder) outcomeEvent(d *gatehouse.Decision, err error) []byte {
	if err == nil {
		return appendRawEvent(nil, d.Outcome.String(), r.decisionJSON(d))
	}
	f := errorRejection(err)
	return appendEvent(nil, "error", struct {
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{f.status, f.code, f.detail})
}

// appendEvent appends an event with a value as JSON, which has no line ends.
func appendEvent(to []byte, name string, value any) []byte {
	return appendRawEvent(to, name, encodeJSON(value))
}

func appendRawEvent(to []byte, name string, data []byte) []byte {
	to = append(append(to, "event: "...), name...)
	to = append(append(to, "\ndata: "...), data...)
	return append(to, "\n\n"...)
}
