package http

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// This file is what the page at / asks for. All of it is for reading:
//
//	GET /v1/names                     a search for names
//	GET /v1/activity                  a stream of events (text/event-stream), one a second
//	GET /v1/activity/<kind>/<name>    fifteen minutes of one name
//	GET /v1/server                    the server itself

// allRoutes returns the routes of the configuration and those of the page.
func (s *Server) allRoutes() map[string]routeHandler {
	all := make(map[string]routeHandler, len(s.config.Routes)+4)
	maps.Copy(all, s.config.Routes)
	if s.config.Activity != nil {
		all["GET /v1/names"] = s.answerNames
		all["GET /v1/activity"] = s.streamActivity
		all["GET /v1/activity/"] = s.answerHistory
	}
	if s.config.About != nil {
		all["GET /v1/server"] = func(ctx *fasthttp.RequestCtx, _ string) error {
			writeJSON(&ctx.Response, s.config.About(s.userOf(ctx).SeesAll()))
			return nil
		}
	}
	return all
}

// wrongParameter is the error about a parameter of these paths.
func wrongParameter(format string, args ...any) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, format, args...)
}

// answerNames answers a search for names.
func (s *Server) answerNames(ctx *fasthttp.RequestCtx, _ string) error {
	query, viewer, err := readSearch(ctx)
	if err != nil {
		return err
	}
	query.View = viewOf(s.userOf(ctx))
	within, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	found, err := s.config.Activity.Search(within, query)
	if err != nil {
		return err
	}
	// What a page shows is what its stream tells about from now on.
	if viewer != "" {
		keys := make([]gatehouse.Key, 0, len(found.Rows))
		for i := range found.Rows {
			keys = append(keys, found.Rows[i].Key)
		}
		s.config.Activity.Watch(viewer, keys)
	}
	shown := append([]activity.Row{}, found.Shown(query.View)...) // in JSON an array, also without any
	writeJSON(&ctx.Response, struct {
		Names   []activity.Row `json:"names"`
		More    bool           `json:"more"`
		Partial bool           `json:"partial"`
		Fresh   int64          `json:"fresh"`
	}{shown, found.More, found.Partial, found.Fresh.Milliseconds()})
	return nil
}

// readSearch reads the parameters of a search. viewer is the id of the stream that is to tell about the names
// found; it may be empty.
func readSearch(ctx *fasthttp.RequestCtx) (q activity.Query, viewer string, err error) {
	kind, limit, reverse := "", strconv.Itoa(defaultListLimit), "false"
	q.Sort = activity.Sorts()[0]
	p := readOptions(ctx, map[string]*string{
		"kind": &kind, "search": &q.Text, "sort": &q.Sort, "reverse": &reverse, "limit": &limit,
		"viewer": &viewer,
	}, "kind search sort reverse limit viewer")
	if p != nil {
		return q, "", wrongParameter("%s", p.detail)
	}
	// Each was given its default, so that a parameter that is given and empty is wrong, but for the texts.
	known := kind == ""
	if !known {
		q.Kind, known = gatehouse.ParseKind(kind)
	}
	n, notNumber := strconv.Atoi(limit)
	q.Limit, q.Reverse = n, reverse == "true"
	switch {
	case !known || q.Kind == gatehouse.Grant:
		err = wrongParameter("kind is %s, want one such as lock, or none for all of them",
			params.Quote([]byte(kind)))
	case len(q.Text) > gatehouse.MaxName:
		err = wrongParameter("search has %d bytes, want at most %d", len(q.Text), gatehouse.MaxName)
	case !slices.Contains(activity.Sorts(), q.Sort):
		err = wrongParameter("sort is %s, want one of %s", params.Quote([]byte(q.Sort)),
			strings.Join(activity.Sorts(), " "))
	case !q.Reverse && reverse != "false":
		err = wrongParameter("reverse is %s, want true or false", params.Quote([]byte(reverse)))
	case notNumber != nil || n < 1 || n > activity.MaxRows:
		err = wrongParameter("limit is %s, want a whole number from 1 to %d",
			params.Quote([]byte(limit)), activity.MaxRows)
	}
	return q, viewer, err
}

// answerHistory answers with fifteen minutes of one name, kind/name, and how it is now.
func (s *Server) answerHistory(ctx *fasthttp.RequestCtx, path string) error {
	kind, name, _ := strings.Cut(path, "/")
	of, known := gatehouse.ParseKind(kind)
	key := gatehouse.Key{Kind: of, Name: name}
	if !known || key.Kind == gatehouse.Grant || gatehouse.NameFault(name) != "" {
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		return wrongParameter("path is %s, want /v1/activity/<kind>/<name>", params.Quote(ctx.Path()))
	}
	viewer := ""
	p := readOptions(ctx, map[string]*string{"viewer": &viewer}, "viewer")
	if p != nil {
		return wrongParameter("%s", p.detail)
	}
	user := s.userOf(ctx)
	err := user.Require(key.Kind, key.Name, gatehouse.LevelRead, "to look at")
	if err != nil {
		return err
	}
	key.Name = user.Inside(name)
	within, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	found, err := s.config.Gate.Describe(within, gate.Prefix{Kind: key.Kind, Prefix: key.Name}, 1)
	if err != nil {
		return err
	}
	// A name that does not exist has a history while it is remembered: it may come back.
	s.config.Activity.Watch(viewer, []gatehouse.Key{key})
	out := newHistoryJSON(key, found, s.config.Activity.History(key))
	out.setName(name)
	if s.config.Decisions != nil {
		out.Granting = newTopJSON(s.config.Decisions.TopUsersAt(decisions.Granted, key))
		out.Refusing = newTopJSON(s.config.Decisions.TopUsersAt(decisions.Refused, key))
	}
	writeJSON(&ctx.Response, out)
	return nil
}

type historyJSON struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	Now     *activity.Row `json:"now"` // null if there is no such name
	At      []int64       `json:"at"`  // ms since 1970
	Granted []float64     `json:"granted"`
	Refused []float64     `json:"refused"`
	Waiting []int64       `json:"waiting"`

	// Granting and Refusing are the users who were granted and refused most lately.
	Granting []topJSON `json:"users_granted"`
	Refusing []topJSON `json:"users_refused"`
}

// setName sets what the name is called by the user.
func (h *historyJSON) setName(name string) {
	h.Name = name
	if h.Now != nil {
		h.Now.Key.Name = name
	}
}

func newHistoryJSON(
	key gatehouse.Key, found []gatehouse.NameDetails, points []activity.Point,
) (out historyJSON) {
	out = historyJSON{Kind: key.Kind.String(), Name: key.Name}
	if len(found) == 1 && found[0].Name == key.Name {
		d := &found[0]
		out.Now = &activity.Row{
			Key: key, Limits: d.Limits, Size: d.Limit, Used: d.Used, Holders: int64(d.Holders),
			Waiting: int64(d.Waiting), Granted: d.Granted, Refused: d.Refused, Closed: d.Closed != nil,
		}
	}
	// Columns instead of points: that is what a chart wants, and a third of the bytes.
	out.At, out.Waiting = []int64{}, []int64{}
	out.Granted, out.Refused = []float64{}, []float64{}
	for _, p := range points {
		out.At = append(out.At, p.At.UnixMilli())
		out.Granted, out.Refused = append(out.Granted, p.Granted), append(out.Refused, p.Refused)
		out.Waiting = append(out.Waiting, p.Waiting)
	}
	return out
}

// A viewTask is a stream of frames. It waits like any other request, and is never decided: it ends when
// its client leaves, or the server stops.
type viewTask struct {
	server *Server
	user   string                            // as whose it counts
	view   func() (v activity.View, ok bool) // what its user may see now
}

// streamActivity begins a stream.
func (s *Server) streamActivity(ctx *fasthttp.RequestCtx, _ string) error {
	// One more would be told so only after its headers are sent.
	user := s.userOf(ctx)
	err := s.config.Activity.CheckRoom(user.CountedAs())
	if err != nil {
		return user.CountRefused(access.ServerKey("activity"), err)
	}
	from := readSender(&ctx.Request.Header)
	w := &waiter{
		server: s, task: &viewTask{server: s, user: user.CountedAs(), view: s.currentView(ctx)},
		responder: s.newResponder(ctx, &from), stream: new(stream),
	}
	w.responder.maxWait = math.MaxInt64
	w.park(ctx)
	return nil
}

// followActivity has the frames sent to a waiter.
func (v *viewTask) followActivity(w *waiter) (stop func()) {
	view := func() (activity.View, bool) {
		seen, ok := v.view()
		// Its user has lost the rights to it: the stream ends in the middle, and its browser asks again.
		if !ok {
			w.conn.addTask(w.conn.fail)
		}
		return seen, ok
	}
	stop, ok := v.server.config.Activity.Follow(v.user,
		view, func(frame []byte) { v.sendFrame(w, frame) }, func() { w.onDecision(nil) })
	if !ok {
		w.onDecision(nil)
		return func() {}
	}
	return stop
}

// sendFrame sends a frame. A viewer who has not taken the last one yet goes without it: each frame is whole,
// so that the next one tells all that this one would have.
func (v *viewTask) sendFrame(w *waiter, frame []byte) {
	w.conn.addTask(func() {
		if w.conn.waiter == w && !w.conn.sending {
			w.sendPart(frame)
		}
	})
}

// lastEvent tells a viewer that the server stops; it is empty where it would be put into the middle of a
// frame.
func (v *viewTask) lastEvent(c *httpConn) []byte {
	if c.sending {
		return nil
	}
	return []byte("event: end\ndata: {}\n\n")
}

// cancelTask implements [waiterTask]. What ends a stream is what stops its following.
func (v *viewTask) cancelTask() {}

// mustReach implements [waiterTask].
func (v *viewTask) mustReach(bool) bool { return false }

// writeTask implements [waiterTask]: the answer to a viewer whose stream has not begun when the server stops.
func (v *viewTask) writeTask(resp *fasthttp.Response, r *responder) {
	writeProblem(resp, fasthttp.StatusServiceUnavailable, "server is stopping", r.wantsJSON)
}

// writeShort implements [waiterTask].
func (v *viewTask) writeShort(resp *fasthttp.Response, r *responder) { v.writeTask(resp, r) }

// countTask implements [waiterTask]. It was counted as it began.
func (v *viewTask) countTask(*Server, *responder, int) {}
