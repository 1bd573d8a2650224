package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// dialServer connects, and asks whether anybody is there. A server that stands still takes connections all
// the same; without the question the first request would be lost to it, with an unknown outcome.
func dialServer(ctx context.Context, host string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, &dialError{err}
	}
	if config != nil {
		conn, err = startTLS(ctx, conn, host, config)
		if err != nil {
			return nil, &dialError{err}
		}
	}
	// An accepted connection proves only that the kernel of the other side lives.
	if err := pingServer(ctx, conn); err != nil {
		_ = conn.Close() // it is of no use
		return nil, &dialError{fmt.Errorf("%s does not answer: %w", host, err)}
	}
	return conn, nil
}

func startTLS(ctx context.Context, conn net.Conn, host string, config *tls.Config) (net.Conn, error) {
	own := config.Clone()
	// The certificate is checked against the host that was dialled, which in a cluster is not the first.
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(host)
	}
	secured := tls.Client(conn, own)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // it is of no use
		return nil, err
	}
	return secured, nil
}

var errNotRedis = errors.New("it is no Redis")

// pingServer sends a PING. Any answer will do: before a login it is an error.
func pingServer(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	const longest = 512 // of an answer, which is +PONG or an error
	// The limit keeps a server that is no Redis from filling the memory.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, longest), longest).ReadString('\n')
	switch {
	case err != nil:
		return err
	case line[0] != '+' && line[0] != '-':
		return errNotRedis
	}
	return conn.SetDeadline(time.Time{})
}
