package grpc

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
)

// The limits of one call.
const (
	maxEntries = 10_000 // resources: decided in less than 10 ms
	maxBands   = 100    // priorities of one server at one resource
	maxID      = 512    // bytes of a resource's or client's name
	maxAmount  = 1e15   // wanted at once: sums of a million of them are exact to a millionth
	maxClients = 1_000_000_000
)

// A capacityCall is a request and its answer, on their way through the server. It is used again and again, with
// the memory it has; nothing in it may be kept.
type capacityCall struct {
	client   string // or server
	server   bool   // the client is a server with clients of its own
	requests []capacity.Request
	demands  []capacity.Demand // of all requests, one after the other
	released []string
	grants   []capacity.Grant // answers to requests

	decided int   // how many of the requests were, or were refused
	refusal error // of the first that a limit refused; its answer is left out
	fault   error // what was wrong with the message
}

// reset makes the call ready for the next request.
func (c *capacityCall) reset() {
	clear(c.requests)
	clear(c.released)
	clear(c.grants)
	*c = capacityCall{
		requests: c.requests[:0], demands: c.demands[:0], released: c.released[:0], grants: c.grants[:0],
	}
}

// addRequest appends a request, which gets the demands that were appended since the one before.
func (c *capacityCall) addRequest(r capacity.Request, demands int) {
	r.Server = c.server
	r.Demands = c.demands[len(c.demands)-demands:]
	c.requests = append(c.requests, r)
}

// checkFields refuses what no client should send, before anything is decided, by the names that fields have in
// the protocol. What clients of doorman do send is put right instead:
//
//   - A want of NaN comes from a limiter that is idle. It means what was wanted before.
//   - A lease of less than nothing, or of no number, is what doorman gave in its worst moments. It counts
//     as one of nothing, as refusing it would keep the client from ever getting a better one.
func (c *capacityCall) checkFields() error {
	field := "client_id"
	if c.server {
		field = "server_id"
	}
	if fault := idFault(c.client); fault != "" {
		return invalid("%s %s", field, fault)
	}
	if len(c.requests) > maxEntries {
		return invalid("resource has %d entries, want at most %d", len(c.requests), maxEntries)
	}
	for i := range c.requests {
		r := &c.requests[i]
		if fault := idFault(r.Resource); fault != "" {
			return invalid("resource[%d].resource_id %s", i, fault)
		}
		if fault := c.checkDemands(r.Demands); fault != "" {
			return invalid("resource[%d].%s", i, fault)
		}
		r.Has.Capacity = sanitizeHas(r.Has.Capacity)
	}
	return nil
}

// checkDemands says what is wrong with what is wanted, "" when nothing is.
func (c *capacityCall) checkDemands(demands []capacity.Demand) string {
	if len(demands) > maxBands {
		return fmt.Sprintf("wants has %d bands, want at most %d", len(demands), maxBands)
	}
	for i := range demands {
		d := &demands[i]
		band := ""
		if c.server {
			band = fmt.Sprintf("wants[%d].", i)
		}
		if d.Clients < 1 || d.Clients > maxClients {
			return fmt.Sprintf("%snum_clients is %d, want 1 to %d", band, d.Clients, maxClients)
		}
		idle := d.Wants != d.Wants && !c.server
		if !idle && !(d.Wants >= 0 && d.Wants <= maxAmount) {
			return fmt.Sprintf("%swants is %v, want 0 to %v", band, d.Wants, maxAmount)
		}
	}
	return ""
}

// sanitizeHas is how much a client can be said to hold by what it claims.
func sanitizeHas(claim float64) float64 {
	if !(claim > 0) || math.IsInf(claim, 0) {
		return 0
	}
	return min(claim, maxAmount)
}

// idFault says what is wrong with a name, "" when nothing is.
func idFault(id string) string {
	if id == "" {
		return fmt.Sprintf("is empty, want 1 to %d bytes", maxID)
	}
	if len(id) > maxID {
		return fmt.Sprintf("has %d bytes, want 1 to %d", len(id), maxID)
	}
	plain := true
	for i := range len(id) {
		plain = plain && id[i] >= ' ' && id[i] < 0x7f
	}
	switch {
	case plain:
		return ""
	case !utf8.ValidString(id):
		return fmt.Sprintf("is %q, want valid UTF-8", id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Sprintf("is %q, want no control characters", id)
	}
	return ""
}

func invalid(format string, args ...any) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, format, args...)
}

// The seconds of the protocol. What is further away than anybody can mean is cut.
const maxSeconds = 1 << 36 // some 2,000 years

func atSecond(seconds int64) time.Time { return time.Unix(min(max(seconds, 0), maxSeconds), 0) }

func forSeconds(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(gatehouse.MaxDuration/time.Second))) * time.Second
}
