// Package rpccerts has connections of gRPC speak TLS by the certificates that are in files when they begin.
package rpccerts

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Option has each connection of a client speak TLS as latest says when it begins, such as what Latest of
// certs.ClientFiles returns.
func Option(latest func() *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(&latestFiles{credentials.NewTLS(latest()), latest})
}

// latestFiles are credentials that are made again for each connection.
type latestFiles struct {
	credentials.TransportCredentials // what is the same for all connections
	latest                           func() *tls.Config
}

// ClientHandshake implements [credentials.TransportCredentials].
func (l *latestFiles) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (
	net.Conn, credentials.AuthInfo, error,
) {
	// Credentials keep the configuration that they were made of, so each connection needs new ones.
	return credentials.NewTLS(l.latest()).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (l *latestFiles) Clone() credentials.TransportCredentials {
	return &latestFiles{l.TransportCredentials.Clone(), l.latest}
}
