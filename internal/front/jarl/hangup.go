package jarl

import "github.com/gatehousehq/gatehouse/internal/peer"

// hungUp reports whether the client is known to be gone at this instant.
func (c *connection) hungUp() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) { gone = peer.Gone(int32(fd)) }) // a descriptor
	return gone || err != nil
}
