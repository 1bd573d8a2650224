package peer

import (
	"net"
	"net/netip"
	"sync"
)

// Addresses counts the open connections of each address, so that one cannot take all there are. The zero
// value allows any number. IPv6 addresses count by their first 64 bits, because one machine has as many of
// the others as it likes.
type Addresses struct {
	Most int // for one address; 0 means any

	mu   sync.Mutex
	open map[netip.Addr]int
}

// prefixBits is how much of an IPv6 address says whose it is.
const prefixBits = 64

// Enter counts a connection from an address, unless that is the zero address. It reports false, and counts
// nothing, when there are too many. Each connection that entered has to leave.
func (a *Addresses) Enter(from netip.Addr) bool {
	if !from.IsValid() || a.Most <= 0 {
		return true
	}
	address := machineAddress(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[address] >= a.Most {
		return false
	}
	// The zero value is ready, so the map is made at the first connection.
	if a.open == nil {
		a.open = make(map[netip.Addr]int)
	}
	a.open[address]++
	return true
}

// Leave ends the counting of a connection that entered.
func (a *Addresses) Leave(from netip.Addr) {
	if !from.IsValid() || a.Most <= 0 {
		return
	}
	address := machineAddress(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[address]--
	// Otherwise the map would keep every address that was ever seen.
	if a.open[address] <= 0 {
		delete(a.open, address)
	}
}

// machineAddress is the part of an address that belongs to one machine.
func machineAddress(address netip.Addr) netip.Addr {
	// An IPv4 client may come as ::ffff:a.b.c.d: without Unmap all of them would share 64 bits.
	address = address.Unmap().WithZone("")
	if address.Is4() || address.IsLoopback() {
		return address
	}
	prefix, err := address.Prefix(prefixBits)
	if err != nil {
		return address
	}
	return prefix.Addr()
}

// Source is where a connection comes from, the zero address where that is no TCP.
func Source(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}
