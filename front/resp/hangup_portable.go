//go:build !linux

package resp

import "github.com/panjf2000/gnet/v2"

// hungUp reports whether the client is known to be gone at this instant. Elsewhere than on Linux that
// is seen only when the loop reads the connection's end.
func hungUp(gnet.Conn) bool { return false }
