package http

import (
	"testing"
	"unsafe"
)

// There may be as many of these as connections, so that none grows beyond a size of the allocator by
// mistake.
func TestSizeOfAWaitingRequest(t *testing.T) {
	const header = 8 // of an object with pointers beyond 512 bytes
	for _, of := range []struct {
		what       string
		size, most uintptr
	}{
		{"waiter", unsafe.Sizeof(waiter{}), 576 - header},
		{"httpConn", unsafe.Sizeof(httpConn{}), 416},
	} {
		if of.size > of.most {
			t.Errorf("a %s has %d bytes, want at most %d", of.what, of.size, of.most)
		}
	}
}
