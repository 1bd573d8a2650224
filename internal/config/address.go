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

// A placedAddress is one that a file has.
type placedAddress struct {
	Address
	at Position
}

// ParseAddress reads host:port, in which the host may be empty. The error has no subject. Nobody is asked
// whether the machine has such an address.
func ParseAddress(text string) (Address, error) {
	host, port, err := net.SplitHostPort(text)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || strings.ContainsAny(host, " \t\r\n/@?#\"") {
		return Address{}, fmt.Errorf("is %s, want a host and a port such as localhost:5001 or 0.0.0.0:5001",
			quote(text))
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
		if ip.IsUnspecified() {
			host = ""
		}
	}
	host = strings.ToLower(host)
	if host == "localhost" {
		host = "127.0.0.1" // which is where Go listens then
	}
	return Address{host, uint16(number), text}, nil
}

// String is the address as it was written.
func (a Address) String() string { return a.text }

// Meets reports whether two servers cannot listen at both at the same time. A system chooses other ports for
// port 0 each time.
func (a Address) Meets(b Address) bool {
	return a.port != 0 && a.port == b.port && (a.host == b.host || a.host == "" || b.host == "")
}
