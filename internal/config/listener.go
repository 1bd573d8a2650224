package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"go.yaml.in/yaml/v4"
)

// listenerNames are the settings of a listener. The first listenerNeeds of them are required.
var listenerNames = []string{"listen", "name", "requests", "period", "mode", "guard", "max-delay", "allow"}

const listenerNeeds = 4

// allowKey is the setting of a listener that may be a list.
const allowKey = "allow"

// readListener reads one listener.
func (f *File) readListener(node *yaml.Node) {
	before := f.faults.Len()
	l := Listener{At: yamlnode.At(node)}
	given := make(map[string]yamlnode.Position)
	for name, value := range f.pairsOf(node, listenerNames, " of a listener") {
		given[name] = yamlnode.At(value)
		// allow is the one setting that may be a list; a single block may stand alone.
		nodes := []*yaml.Node{value}
		if name == allowKey && value.Kind == yaml.SequenceNode {
			nodes = value.Content
		}
		for _, one := range nodes {
			if text, ok := f.readScalar(name, one); ok {
				f.setListener(&l, name, text, yamlnode.At(one))
			}
		}
	}
	// What is no mapping has its fault, and would miss every setting.
	if node.Kind == yaml.MappingNode {
		// In the order of the documentation, not of a map.
		for _, name := range listenerNames[:listenerNeeds] {
			if _, ok := given[name]; !ok {
				f.Fault(l.At, "a listener has no %s", name)
			}
		}
	}
	// With a fault in a field, the limit as a whole would only repeat it.
	if f.faults.Len() > before {
		return
	}
	if err := l.Limit.Check(); err != nil { // all but the name was looked at
		f.Fault(given["name"], "%v", err)
		return
	}
	f.JARL = append(f.JARL, l)
}

// setListener sets one field of a listener.
func (f *File) setListener(l *Listener, name, text string, at yamlnode.Position) {
	var err error
	verb := "is"
	switch name {
	case "listen":
		l.Address = text
		f.addAddress(name, text, at)
	case "name":
		l.Limit.Name = text
	case "requests":
		l.Limit.Requests, err = parseCount(text)
	case "period":
		l.Limit.Period, err = parseDuration(text, time.Nanosecond)
	case "guard":
		l.Limit.Guard, err = parseDuration(text, 0)
	case "max-delay":
		err = l.Admits.SetMaxDelay(text)
	case allowKey:
		verb = "has" // it may be a list
		err = l.Admits.AddAllowed(text)
	case "mode":
		if bad := l.Limit.SetMode(text); bad != nil {
			f.Fault(at, "%v", bad)
		}
	}
	if err != nil {
		f.Fault(at, "%s %s %s, %v", name, verb, quote(text), err)
	}
}

// parseCount parses a number of things. The error says what is wanted.
func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > gatehouse.MaxSize {
		return 0, fmt.Errorf("want a whole number from 1 to %d", int64(gatehouse.MaxSize))
	}
	return n, nil
}

// parseDuration parses a time. The error says what is wanted.
func parseDuration(text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > gatehouse.MaxDuration {
		// A period of 0 would be no limit, and a guard of 0 is none.
		if least > 0 {
			return 0, errors.New("want a time above 0 such as 500ms, 60s or 1h, at most 100 years")
		}
		return 0, errors.New("want a time such as 5ms or 1s, at most 100 years")
	}
	return d, nil
}

// addAddress adds an address, unless it is not valid.
func (f *File) addAddress(name, text string, at yamlnode.Position) {
	a, err := ParseAddress(text)
	if err != nil {
		f.Fault(at, "%s %v", name, err)
		return
	}
	f.addresses = append(f.addresses, placedAddress{a, at})
}

// checkTogether finds settings that exclude each other.
func (f *File) checkTogether() {
	// The later one is at fault, once, and the earlier one is named.
	for i, a := range f.addresses {
		for _, b := range f.addresses[:i] {
			if a.Meets(b.Address) {
				f.Fault(a.at, "the address %s is taken by that in line %d", quote(a.text), b.at.Line)
				break
			}
		}
	}
	for i, l := range f.JARL {
		for _, other := range f.JARL[:i] {
			// Two listeners may share a limiter by its name. Then they must agree on its limit.
			mine, its := l.Limit, other.Limit
			mine.Poll, its.Poll = false, false // how clients ask does not matter to the limit
			if mine.Name == its.Name && mine != its {
				f.Fault(l.At, "the limiter %s has another limit than in the listener in line %d",
					quote(mine.Name), other.At.Line)
				break
			}
		}
	}
}

// quote quotes a value of the file, but not the whole of a long one.
func quote(text string) string { return yamlnode.Quote(text) }

// An Address is where a server listens.
type Address struct {
	host string // empty for all of the machine
	port uint16
	text string
}

// A placedAddress is an address in a file, and its place there.
type placedAddress struct {
	Address
	at yamlnode.Position
}

// ParseAddress reads host:port, in which the host may be empty. The error has no subject. Whether the machine
// has such an address is not checked.
func ParseAddress(text string) (Address, error) {
	host, port, err := net.SplitHostPort(text)
	// Names of ports, such as http, are refused: two listeners at one port must be found.
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

// Meets reports whether two servers cannot listen at both at the same time. For port 0 the system chooses
// another port each time.
func (a Address) Meets(b Address) bool {
	// Port 0 is another free one each time.
	return a.port != 0 && a.port == b.port && (a.host == b.host || a.host == "" || b.host == "")
}
