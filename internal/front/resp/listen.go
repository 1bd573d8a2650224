package resp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// Connections are accepted here and handed to the event loops, because a listener of gnet's own ends
// its server when there is no file descriptor left, and cannot refuse a connection with a sentence.

// What connections beyond the limits are told, the first in Redis's words.
const (
	tooMany      = "-ERR max number of clients reached\r\n"
	tooManyOfOne = "-ERR max number of clients of one address reached\r\n"
)

// Pauses of the listener after a failure to accept, doubling.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Serve answers the connections of a listener until Shutdown is called. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	if !s.addListener(listener) {
		return listener.Close()
	}
	defer s.serving.Done()
	var turnaway peer.Turnaway
	for pause := firstPause; ; {
		err := s.acceptConnection(listener, &turnaway)
		switch {
		case err == nil:
			pause = firstPause
			continue
		// Asked first: at the end it is Shutdown that has closed the listener, which is no failure.
		case s.ending.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serving RESP on %s: %w", listener.Addr(), err)
		}
		// Mostly there is no file descriptor left, and accepting again at once would fail again at once.
		s.config.Unaccepted.Unaccepted(s.log, "RESP", err)
		<-time.After(pause)
		pause = min(2*pause, lastPause)
	}
}

// acceptConnection hands the next connection to an event loop.
func (s *Server) acceptConnection(listener net.Listener, turnaway *peer.Turnaway) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	if s.open.Load() >= int64(s.config.Conns) {
		s.refuseConnection(conn, turnaway, tooMany)
		return nil
	}
	source := peer.Source(conn) // which is gone after Enroll
	if !s.sources.Enter(source) {
		s.refuseConnection(conn, turnaway, tooManyOfOne)
		return nil
	}
	_, err = s.engine.Enroll(conn) // which closes conn: it needs a file descriptor of its own
	if err != nil {
		s.sources.Leave(source) // otherwise OnClose does
	}
	return err
}

// addListener notes a listener for the end, unless that has come.
func (s *Server) addListener(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Load() {
		return false
	}
	s.listeners[listener] = struct{}{}
	s.serving.Add(1)
	return true
}

// refuseConnection answers a connection that is too many.
func (s *Server) refuseConnection(conn net.Conn, turnaway *peer.Turnaway, why string) {
	s.metrics.Refused.Inc()
	if tcp, ok := conn.(*net.TCPConn); ok {
		turnaway.Refuse(tcp, why)
		return
	}
	_ = conn.Close()
}

// A gnetLogger takes what gnet has to say: how it starts and ends, and what it finds odd. Nothing of
// that is for whoever runs the server.
type gnetLogger struct{ log *slog.Logger }

func (l gnetLogger) logDebug(format string, args ...any) {
	l.log.Debug("event loop", "message", fmt.Sprintf(format, args...))
}

// Debugf implements the logger of gnet.
func (l gnetLogger) Debugf(format string, args ...any) { l.logDebug(format, args...) }

// Infof implements the logger of gnet.
func (l gnetLogger) Infof(format string, args ...any) { l.logDebug(format, args...) }

// Warnf implements the logger of gnet.
func (l gnetLogger) Warnf(format string, args ...any) { l.logDebug(format, args...) }

// Errorf implements the logger of gnet. These are worth knowing.
func (l gnetLogger) Errorf(format string, args ...any) {
	l.log.Warn("event loop", "message", fmt.Sprintf(format, args...))
}

// Fatalf implements the logger of gnet, which has no use for it.
func (l gnetLogger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }
