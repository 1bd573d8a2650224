package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// An Address is where a server listens.
type Address struct {
	host string // empty for all of the machine
	port uint16
	text string
}

// A placedAddress is an address in a file, and its place there.
type placedAddress struct {
	Address
	at Position
}

// ParseAddress reads host:port, in which the host may be empty. The error has no subject. Whether the machine
// has such an address is not checked.
func ParseAddress(text string) (Address, error) {
	host, port, err := net.SplitHostPort(text)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || strings.ContainsAny(host, " \t\r\n/@?#\"") {
		return Address{}, fmt.Errorf("is %s, want a host and a port such as localhost:5001 or 0.0.0.0:5001",
			quote(text))
	}
	// The same address can be written in several ways. They are made equal here, to find two listeners on one
	// port.
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
		if ip.IsUnspecified() {
			host = ""
		}
	}
	host = strings.ToLower(host)
	if host == "localhost" {
		host = "127.0.0.1" // where Go listens for localhost
	}
	return Address{host, uint16(number), text}, nil
}

// String returns the address as it was written.
func (a Address) String() string { return a.text }

// Meets reports whether two servers cannot listen at both at the same time. For port 0 the system chooses
// another port each time.
func (a Address) Meets(b Address) bool {
	return a.port != 0 && a.port == b.port && (a.host == b.host || a.host == "" || b.host == "")
}
