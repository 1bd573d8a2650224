//go:build !unix

package resp

import "github.com/panjf2000/gnet/v2"

// shutdownWrite ends what is sent on the connection, and reports whether it could. Here it cannot.
func shutdownWrite(gnet.Conn) bool { return false }
