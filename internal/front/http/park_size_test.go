package http

import (
	"testing"
	"unsafe"
)

// Memory is given out in sizes that are steps apart. What each waiting request has must not grow into the
// next step unseen: there may be 10,000 of them, and more.
func TestSizeOfAWaitingRequest(t *testing.T) {
	const header = 8 // of an object with pointers beyond 512 bytes
	for _, of := range []struct {
		what       string
		size, most uintptr
	}{
		{"waiter", unsafe.Sizeof(waiter{}), 576 - header},
		{"pacedConn", unsafe.Sizeof(pacedConn{}), 160},
		{"parkedConn", unsafe.Sizeof(parkedConn{}), 96},
	} {
		if of.size > of.most {
			t.Errorf("a %s has %d bytes, want at most %d", of.what, of.size, of.most)
		}
	}
}
