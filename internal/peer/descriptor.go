package peer

import (
	"net"
	"slices"
	"syscall"
)

// Ask puts a question to the descriptor of a connection or a listener while that is sure to be open. The
// answer is false where there is no descriptor, or it is closed.
func Ask(of any, question func(fd int32) bool) (yes bool) {
	socket, ok := of.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	// Control keeps the descriptor open meanwhile. Its number alone could be another connection's by now.
	err = raw.Control(func(fd uintptr) { yes = question(int32(fd)) }) // a descriptor
	return yes && err == nil
}

// HungUp reports whether the other end of a connection is known to be gone at this instant. A connection that
// cannot be asked counts as gone.
func HungUp(conn any) bool {
	if watched, ok := conn.(Watched); ok {
		return watched.Gone()
	}
	return !Ask(conn, func(fd int32) bool { return !Gone(fd) })
}

// A Joined listener accepts what several others do.
type Joined interface {
	net.Listener
	// Listeners are those others.
	Listeners() []net.Listener
}

// AnyPending reports whether a listener, or one of those that it joins, has connections that were not
// accepted yet.
func AnyPending(l net.Listener) bool {
	if joined, ok := l.(Joined); ok {
		return slices.ContainsFunc(joined.Listeners(), AnyPending)
	}
	return Ask(l, pending)
}
