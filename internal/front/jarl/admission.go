package jarl

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// MaxAllowed is how many blocks of addresses an Admission may have.
const MaxAllowed = 1000

// An Admission says which connections of a listener take a place. The others are closed without a byte, and
// take none.
type Admission struct {
	// MaxDelay is the longest delay that is promised; 0 is any. Each connection takes a place, so without it
	// a client that connects often enough puts off all others.
	MaxDelay time.Duration

	// Allow are the addresses that clients may have; empty allows all.
	Allow []netip.Prefix
}

// SetMaxDelay sets the longest delay by its text.
func (a *Admission) SetMaxDelay(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > gatehouse.MaxDuration {
		return fmt.Errorf("want a time above 0 such as 500ms, 60s or 1h, at most 100 years")
	}
	a.MaxDelay = d
	return nil
}

// AddAllowed allows a block of addresses, such as 10.0.0.0/8, or one address.
func (a *Admission) AddAllowed(text string) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		// One address is a block of its full length. Zones are refused, as allowsAddress drops them.
		address, bad := netip.ParseAddr(text)
		if bad != nil || address.Zone() != "" {
			return fmt.Errorf("want an address or a block such as 10.0.0.0/8 or ::1")
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if len(a.Allow) == MaxAllowed {
		return fmt.Errorf("want at most %d of them", MaxAllowed)
	}
	a.Allow = append(a.Allow, prefix.Masked())
	return nil
}

// String lists what is allowed.
func (a *Admission) String() string {
	if len(a.Allow) == 0 {
		return "all"
	}
	blocks := make([]string, len(a.Allow))
	for i, prefix := range a.Allow {
		blocks[i] = prefix.String()
	}
	return strings.Join(blocks, ",")
}

// allowsAddress reports whether a client may have an address.
func (a *Admission) allowsAddress(client net.Addr) bool {
	if len(a.Allow) == 0 {
		return true
	}
	tcp, ok := client.(*net.TCPAddr)
	if !ok {
		return false
	}
	// A listener for both families reports IPv4 clients as ::ffff:10.0.0.1, which no IPv4 block contains.
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(a.Allow, func(p netip.Prefix) bool { return p.Contains(address) })
}

// tooLong reports whether a delay is longer than is promised.
func (a *Admission) tooLong(delay time.Duration) bool { return a.MaxDelay > 0 && delay > a.MaxDelay }
