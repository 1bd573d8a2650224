//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// A victim is a process that is killed and stopped.
type victim interface {
	victimName() string
	killVictim()
	startVictim() error
	freezeVictim()
	thawVictim()
}

// A variant is a store, and what is done to it.
type variant struct {
	name, about string
	servers     int
	// storeShare is how many of 12 faults hit the store; the others hit servers.
	storeShare int
	// loses says that a store that is killed starts again, empty.
	loses bool
	// flush is how much of what limiters counted may be lost when a server is killed.
	flush time.Duration
	// forgets says that nothing is promised: the run shows that this is found out.
	forgets bool
	open    func(folder string) (address string, victims []victim, err error)
}

// variants are all there are.
var variants = []variant{
	{
		name: "disk", about: "one server, killed and frozen", servers: 1, flush: 1500 * time.Millisecond,
		open: func(folder string) (string, []victim, error) {
			return "disk:" + filepath.Join(folder, "data"), nil, nil
		},
	},
	{
		name: "redis-kept", about: "three servers and a Redis with appendfsync always, all killed and frozen",
		servers: 3, storeShare: 4, open: openRedis("yes"),
	},
	{
		name: "redis-empty", about: "three servers, and a Redis that loses everything when it is killed",
		servers: 3, storeShare: 2, loses: true, open: openRedis("no"),
	},
	{
		name: "etcd", about: "three servers and three members of etcd, all killed and frozen",
		servers: 3, storeShare: 5, open: openEtcd,
	},
	{
		name: "memory", about: "one server that keeps nothing, to show that this is found out", servers: 1,
		forgets: true,
		open:    func(string) (string, []victim, error) { return "memory", nil, nil },
	},
}

// A processCluster is the processes of one run.
type processCluster struct {
	servers []*serverVictim
	stores  []victim
}

// startCluster starts everything. What was started is ended by end, also after an error.
func (v *variant) startCluster(binary, folder string) (*processCluster, error) {
	st := &processCluster{}
	address, stores, err := v.open(folder)
	if err != nil {
		return st, err
	}
	st.stores = stores
	for n := range v.servers {
		s, err := newServer(n, binary, address, folder)
		if err != nil {
			return st, err
		}
		// Before the start: killAll must also end one that did not become ready.
		st.servers = append(st.servers, s)
		if err := s.startVictim(); err != nil {
			return st, err
		}
	}
	return st, nil
}

func (st *processCluster) killAll() {
	for _, s := range st.servers {
		s.killVictim()
	}
	for _, s := range st.stores {
		s.killVictim()
	}
}

// A redisVictim is a Redis.
type redisVictim struct{ *redistest.Server }

func openRedis(appendOnly string) func(folder string) (string, []victim, error) {
	return func(folder string) (string, []victim, error) {
		dir := filepath.Join(folder, "redis")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", nil, err
		}
		s, err := redistest.Open("--dir", dir, "--appendonly", appendOnly, "--appendfsync", "always")
		if err != nil {
			return "", nil, err
		}
		return "redis://" + s.Address, []victim{redisVictim{s}}, nil
	}
}

func (redisVictim) victimName() string   { return "redis" }
func (v redisVictim) killVictim()        { v.Kill() }
func (v redisVictim) startVictim() error { return v.Again() }
func (v redisVictim) freezeVictim()      { v.Freeze() }
func (v redisVictim) thawVictim()        { v.Thaw() }

// A memberVictim is a member of etcd.
type memberVictim struct {
	*etcdtest.Cluster
	number int
}

func openEtcd(folder string) (string, []victim, error) {
	c, err := etcdtest.Open(filepath.Join(folder, "etcd"), 3)
	if err != nil {
		return "", nil, err
	}
	var list []victim
	for n := range c.Endpoints() {
		list = append(list, memberVictim{c, n})
	}
	return c.URL("/chaos"), list, nil
}

func (v memberVictim) victimName() string { return fmt.Sprintf("member %d", v.number+1) }
func (v memberVictim) killVictim()        { v.Kill(v.number) }
func (v memberVictim) freezeVictim()      { v.Pause(v.number) }
func (v memberVictim) thawVictim()        { v.Resume(v.number) }

// startVictim starts the member, and waits until it is one of the cluster again.
func (v memberVictim) startVictim() error {
	if err := v.Again(v.number); err != nil {
		return err
	}
	// No other member is away meanwhile, so there is a majority to join.
	select {
	case <-v.Ready(v.number):
		return nil
	case <-time.After(patience):
		return errors.New(v.victimName() + " of etcd does not come back")
	}
}
