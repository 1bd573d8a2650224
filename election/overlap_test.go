//go:build linux || darwin

package election

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A link is a connection between one candidate and etcd that can be made to hang, for both ends.
type link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	hangs chan struct{}     // closed while all goes through
	open  map[net.Conn]bool // both ends of all connections
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: target, hangs: make(chan struct{}), open: make(map[net.Conn]bool)}
	close(l.hangs)
	var all sync.WaitGroup
	all.Go(func() { l.serve(&all) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.mend()
		all.Wait()
	})
	return l
}

func (l *link) serve(all *sync.WaitGroup) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return // it was closed
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.open[near], l.open[far] = true, true
		l.mu.Unlock()
		all.Go(func() { l.carry(near, far) })
		all.Go(func() { l.carry(far, near) })
	}
}

// carry copies while the link does not hang.
func (l *link) carry(from, to net.Conn) {
	defer func() {
		_, _ = from.Close(), to.Close()
		l.mu.Lock()
		delete(l.open, from)
		l.mu.Unlock()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		hangs := l.hangs
		l.mu.Unlock()
		<-hangs
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hang keeps all that is sent from now on.
func (l *link) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangs = make(chan struct{})
}

// mend breaks the connections that hang, after what they kept was let through: it comes late.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.hangs:
	default:
		close(l.hangs)
	}
	for c := range l.open {
		_ = c.Close()
	}
}

// Many masterships follow each other, and no two overlap. Most are given back, some masters are cut off.
func TestOneMasterAtATime(t *testing.T) {
	t.Parallel()
	const handovers, cutEach = 400, 50
	etcd := etcdtest.Start(t, 1)
	links, running := map[string]*link{}, map[string]*candidate{}
	var all []*candidate
	join := func(name string) {
		url := "etcd://" + links[name].listener.Addr().String() + "/k?ttl=1s"
		running[name] = enter(t, url, name)
		all = append(all, running[name])
	}
	watcher := enter(t, etcd.URL("/k?ttl=1s"), "watcher")
	watcher.leads(t)
	for n := range 3 {
		name := fmt.Sprintf("c%d", n)
		links[name] = newLink(t, strings.Join(etcd.Endpoints(), ","))
		join(name)
	}
	all = append(all, watcher)
	watcher.leave(t)
	var took []time.Duration // from when a master gave up to when the next one knew
	for n := range handovers {
		leader := anyLeader(t, running)
		if n%cutEach != cutEach-1 {
			delete(running, leader.name)
			began := time.Now()
			leader.leave(t)
			anyLeader(t, running)
			took = append(took, time.Since(began))
			join(leader.name)
			continue
		}
		links[leader.name].hang()
		leader.hears(t, "not to be master", func(s Status) bool { return !s.Leading })
		next := anyLeader(t, running)
		if next == leader {
			t.Errorf("%s leads while it is cut off", leader.name)
		}
		links[leader.name].mend()
	}
	if n := apart(t, all...); n < handovers {
		t.Errorf("there were %d masterships, want %d or more", n, handovers)
	}
	slices.Sort(took)
	t.Logf("%d masters gave up, %d were cut off; the next led after %v, half of the time, and %v at most",
		len(took), handovers-len(took), took[len(took)/2], took[len(took)-1])
}

// anyLeader waits until one of them leads.
func anyLeader(t *testing.T, running map[string]*candidate) *candidate {
	t.Helper()
	found := make(chan *candidate, len(running))
	done := make(chan struct{})
	defer close(done)
	for _, c := range running {
		go func() {
			for {
				last, changed := c.last()
				if last.Leading {
					found <- c
					return
				}
				select {
				case <-changed:
				case <-done:
					return
				}
			}
		}()
	}
	select {
	case c := <-found:
		return c
	case <-t.Context().Done():
		t.Fatal("nobody leads")
		return nil
	}
}
