package grpc

import (
	"math"

	"github.com/gatehousehq/gatehouse/capacity"
	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are read from their bytes here, without the types that are generated for them. That saves
// eight allocations for each resource, and it can name the field that is missing, where the generated code
// only knows that one is.
//
// What is read, and what counts as readable, is what the generated code makes of the same bytes. A field
// that is not known is passed over, and so is one of another type than it has in the protocol.

// A wireField is one field of a message.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of a varint or a fixed64
	bytes  []byte // of what has a length
}

// is reports whether it is the field of this number and type.
func (f *wireField) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// float returns the value of a double.
func (f *wireField) float() float64 { return math.Float64frombits(f.value) }

// int returns the value of an int64.
func (f *wireField) int() int64 { return int64(f.value) } // two's complement, as it was sent

// readNext reads the next field of a message into f, and returns the rest of the message.
func (f *wireField) readNext(message []byte) (rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return nil, unreadableError(n)
	}
	if number > protowire.MaxValidNumber { // protowire accepts it, the generated code does not
		return nil, invalid("message cannot be read as the protocol has it: field %d", number)
	}
	message = message[n:]
	// The values of the field before are cleared, so that a type mix-up cannot see them.
	*f = wireField{number: number, kind: kind}
	switch kind {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(message)
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(message)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(message)
	// A type that no field of the protocol has: it is skipped.
	default:
		n = protowire.ConsumeFieldValue(number, kind, message)
	}
	if n < 0 {
		return nil, unreadableError(n)
	}
	return message[n:], nil
}

func unreadableError(n int) error {
	return invalid("message cannot be read as the protocol has it: %w", protowire.ParseError(n))
}

// missingField names the first required field that is not there. have has a bit for each that is: 1 for the
// first name, 2 for the second, 4 for the third.
func missingField(have int, names ...string) error {
	for i, name := range names {
		if have&(1<<i) == 0 {
			return invalid("%s is missing, want one", name)
		}
	}
	return nil
}

// errorAt adds where in a message something is wrong.
func errorAt(err error, place string, index int) error {
	return invalid("%s[%d].%w", place, index, err)
}

// readGet reads a GetCapacityRequest.
func (c *capacityCall) readGet(message []byte) error {
	return c.readCall(message, "client_id", c.readResource)
}

// readServerGet reads a GetServerCapacityRequest.
func (c *capacityCall) readServerGet(message []byte) error {
	c.server = true
	return c.readCall(message, "server_id", c.readServerResource)
}

// readCall reads what both requests have in common: which client asks, and for which resources.
func (c *capacityCall) readCall(
	message []byte, who string, readResource func(message []byte) error,
) (err error) {
	have, entries := 0, 0
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.BytesType):
			c.client = string(f.bytes)
			have |= 1
		// Refused while reading, so that a message of tiny resources does not take a hundred times its size.
		case f.is(2, protowire.BytesType) && entries == maxEntries:
			return invalid("resource has more than %d entries, want at most that", maxEntries)
		case f.is(2, protowire.BytesType):
			if err := readResource(f.bytes); err != nil {
				return errorAt(err, "resource", entries)
			}
			entries++
		}
	}
	return missingField(have, who)
}

// readResource reads a ResourceRequest.
func (c *capacityCall) readResource(message []byte) (err error) {
	var r capacity.Request
	var has wireLease
	// A field may come more than once, and in any order. As in the generated code the last one counts, and
	// parts of a message are merged.
	have, demand := 0, capacity.Demand{Clients: 1}
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.BytesType):
			r.Resource = string(f.bytes)
			have |= 1
		case f.is(2, protowire.VarintType):
			demand.Priority = f.int()
			have |= 2
		case f.is(3, protowire.BytesType):
			if err := has.readFields(f.bytes); err != nil {
				return err
			}
		case f.is(4, protowire.Fixed64Type):
			demand.Wants = f.float()
			have |= 4
		}
	}
	// A lease is checked when all its parts have been read.
	r.Has, err = has.toLease()
	if err != nil {
		return err
	}
	c.demands = append(c.demands, demand)
	c.addRequest(r, 1)
	return missingField(have, "resource_id", "priority", "wants")
}

// readServerResource reads a ServerCapacityResourceRequest. One without bands comes from a server that no
// client has asked: it counts as one client that wants nothing.
func (c *capacityCall) readServerResource(message []byte) (err error) {
	var r capacity.Request
	var has wireLease
	have, bands := 0, 0
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.BytesType):
			r.Resource = string(f.bytes)
			have |= 1
		case f.is(2, protowire.BytesType):
			if err := has.readFields(f.bytes); err != nil {
				return err
			}
		// As in readCall: the limit holds while reading.
		case f.is(3, protowire.BytesType) && bands == maxBands:
			return invalid("wants has more than %d bands, want at most that", maxBands)
		case f.is(3, protowire.BytesType):
			if err := c.readBand(f.bytes); err != nil {
				return errorAt(err, "wants", bands)
			}
			bands++
		}
	}
	r.Has, err = has.toLease()
	if err != nil {
		return err
	}
	if bands == 0 {
		c.demands = append(c.demands, capacity.Demand{Clients: 1})
		bands = 1
	}
	// The last demands appended are those of this resource.
	c.addRequest(r, bands)
	return missingField(have, "resource_id")
}

// readBand reads a PriorityBandAggregate.
func (c *capacityCall) readBand(message []byte) (err error) {
	// All three fields are required, but 0 is a valid value of each, so have notes which came.
	have, demand := 0, capacity.Demand{}
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.VarintType):
			demand.Priority = f.int()
			have |= 1
		case f.is(2, protowire.VarintType):
			demand.Clients = f.int()
			have |= 2
		case f.is(3, protowire.Fixed64Type):
			demand.Wants = f.float()
			have |= 4
		}
	}
	c.demands = append(c.demands, demand)
	return missingField(have, "priority", "num_clients", "wants")
}

// readRelease reads a ReleaseCapacityRequest. An empty name is ignored: clients of doorman send one for each
// resource they have, before the names themselves.
func (c *capacityCall) readRelease(message []byte) (err error) {
	have := 0
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.BytesType):
			c.client = string(f.bytes)
			have |= 1
		case f.is(2, protowire.BytesType) && len(f.bytes) > 0:
			// Only names that count: a client of doorman sends an empty one for each.
			if len(c.released) == maxEntries {
				return invalid("resource_id has more than %d entries, want at most that", maxEntries)
			}
			c.released = append(c.released, string(f.bytes))
		}
	}
	return missingField(have, "client_id")
}

// readDiscovery reads a DiscoveryRequest, which has no fields. It only checks that the bytes are a message.
func (c *capacityCall) readDiscovery(message []byte) (err error) {
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
	}
	return nil
}

// A wireLease is a Lease as it is read, possibly in parts.
type wireLease struct {
	present         bool
	have            int
	expiry, refresh int64
	amount          float64
}

// readFields reads a Lease, or another part of it.
func (l *wireLease) readFields(message []byte) (err error) {
	// A part overrides what it has, and leaves the rest: protobuf merges a message that comes twice.
	l.present = true
	for f := (wireField{}); len(message) > 0; {
		message, err = f.readNext(message)
		if err != nil {
			return err
		}
		switch {
		case f.is(1, protowire.VarintType):
			l.expiry = f.int()
			l.have |= 1
		case f.is(2, protowire.VarintType):
			l.refresh = f.int()
			l.have |= 2
		case f.is(3, protowire.Fixed64Type):
			l.amount = f.float()
			l.have |= 4
		}
	}
	return nil
}

// toLease returns what was read; the zero Lease when there was none.
func (l *wireLease) toLease() (capacity.Lease, error) {
	if !l.present {
		return capacity.Lease{}, nil
	}
	if err := missingField(l.have, "has.expiry_time", "has.refresh_interval", "has.capacity"); err != nil {
		return capacity.Lease{}, err
	}
	return capacity.Lease{Expiry: atSecond(l.expiry), Refresh: forSeconds(l.refresh), Capacity: l.amount}, nil
}
