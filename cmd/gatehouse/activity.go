package main

import (
	"context"
	"runtime"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// newActivity returns what the page shows of the names, and runs its history with the server.
func (proc *serverProcess) newActivity(
	s *settings, store *openedStore, observer *decisions.Recorder,
) *activity.Monitor {
	// The registry has each protocol once, so these are the counters of the listeners.
	counted := []*telemetry.Protocol{
		telemetry.New(proc.metrics, telemetry.HTTP), telemetry.New(proc.metrics, telemetry.RESP),
		telemetry.New(proc.metrics, telemetry.JARL),
	}
	// Tickets begin at a number of the server's own only where other servers use the store, too.
	m := activity.New(activity.Config{
		Gate: proc.gate, Now: time.Now, History: s.history, Names: store.countNames,
		Shared:  store.firstTicket != 0,
		Busiest: func(most int) []gatehouse.Key { return busiestNames(observer, most) },
		Totals: func() (granted, refused uint64) {
			for _, p := range counted {
				g, r := p.Totals()
				granted, refused = granted+g, refused+r
			}
			return granted, refused
		},
	})
	proc.background = append(proc.background, func(ctx context.Context) error { return m.Run(ctx) })
	return m
}

// busiestNames returns the names that are busiest by any measure, at most so many, the busiest first.
func busiestNames(observer *decisions.Recorder, most int) (keys []gatehouse.Key) {
	seen := make(map[gatehouse.Key]bool)
	var lists [][]decisions.Name
	for _, by := range []decisions.Measure{decisions.Granted, decisions.Refused, decisions.Waited} {
		lists = append(lists, observer.TopNames(by, 0, most))
	}
	// In turns, so that a name that only refuses is not lost among a thousand that only grant.
	for i := range most {
		for _, list := range lists {
			if i >= len(list) || len(keys) == most {
				continue
			}
			if key := list[i].Key; key.Kind != gatehouse.Grant && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// An aboutServer is what the page tells of the server.
type aboutServer struct {
	Version    string                `json:"version"`
	Go         string                `json:"go"`
	Store      string                `json:"store"`
	StoreState string                `json:"store_state"` // a line, where there is something to say
	Shared     bool                  `json:"shared"`
	Rights     bool                  `json:"rights"`  // there are users: see GET /v1/whoami
	Servers    int                   `json:"servers"` // that share the store; 0 if the file does not say
	Started    time.Time             `json:"started"`
	Capacity   bool                  `json:"capacity"`
	History    int                   `json:"history"`
	Listeners  []aboutListener       `json:"listeners"`
	Limits     map[string]aboutLimit `json:"limits"`
}

type aboutListener struct {
	Protocol string `json:"protocol"`
	Address  string `json:"address"`
}

// An aboutLimit is how much there may be of something at most, and how much of it there is; -1 is not known.
type aboutLimit struct {
	Used int64 `json:"used"`
	Most int64 `json:"most"`
}

// newAbout returns what tells about the server, to who may see all names or to others.
func (proc *serverProcess) newAbout(p *servePlan, store *openedStore) func(seesAll bool) any {
	s := p.settings
	started := time.Now()
	return func(seesAll bool) any {
		a := aboutServer{
			Version: buildVersion(), Go: runtime.Version(), Store: withoutPassword(s.store),
			Shared: store.firstTicket != 0, Rights: proc.users != nil, Servers: p.file.Servers,
			Started: started.UTC(), History: s.history,
			Capacity: s.capacity.grpc != "",
			Limits: map[string]aboutLimit{
				"names":    {int64(store.countNames()), int64(s.maxNames)},
				"waiters":  {int64(proc.gate.Waiting()), int64(s.maxWaiters)},
				"line":     {-1, int64(s.maxLine)},
				"buffered": {proc.budget.Used(), proc.budget.Most()},
			},
		}
		// No server knows it of a shared store.
		holders := int64(-1)
		if store.countHolders != nil {
			holders = int64(store.countHolders())
		}
		a.Limits["holders"] = aboutLimit{holders, int64(s.maxHolders)}
		a.Limits["connections"] = aboutLimit{-1, int64(s.maxConns)}
		// How many names, holders and waiting requests others have is theirs.
		for name, limit := range a.Limits {
			if !seesAll {
				a.Limits[name] = aboutLimit{-1, limit.Most}
			}
		}
		if store.healthLine != nil {
			a.StoreState = store.healthLine()
		}
		// Asked now and not when the server starts: a port of 0 is known only once it listens.
		for _, l := range proc.listeners {
			for _, address := range peer.Addrs(l.listener) {
				a.Listeners = append(a.Listeners, aboutListener{l.protocol, address.String()})
			}
		}
		return a
	}
}
