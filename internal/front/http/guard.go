package http

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/valyala/fasthttp"
)

// This file is what the paths need that belong to no name of a controller.

// whoamiPath is the page that tells a client who it is.
const whoamiPath = "/v1/whoami"

// activityPath is the stream of what goes on.
const activityPath = "/v1/activity"

// A pageGuard is what a path that belongs to no name of a controller needs.
type pageGuard struct {
	key   gatehouse.Key
	level gatehouse.Level
	// open paths need no right: they tell nothing that is worth one, or their handler asks for it.
	open bool
}

// pageGuards are those of all pages and of the routes of this program. Any other path needs the right to
// manage, so that no new one is open by accident; TestGuards wants an entry for it.
var pageGuards = map[string]pageGuard{
	"/":                  {open: true},
	"/healthz":           {open: true},
	"/readyz":            {open: true},
	"/.well-known/ready": {open: true},
	whoamiPath:           {open: true}, // it tells a client about itself
	"/metrics":           {key: access.ServerKey("metrics"), level: gatehouse.LevelRead},
	"/docs":              {key: access.ServerKey("docs"), level: gatehouse.LevelRead},
	docsPath:             {key: access.ServerKey("docs"), level: gatehouse.LevelRead},
	cyclesPath:           {key: access.ServerKey("cycles"), level: gatehouse.LevelRead},
	topPath:              {key: access.ServerKey("top"), level: gatehouse.LevelRead},
	decisionsPath:        {open: true}, // the name is judged by answerDecision

	// The page, which tells nothing by itself, and what it asks for.
	assetsPath:      {open: true},
	"/v1/names":     {key: access.ServerKey("activity"), level: gatehouse.LevelRead},
	activityPath:    {key: access.ServerKey("activity"), level: gatehouse.LevelRead},
	"/v1/activity/": {key: access.ServerKey("activity"), level: gatehouse.LevelRead},
	"/v1/server":    {key: access.ServerKey("activity"), level: gatehouse.LevelRead},

	"/capacity":            {key: access.ServerKey("capacity"), level: gatehouse.LevelRead},
	"/capacity/":           {open: true}, // the name of the resource is judged by checkRoute
	"/v1/capacity/get":     {open: true}, // each resource is judged by its handler
	"/v1/capacity/release": {open: true},
	"/debug/status":        {open: true}, // both redirect
	"/debug/resources":     {open: true},
}

// publicPaths are answered without a look at the token: an orchestrator has none, and a browser has none
// before the page, which lies below assetsPath, has asked its user for one.
var publicPaths = []string{"/", "/healthz", "/readyz", "/.well-known/ready"}

// isPublic reports whether a path is one of publicPaths, or a part of the page.
func isPublic(path []byte) bool {
	return slices.Contains(publicPaths, string(path)) || bytes.HasPrefix(path, []byte(assetsPath))
}

// guardOf returns the guard of a page or of the path of a route; nil if there is none.
func guardOf(path string) *pageGuard {
	for _, below := range []string{docsPath, decisionsPath, assetsPath} {
		if strings.HasPrefix(path, below) {
			path = below
		}
	}
	if g, ok := pageGuards[path]; ok {
		return &g
	}
	return nil
}

// mayOpen rejects a request to a page or a route that its user may not see.
func (s *Server) mayOpen(ctx *fasthttp.RequestCtx, path string, from *sender) bool {
	if s.config.Users == nil {
		return true
	}
	// No gate is asked, which is where other requests count to the rate.
	if !s.takeRate(ctx, from) {
		return false
	}
	err := requirePage(from.user, path)
	if err != nil {
		s.refuseUser(ctx, from, from.user, err)
	}
	return err == nil
}

// requirePage returns an error unless a user may see a page or a route.
func requirePage(user *access.User, path string) error {
	g := guardOf(path)
	if g == nil { // no path is open by accident
		g = &pageGuard{key: access.ServerKey("unknown"), level: gatehouse.LevelManage}
	}
	if g.open {
		return nil
	}
	return user.Require(g.key.Kind, g.key.Name, g.level, "to look at")
}

// takeRate counts a request that is put to no gate, where it would be counted. It rejects one of a user who
// asks more often than it may, and reports whether the request may go on.
func (s *Server) takeRate(ctx *fasthttp.RequestCtx, from *sender) bool {
	err := from.user.TakeRate()
	if err != nil {
		s.refuseUser(ctx, from, from.user, err)
	}
	return err == nil
}

// answerWhoami tells a client who it is, and what it may do.
func (s *Server) answerWhoami(ctx *fasthttp.RequestCtx) {
	if s.config.Users == nil {
		writeJSON(&ctx.Response, map[string]bool{"rights": false})
		return
	}
	type permission struct {
		On string `json:"on"`
		Do string `json:"do"`
	}
	// Not nil, so that a user without rights has an empty list and not null.
	user, may := s.userOf(ctx), []permission{}
	for on, level := range user.Permissions() {
		may = append(may, permission{on, level.String()})
	}
	writeJSON(&ctx.Response, struct {
		User   string `json:"user"`
		Rights bool   `json:"rights"`
		May    any    `json:"may"`
	}{user.Name, true, may})
}

// checkRoute rejects a request to a page of a capacity's resource that its user may not see.
func (s *Server) checkRoute(ctx *fasthttp.RequestCtx, r *route, name string, from *sender) bool {
	if s.config.Users == nil {
		return true
	}
	if !s.mayOpen(ctx, r.path, from) {
		return false
	}
	// The guard of this path is open, as what it needs depends on the resource.
	if r.path == "/capacity/" {
		if err := from.user.Require(glob.Capacity, name, gatehouse.LevelRead, "to look at"); err != nil {
			s.refuseUser(ctx, from, from.user, err)
			return false
		}
	}
	return true
}

// A userView is what a user may see of what goes on: the names that it may read, and what it calls them.
type userView struct{ *access.User }

// Show implements [activity.View].
func (v userView) Show(key gatehouse.Key) (shown gatehouse.Key, ok bool) {
	key.Name, ok = v.Outside(key.Name)
	return key, ok && v.May(key.Kind, key.Name, gatehouse.LevelRead)
}

// viewOf returns what a user may see of what goes on, nil for everything.
func viewOf(user *access.User) activity.View {
	if user.SeesAll() {
		return nil
	}
	return userView{user}
}

// currentView returns a function that tells what the user of a request may see of what goes on now; ok is
// false when that is nothing any more.
func (s *Server) currentView(ctx *fasthttp.RequestCtx) func() (v activity.View, ok bool) {
	login, known := ctx.UserValue(loginKey).(*access.Login)
	return func() (activity.View, bool) {
		if !known {
			return nil, s.config.Users == nil
		}
		// The login outlives the policy: a user who was given fewer rights sees less in the next frame.
		user := s.config.Users.Current(login)
		if user == nil || requirePage(user, activityPath) != nil {
			return nil, false
		}
		return viewOf(user), true
	}
}
