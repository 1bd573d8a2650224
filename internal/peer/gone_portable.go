//go:build !linux

package peer

// Gone reports whether the other end of a socket is known to be gone at this instant. Elsewhere than on
// Linux that is not known until the socket is read.
func Gone(int32) bool { return false }

// UnreadBytes is how many bytes have come on a socket that were not read yet, which is only known on Linux.
func UnreadBytes(int32) int { return 0 }

// pending reports whether a listener has connections that were not accepted yet, which is only known on
// Linux.
func pending(int32) bool { return false }
