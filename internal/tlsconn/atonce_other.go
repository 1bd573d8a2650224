//go:build !unix

package tlsconn

import "net"

func writeAtOnce(conn net.Conn, b []byte) (int, error) { return conn.Write(b) }
