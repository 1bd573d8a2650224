//go:build linux || darwin

// Package etcdtest starts real etcd clusters for tests, one process for each member, and kills, pauses and
// moves them. The program is built from source at first use.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse/internal/etcd"
	"github.com/gatehousehq/gatehouse/internal/freeport"
)

const (
	// patience is how long a cluster may take for anything. It takes about a second.
	patience = 60 * time.Second
	// requestTimeout is how long one question to a cluster that may have no leader is worth waiting for.
	requestTimeout = 2 * time.Second
	// openAttempts is how often free ports are looked for: another process may take one first.
	openAttempts = 5
)

// A Cluster is some members of etcd, numbered from 0. It ends with the test.
type Cluster struct {
	members []*member
}

// Start starts a cluster and waits until all members are ready. 1 member is a whole etcd. Of 3, 1 may be
// away. A lease lasts 1 s or longer.
func Start(tb testing.TB, members int) *Cluster {
	tb.Helper()
	c, err := Open(tb.TempDir(), members)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.End)
	return c
}

// Open starts a cluster outside of a test, with its data in a folder. End ends it.
func Open(folder string, members int) (c *Cluster, err error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	for n := range openAttempts {
		// In a folder of its own each time: an attempt that failed may have left data behind.
		c, err = openCluster(binary, filepath.Join(folder, strconv.Itoa(n)), members)
		if err == nil {
			return c, nil
		}
	}
	return nil, err
}

func openCluster(binary, folder string, members int) (*Cluster, error) {
	c := &Cluster{}
	var all []string
	for n := range members {
		client, err := freeport.Next()
		if err != nil {
			return nil, err
		}
		peer, err := freeport.Next()
		if err != nil {
			return nil, err
		}
		name := "m" + strconv.Itoa(n)
		c.members = append(c.members, &member{
			name: name, client: client, peer: peer, folder: filepath.Join(folder, name), binary: binary,
		})
		all = append(all, name+"=http://"+peer)
	}
	// A member must know all others when it starts, so that all addresses are found before.
	for n, m := range c.members {
		m.cluster = strings.Join(all, ",")
		if err := m.startProcess(); err != nil {
			// Only those that were started can be killed.
			c.members = c.members[:n]
			c.End()
			return nil, err
		}
	}
	// They become ready together, once a majority has elected a leader.
	end := time.After(patience)
	for _, m := range c.members {
		// Another process may have taken its port: then it exits at once.
		select {
		case <-m.log.ready:
			continue
		case <-m.exited:
		case <-end:
		}
		c.End()
		return nil, fmt.Errorf("etcd %s at %s is not ready: %s", m.name, m.client, m.log)
	}
	return c, nil
}

// End kills all members.
func (c *Cluster) End() {
	for _, m := range c.members {
		m.killProcess()
	}
}

// Endpoints are the addresses of all members, in order, as host:port.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client)
	}
	return all
}

// URL is an address for a key that begins with a slash: etcd://host:port,host:port/key.
func (c *Cluster) URL(key string) string {
	return "etcd://" + strings.Join(c.Endpoints(), ",") + key
}

// Client is one that is closed when the test ends.
func (c *Cluster) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return dialClient(tb, c.URL("/"+tb.Name()))
}

func dialClient(tb testing.TB, url string) *clientv3.Client {
	tb.Helper()
	client, _, _, err := etcd.Open(url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends a member at once, as a crash would. Its data stay.
func (c *Cluster) Kill(member int) { c.members[member].killProcess() }

// Stop asks a member to end, as an operator would, and waits until it has. A leader hands over first.
func (c *Cluster) Stop(member int) {
	c.members[member].sendSignal(syscall.SIGTERM)
	<-c.members[member].exited
}

// Restart starts a member again that was killed or stopped, with its data and at its address. It does not
// wait until it is ready: without a majority it never is. Healthy does.
func (c *Cluster) Restart(tb testing.TB, member int) {
	tb.Helper()
	if err := c.Again(member); err != nil {
		tb.Fatal(err)
	}
}

// Again is Restart outside of a test.
func (c *Cluster) Again(member int) error {
	m := c.members[member]
	// A second process would fail on the same ports and data.
	if m.isRunning() {
		return fmt.Errorf("etcd %s runs, want it killed or stopped first", m.name)
	}
	return m.startProcess()
}

// Ready is closed once a member can be asked, which it says at each of its starts.
func (c *Cluster) Ready(member int) <-chan struct{} { return c.members[member].log.ready }

// Save copies the data of a member that was stopped. When it is stopped again, what it returns puts them back
// in place of later ones, as an operator does with a backup.
func (c *Cluster) Save(tb testing.TB, member int) (restore func()) {
	tb.Helper()
	folder, backup := c.members[member].folder, filepath.Join(tb.TempDir(), "backup")
	replace := func(to, from string) {
		tb.Helper()
		if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
			tb.Fatal(err)
		}
	}
	replace(backup, folder)
	// The member must be stopped by then, as etcd keeps its files open.
	return func() {
		tb.Helper()
		replace(folder, backup)
	}
}

// Pause stops a member, and returns when it has stopped: it takes connections and requests and answers none,
// until Resume.
func (c *Cluster) Pause(member int) {
	c.members[member].sendSignal(syscall.SIGSTOP)
	awaitStop(c.members[member].process.Pid) // its threads run on until the kernel gets to them
}

// Resume lets a paused member go on.
func (c *Cluster) Resume(member int) { c.members[member].sendSignal(syscall.SIGCONT) }

// Healthy waits until each member that runs answers with what the majority knows. None may be paused.
func (c *Cluster) Healthy(tb testing.TB) {
	tb.Helper()
	for _, m := range c.members {
		if m.isRunning() {
			client := dialClient(tb, "etcd://"+m.client+"/health")
			retryUntilAnswered(tb, func(ctx context.Context) error {
				if _, err := client.Get(ctx, "health"); err != nil {
					return fmt.Errorf("etcd %s at %s: %w\n%s", m.name, m.client, err, m.log)
				}
				return nil
			})
			// Not left to the end of the test, as this is called many times in one.
			_ = client.Close()
		}
	}
}

// Leader is the number of the member that leads the others.
func (c *Cluster) Leader(tb testing.TB) int {
	tb.Helper()
	client, leader := c.Client(tb), -1
	retryUntilAnswered(tb, func(ctx context.Context) error {
		// Each member is asked about itself: others may still name a leader that is gone.
		for n, m := range c.members {
			if m.isRunning() && isLeader(ctx, client, m) {
				leader = n
				return nil
			}
		}
		return errors.New("no member of etcd leads")
	})
	_ = client.Close()
	return leader
}

func isLeader(ctx context.Context, client *clientv3.Client, m *member) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status, err := client.Status(ctx, m.client)
	return err == nil && status.Leader == status.Header.MemberId
}

// MoveLeader lets another member lead, without a pause in between.
func (c *Cluster) MoveLeader(tb testing.TB, to int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	// The leader knows members by their ids, which their statuses show.
	status, err := c.Client(tb).Status(ctx, c.members[to].client)
	if err != nil {
		tb.Fatal(err)
	}
	leader := c.members[c.Leader(tb)]
	if leader == c.members[to] {
		return
	}
	client := dialClient(tb, "etcd://"+leader.client+"/move") // only the leader can be asked
	retryUntilAnswered(tb, func(ctx context.Context) error {
		_, err := client.MoveLeader(ctx, status.Header.MemberId)
		return err
	})
}

// retryUntilAnswered asks a question until it is answered.
func retryUntilAnswered(tb testing.TB, question func(ctx context.Context) error) {
	tb.Helper()
	await.True(tb, "etcd answers", func() bool {
		// Short for each try: one that meets no leader must not take all the time there is.
		ctx, cancel := context.WithTimeout(tb.Context(), requestTimeout)
		defer cancel()
		return question(ctx) == nil
	})
}
