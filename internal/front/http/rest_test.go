package http

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// endSending has a client end what it sends, with TLS as without, or break off altogether.
var endSending = map[string]func(*testing.T, *client){
	"ends what it sends": func(t *testing.T, c *client) {
		t.Helper()
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	},
	"closes": func(_ *testing.T, c *client) { _ = c.Close() },
	"resets": func(_ *testing.T, c *client) {
		conn := c.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	},
}

// eachTransport calls a test without TLS and with it.
func eachTransport(t *testing.T, test func(t *testing.T, s *farStore, dial func() *client)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) {
		s := newFar()
		r := newRigOn(t, Config{}, s)
		defer s.letGo()
		test(t, s, func() *client { return r.dial(t) })
	})
	t.Run("TLS", func(t *testing.T) {
		s := newFar()
		r := newTLSRigOn(t, Config{}, s)
		defer s.letGo()
		test(t, s, func() *client { return r.dialTLS(t, 0) })
	})
}

// What has arrived is done, however its client leaves while the store works on the first of it.
func TestRequestsOfAClientThatLeaves(t *testing.T) {
	for how, leave := range endSending {
		t.Run(how, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, s *farStore, dial func() *client) {
				t.Helper()
				const holds = 20
				gone, other := dial(), dial()
				paths := []string{"/counter/held/count"}
				for i := range holds {
					other.send(fmt.Sprintf("/semaphore/s/acquire?size=20&expires=0&key=k%d", i))
					other.want(200, fmt.Sprintf("k%d", i))
					paths = append(paths, fmt.Sprintf("/semaphore/s/release?key=k%d", i))
				}
				gone.send(paths...)
				s.inHand(t, 1)
				leave(t, gone)
				s.letGo()
				for i := range holds {
					other.send(fmt.Sprintf("/semaphore/s/acquire?size=20&key=next%d&maxwait=20000", i))
					other.want(200, fmt.Sprintf("next%d", i))
				}
			})
		})
	}
}

// A client that ends what it sends is answered all that it had sent: what a store decides, and pages.
func TestAnswersForAClientThatEndsSending(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *farStore, dial func() *client) {
		t.Helper()
		c := dial()
		c.send("/counter/held/count", "/counter/held/count", "/", "/counter/free/count", "/counter/half")
		s.inHand(t, 1)
		endSending["ends what it sends"](t, c)
		s.letGo()
		c.want(200, "1")
		c.want(200, "2")
		resp, err := http.ReadResponse(c.reader, nil)
		if err != nil || resp.StatusCode != http.StatusFound {
			t.Fatalf("%v, %v, want 302", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		c.want(200, "1")
	})
}
