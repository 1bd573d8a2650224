package http

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// This file tells who a request is from. Without Config.Users requests have no user.

// loginKey is where a request has its login, for what outlives it.
const loginKey = "gatehouse.login"

// identify finds out who a request is from. It rejects one whose token is wrong, or that has none where
// the file has no anonymous user, and reports whether the request may go on.
func (s *Server) identify(ctx *fasthttp.RequestCtx, path []byte, from *sender) bool {
	// A browser's preflight has no token, and no effect.
	if ctx.IsOptions() || isPublic(path) {
		from.user = s.unknown
		return true
	}
	caller := connectionOf(ctx).callerOf()
	// What the connection is known by is its credentials alone, and these are judged by who sends them, too.
	if from.sendsBasic() && from.hasBrowserMark() {
		caller = new(access.Caller)
	}
	user, login, err := caller.Identify(s.config.Users, from.authorization,
		func() (*access.Login, error) { return s.newLogin(ctx, from) })
	if err != nil {
		s.refuseUser(ctx, from, user, err)
		return false
	}
	from.user, from.login = user, login
	// Handlers of routes are given the context alone.
	ctx.SetUserValue(access.ContextKey, user)
	ctx.SetUserValue(loginKey, login)
	return true
}

// newLogin reads the header Authorization, or what stands in its place.
func (s *Server) newLogin(ctx *fasthttp.RequestCtx, from *sender) (*access.Login, error) {
	source := access.From{Address: peer.Source(ctx.Conn()), Certificate: connectionOf(ctx).certificate()}
	source.Secure = connectionOf(ctx).secure != nil
	if len(from.authorization) == 0 {
		// Identify refuses it later, if the file has no anonymous user and the certificate is that of none.
		login, _ := s.config.Users.Admit(source)
		return login, nil
	}
	scheme, rest, _ := bytes.Cut(from.authorization, []byte{' '})
	token, claimed := bytes.TrimSpace(rest), ""
	switch {
	case bytes.EqualFold(scheme, []byte("Bearer")):
	// A browser remembers what was typed into its window and sends it with every request, also those that
	// another page makes.
	case from.sendsBasic() && !from.hasBrowserMark():
		text, err := base64.StdEncoding.AppendDecode(nil, token)
		name, password, ok := bytes.Cut(text, []byte{':'})
		if err != nil || !ok {
			token = nil
			break
		}
		claimed, token = string(name), password
	// A scheme that is not known is a wrong token, and not one that is missing: it must not pass for
	// anonymous.
	default:
		token = nil
	}
	login, _, err := s.config.Users.LogIn(token, claimed, source)
	return login, err
}

// sendsBasic reports whether a request has a token in the form of Basic.
func (from *sender) sendsBasic() bool {
	scheme, _, _ := bytes.Cut(from.authorization, []byte{' '})
	return bytes.EqualFold(scheme, []byte("Basic"))
}

// hasBrowserMark reports whether a request shows that a browser made it, or that it wants to seem so.
func (from *sender) hasBrowserMark() bool {
	return len(from.origin) > 0 || from.hasSecFetch || from.browserAgent
}

// takeBackUser notes that what a waiter was granted is taken back.
func (w *waiter) takeBackUser() {
	if w.user == nil {
		return
	}
	switch t := w.task.(type) {
	case *grantTask:
		w.user.pass.TakeBackGrant(&t.Command)
	case nil:
		w.user.pass.TakeBack(w.Key, &w.Command)
	}
}

// refuseUser answers a request that is refused for its sender.
func (s *Server) refuseUser(ctx *fasthttp.RequestCtx, from *sender, user *access.User, err error) {
	s.config.Users.CountFailure(telemetry.HTTP, err, peer.Source(ctx.Conn()), user)
	f := userRejection(from, err)
	s.rejectRequest(ctx, from, &f)
}

// refuseRoute is refuseUser for the answer of a route, which finishPage counts.
func (s *Server) refuseRoute(ctx *fasthttp.RequestCtx, from *sender, err error) {
	s.config.Users.CountFailure(telemetry.HTTP, err, peer.Source(ctx.Conn()), from.user)
	f := userRejection(from, err)
	if f.authenticate != "" {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, f.authenticate)
	}
	f.writeTo(&ctx.Response, from.wantsJSON)
}

// userRejection is the answer to a request that is refused for its sender.
func userRejection(from *sender, err error) rejection {
	f := errorRejection(err)
	if f.status == fasthttp.StatusUnauthorized {
		// With Basic a browser would open a window of its own, and send what is typed there from then on.
		f.authenticate = `Bearer realm="gatehouse"`
		if !from.hasBrowserMark() {
			f.authenticate += `, Basic realm="gatehouse", charset="UTF-8"`
		}
	}
	return f
}

// A waiterUser is what a waiter keeps of its user. A waiter has none if rights are off.
type waiterUser struct {
	pass   access.Pass
	login  *access.Login
	wait   *access.Wait // nil unless it waits
	denied error        // why its wait was ended

	denying sync.Mutex // held while its wait is ended
}

// enterUser judges the command of a waiter for its user. It reports false if it was refused.
func (w *waiter) enterUser(ctx *fasthttp.RequestCtx, from *sender) bool {
	// A waiter is used for one request after the other.
	w.user = nil
	if from.user == nil {
		return true
	}
	w.user = &waiterUser{login: from.login}
	var err error
	switch t := w.task.(type) {
	case *grantTask:
		w.user.pass, err = from.user.EnterGrant(&t.Command)
		t.Judge = w.user.pass.JudgeGrant(t.Command.Op)
	case *levels:
		w.user.pass, err = from.user.EnterGrant(&t.Command)
	default:
		w.user.pass, err = from.user.Enter(&w.Key, &w.Command)
	}
	// Only now, as Enter returns a whole Pass.
	w.user.pass.Address, w.user.pass.Protocol = peer.Source(ctx.Conn()), telemetry.HTTP
	if err == nil {
		return true
	}
	// What was not put to the gate has no decision that would be counted.
	w.server.metrics.countMalformed(w.responder.key.Kind, w.responder.op, from.began)
	w.server.refuseUser(ctx, from, from.user, err)
	return false
}

// leaveUser makes what was decided something that the user may see. It is called once, before the answer.
func (w *waiter) leaveUser() {
	if b, ok := w.task.(*batchTask); ok {
		b.leaveUser()
	}
	if w.user == nil {
		return
	}
	// Before Leave, which counts what was granted: the wait asks for its names no more.
	w.user.wait.End()
	switch t := w.task.(type) {
	case *grantTask:
		t.Err = w.user.pass.LeaveGrant(&t.Command, &t.Decision, w.deniedOr(t.Err))
	case *levels:
		t.Err = w.user.pass.LeaveGrant(&t.Command, &t.Decision, w.deniedOr(t.Err))
	case nil:
		w.Err = w.user.pass.Leave(w.Key, &w.Command, w.Decision, w.deniedOr(w.Err))
	}
}

// deniedOr returns why the wait of a request was ended, or else its error. What was decided before the wait
// was ended is taken back.
func (w *waiter) deniedOr(err error) error {
	// The gate takes back what the request was granted, which it must find as it decided it.
	w.user.denying.Lock()
	defer w.user.denying.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.user.denied, err)
}

// beginWait counts a request that is to wait. It reports false if it was refused: the user has as many
// as it may.
func (w *waiter) beginWait(ctx *fasthttp.RequestCtx, from *sender) bool {
	if w.user == nil || !w.responder.mayWait() {
		return true
	}
	user := w.user.pass.User()
	// Each of several names may be one that the user must not wait for any more.
	var wait access.Wait
	switch t := w.task.(type) {
	case *grantTask:
		wait = user.NewGrantWait(w.user.login, &t.Command)
	case *levels:
		wait = user.NewGrantWait(w.user.login, &t.Command)
	default:
		wait = user.NewWait(w.user.login, w.responder.key, w.responder.op)
	}
	var err error
	w.user.wait, err = w.server.config.Users.BeginWait(wait, w.deny)
	if err == nil {
		return true
	}
	w.mu.Lock()
	w.finished = true
	w.mu.Unlock()
	w.cancel()
	w.server.refuseUser(ctx, from, user, err)
	return false
}

// endWait ends the counting of a waiter that is not decided.
func (w *waiter) endWait() {
	if w.user != nil {
		w.user.wait.End()
	}
}

// cancelRequest is cancel without what counts for the user's quotas.
func (w *waiter) cancelRequest() {
	if w.task != nil {
		w.task.cancelTask()
		return
	}
	w.server.config.Gate.Cancel(&w.Request)
}

// deny ends the wait of a request whose user may not wait any more.
func (w *waiter) deny(err error) {
	w.user.denying.Lock()
	defer w.user.denying.Unlock()
	w.mu.Lock()
	finished := w.finished
	if !finished { // else its answer is on its way, and what it was granted is not taken back
		w.user.denied = err
	}
	w.mu.Unlock()
	if !finished {
		pass := &w.user.pass
		w.server.config.Users.CountFailure(telemetry.HTTP, err, pass.Address, pass.User())
		w.cancelRequest() // leaveUser ends the counting, or a hang-up at the same time does
	}
}

// allowHeaders lets the pages of an allowed origin send a token. A browser asks for that with OPTIONS.
func (s *Server) allowHeaders(ctx *fasthttp.RequestCtx, from *sender) {
	if s.config.Users != nil && ctx.IsOptions() && s.allowedOrigin(from) != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAccessControlAllowHeaders, "Authorization, Content-Type")
	}
}

// hidePlace makes a place in line something that the user may see.
func (w *waiter) hidePlace(entry *gatehouse.WaiterEntry) *waiterUser {
	if w.user != nil {
		entry.Grant = w.user.pass.User().ShownGrant(entry.Grant)
	}
	return w.user
}

// shownName is the name that the user knows for one of the gate's.
func (u *waiterUser) shownName(name string) string {
	if u != nil {
		name, _ = u.pass.User().Outside(name)
	}
	return name
}

// callerOf returns who the connection is. Only the handler of its present request calls it.
func (c *httpConn) callerOf() *access.Caller {
	if c.caller.Load() == nil {
		c.caller.Store(new(access.Caller))
	}
	return c.caller.Load()
}

// userOf returns who a request is from, nil if rights are off.
func (s *Server) userOf(ctx *fasthttp.RequestCtx) *access.User {
	if user, ok := ctx.UserValue(access.ContextKey).(*access.User); ok {
		return user
	}
	return s.unknown
}
