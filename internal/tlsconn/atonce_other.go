//go:build !unix

package tlsconn

import "net"

func readAtOnce(conn net.Conn, b []byte) (int, error) { return conn.Read(b) }

func writeAtOnce(conn net.Conn, b []byte) (int, error) { return conn.Write(b) }
