//go:build linux || darwin

package etcdtest

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// A Link is the network between one client and all members of a cluster. It can hang, lose answers, or break.
// It ends with the test.
type Link struct {
	listeners []net.Listener

	mu       sync.Mutex
	accepted int               // how many connections there were
	open     map[net.Conn]bool // both ends of all connections
	mode     linkMode
	free     chan struct{} // closed while nothing hangs
}

// A linkMode is what a link does with what comes.
type linkMode int

const (
	carries linkMode = iota
	hangs            // keeps it
	loses            // keeps answers, and carries requests
)

// NewLink lays a link to a cluster.
func NewLink(tb testing.TB, cluster *Cluster) *Link {
	tb.Helper()
	l := &Link{open: make(map[net.Conn]bool), free: make(chan struct{})}
	// A new link carries, and nothing waits on it.
	close(l.free)
	var all sync.WaitGroup
	for _, target := range cluster.Endpoints() {
		listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		l.listeners = append(l.listeners, listener)
		all.Go(func() { l.serveListener(listener, target, &all) })
	}
	// Listeners first, so that no connection is added. Mend closes the others and wakes what hangs.
	tb.Cleanup(func() {
		for _, listener := range l.listeners {
			_ = listener.Close()
		}
		l.Mend()
		all.Wait()
	})
	return l
}

// URL is an address for a key that begins with a slash, by way of the link.
func (l *Link) URL(key string) string {
	var all []string
	for _, listener := range l.listeners {
		all = append(all, listener.Addr().String())
	}
	return "etcd://" + strings.Join(all, ",") + key
}

// Hang lets nothing through from now on, in either direction. The connections stay open.
func (l *Link) Hang() { l.setMode(hangs) }

// LoseAnswers lets requests through from now on, but no answers.
func (l *Link) LoseAnswers() { l.setMode(loses) }

// Taken is how many connections there have been.
func (l *Link) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted
}

func (l *Link) setMode(m linkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A link that hangs already keeps its channel: data are waiting on it.
	if l.mode == carries {
		l.free = make(chan struct{})
	}
	l.mode = m
}

// Mend breaks all connections, and lets new ones work. Requests that were kept may come through late, and
// answers are gone.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// free is closed already while the link carries.
	if l.mode != carries {
		l.mode = carries
		close(l.free)
	}
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *Link) serveListener(listener net.Listener, target string, all *sync.WaitGroup) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		far, err := net.Dial("tcp", target)
		if err != nil {
			_ = near.Close()
			continue
		}
		// Requests and answers are carried apart, since a link may keep only the answers.
		l.mu.Lock()
		l.open[near], l.open[far] = true, true
		l.accepted++
		l.mu.Unlock()
		all.Go(func() { l.copyBytes(near, far, hangs) })
		all.Go(func() { l.copyBytes(far, near, loses) })
	}
}

// copyBytes copies in one direction. From the mode stops on, or a stricter one, it keeps what comes.
func (l *Link) copyBytes(from, to net.Conn, stops linkMode) {
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
		// The mode is read after the data have come, so that a link which hangs keeps data at once. What it
		// keeps is written when free is closed, if the connection still stands.
		free, keeps := l.free, l.mode == hangs || l.mode == stops
		l.mu.Unlock()
		if keeps {
			<-free
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
