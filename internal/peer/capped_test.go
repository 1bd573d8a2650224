package peer

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A scriptedListener accepts what a test sends it, and fails where that is nil.
type scriptedListener struct {
	next   chan net.Conn
	closed chan struct{}
}

func newScriptedListener() *scriptedListener {
	return &scriptedListener{next: make(chan net.Conn), closed: make(chan struct{})}
}

var errNoDescriptor, errOwnClosed = errors.New("too many open files"), errors.New("closed")

func (l *scriptedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.next:
		if conn == nil {
			return nil, errNoDescriptor
		}
		return conn, nil
	case <-l.closed:
		return nil, errOwnClosed
	}
}

func (l *scriptedListener) Close() error   { close(l.closed); return nil }
func (l *scriptedListener) Addr() net.Addr { return new(net.TCPAddr) }

// acceptAll accepts until the listener is closed, and returns the time of each connection.
func acceptAll(l net.Listener) <-chan time.Time {
	times := make(chan time.Time, 100)
	go func() {
		defer close(times)
		for {
			_, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			times <- time.Now()
		}
	}()
	return times
}

// A failure to accept is followed by a pause, which doubles up to a bound and ends with the listener.
func TestCappedListenerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script, failures := newScriptedListener(), 0
		l := CapListener(script, CapConfig{
			Admit:  func(conn net.Conn) (net.Conn, error) { return conn, nil },
			Failed: func(error) { failures++ },
		})
		times := acceptAll(l)
		began := time.Now()
		for range 7 {
			script.next <- nil
		}
		conn, other := net.Pipe()
		defer other.Close() //nolint:errcheck // it cannot fail
		script.next <- conn
		want := (5 + 10 + 20 + 40 + 80 + 100 + 100) * time.Millisecond
		if took := (<-times).Sub(began); took != want || failures != 7 {
			t.Errorf("after %d failures a connection is accepted in %s, want 7 and %s", failures, took, want)
		}
		began = time.Now()
		script.next <- nil
		synctest.Wait() // in the pause
		if err := l.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if _, open := <-times; open || time.Since(began) != 0 {
			t.Errorf("Accept ended %s after Close in a pause, want at once", time.Since(began))
		}
		if err := l.Close(); err != nil || failures != 8 {
			t.Errorf("the second Close() = %v after %d failures, want nil, 8", err, failures)
		}
	})
}

// A connection beyond a limit gets its answer, and one that cannot be served makes the listener pause.
func TestCappedListenerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script, failures := newScriptedListener(), 0
		results := make(chan error, 3)
		l := CapListener(script, CapConfig{
			Admit:  func(conn net.Conn) (net.Conn, error) { return conn, <-results },
			Failed: func(error) { failures++ },
		})
		times := acceptAll(l)
		for _, c := range []struct {
			result error
			text   string
			failed int
		}{{Refusal("sorry"), "sorry", 0}, {Refusal(""), "", 0}, {errNoDescriptor, "", 1}} {
			conn, client := net.Pipe()
			results <- c.result
			began := time.Now()
			script.next <- conn
			text, err := io.ReadAll(client)
			took := time.Since(began)
			synctest.Wait() // Failed is called after the connection is closed
			if string(text) != c.text || err != nil || failures != c.failed {
				t.Errorf("with %v a client reads %q, %v, and there are %d failures, want %q and %d",
					c.result, text, err, failures, c.text, c.failed)
			}
			if took > linger {
				t.Errorf("with %v the connection is closed after %s, want at most %s", c.result, took, linger)
			}
		}
		_ = l.Close()
		if _, open := <-times; open {
			t.Error("a connection was accepted, want none")
		}
	})
}
