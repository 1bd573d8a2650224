package resp

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// What has arrived is done, however its client leaves while the store works on the first of it.
func TestCommandsOfAClientThatLeaves(t *testing.T) {
	for how, leave := range map[string]func(c *net.TCPConn){
		"ends what it sends": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"closes":             func(c *net.TCPConn) { _ = c.Close() },
		"resets": func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newFar()
			d := openStore(t, Config{}, s)
			gone := d.dial(t)
			commandsOfOneThatLeaves(t, s, gone, d.dial(t), func() { leave(gone.Conn.(*net.TCPConn)) })
		})
		t.Run(how+", with TLS", func(t *testing.T) {
			s := newFar()
			d := openTLSStore(t, Config{}, s)
			gone := d.dialTLS(t, 0)
			commandsOfOneThatLeaves(t, s, gone, d.dialTLS(t, 0), func() { leave(gone.tcp()) })
		})
	}
	t.Run("ends TLS", func(t *testing.T) {
		s := newFar()
		d := openTLSStore(t, Config{}, s)
		gone := d.dialTLS(t, 0)
		commandsOfOneThatLeaves(t, s, gone, d.dialTLS(t, 0), func() { _ = gone.tls().CloseWrite() })
	})
}

func commandsOfOneThatLeaves(t *testing.T, s *farStore, gone, other *client, leave func()) {
	t.Helper()
	letGo := s.hold("far")
	const holds = 40
	text := wire("GH.COUNT", "counter/far")
	for i := range holds {
		key := fmt.Sprintf("k%d", i)
		other.want("GH.ACQUIRE semaphore/s SIZE 40 EXPIRES 0 KEY "+key, key)
		text += wire("GH.RELEASE", "semaphore/s", "KEY", key)
	}
	gone.send(text)
	await.True(t, "the store works", func() bool { return s.under.Load() == 1 })
	leave()
	letGo()
	await.True(t, "all are released", func() bool {
		return strings.Contains(other.ask("GH.LIST semaphore WITH DETAILS"), " holders 0 ")
	})
}
