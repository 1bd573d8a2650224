package resp

import (
	"testing"
	"unsafe"
)

// A connection that waits costs what these have, and what the gate and gnet add. Each is the size of an
// allocation class: one word more costs 16 bytes.
func TestSizes(t *testing.T) {
	if size := unsafe.Sizeof(session{}); size > 176 {
		t.Errorf("a session has %d bytes, want at most 176", size)
	}
	if size := unsafe.Sizeof(nativeCall{}); size > 416 {
		t.Errorf("a command has %d bytes, want at most 416", size)
	}
}
