package grpc

import (
	"fmt"
	"math"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are read from their bytes here, without the types that are generated for them. That saves
// eight allocations for each resource, and it can name the field that is missing, where the generated code
// only knows that one is.
//
// What is read, and what counts as readable, is what the generated code makes of the same bytes. A field
// that is not known is passed over, and so is one of another type than it has in the protocol.

// A fieldReader reads the fields of a message one after the other.
type fieldReader struct {
	rest []byte // of the message
	have int    // a bit for each field that is there and was expected: 1<<1 for that of number 1
	err  error  // why the message cannot be read; it ends there

	number protowire.Number // of the present field, as the rest
	kind   protowire.Type
	value  uint64 // of a varint or a fixed64
	bytes  []byte // of what has a length
}

// is reports whether the field is that of this number and type, and notes that it is there.
func (f *fieldReader) is(number protowire.Number, kind protowire.Type) bool {
	if f.number != number || f.kind != kind {
		return false
	}
	f.have |= 1 << number
	return true
}

// float returns the value of a double.
func (f *fieldReader) float() float64 { return math.Float64frombits(f.value) }

// int returns the value of an int64.
func (f *fieldReader) int() int64 { return int64(f.value) } // two's complement, as it was sent

// next reads the next field, and reports whether there was one.
func (f *fieldReader) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		return f.fail(protowire.ParseError(n))
	}
	if number > protowire.MaxValidNumber { // protowire accepts it, the generated code does not
		return f.fail(fmt.Errorf("field %d", number))
	}
	message := f.rest[n:]
	// The values of the field before are cleared, so that a type mix-up cannot see them.
	f.number, f.kind, f.value, f.bytes = number, kind, 0, nil
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
		return f.fail(protowire.ParseError(n))
	}
	f.rest = message[n:]
	return true
}

// fail ends the message, which cannot be read.
func (f *fieldReader) fail(why error) bool {
	f.err = invalid("message cannot be read as the protocol has it: %w", why)
	return false
}

// end returns why the message could not be read, or else which required field is missing. names are those of
// the fields 1, 2, …; "" stands for one that is not required.
func (f *fieldReader) end(names ...string) error {
	if f.err != nil {
		return f.err
	}
	return missingField(f.have, names...)
}

// missingField names the first required field that is not there, by what a fieldReader has.
func missingField(have int, names ...string) error {
	for i, name := range names {
		if name != "" && have&(2<<i) == 0 {
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
func (c *capacityCall) readCall(message []byte, who string, readResource func(message []byte) error) error {
	entries := 0
	f := fieldReader{rest: message}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			c.client = string(f.bytes)
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
	return f.end(who)
}

// readResource reads a ResourceRequest.
func (c *capacityCall) readResource(message []byte) error {
	var r capacity.Request
	var has wireLease
	// A field may come more than once, and in any order. As in the generated code the last one counts, and
	// parts of a message are merged.
	demand, f := capacity.Demand{Clients: 1}, fieldReader{rest: message}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			r.Resource = string(f.bytes)
		case f.is(2, protowire.VarintType):
			demand.Priority = f.int()
		case f.is(3, protowire.BytesType):
			if err := has.readPart(f.bytes); err != nil {
				return err
			}
		case f.is(4, protowire.Fixed64Type):
			demand.Wants = f.float()
		}
	}
	// A lease is checked when all its parts have been read.
	if f.err == nil {
		r.Has, f.err = has.toLease()
	}
	c.demands = append(c.demands, demand)
	c.addRequest(r, 1)
	return f.end("resource_id", "priority", "", "wants")
}

// readServerResource reads a ServerCapacityResourceRequest. One without bands comes from a server that no
// client has asked: it counts as one client that wants nothing.
func (c *capacityCall) readServerResource(message []byte) error {
	var r capacity.Request
	var has wireLease
	bands, f := 0, fieldReader{rest: message}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			r.Resource = string(f.bytes)
		case f.is(2, protowire.BytesType):
			if err := has.readPart(f.bytes); err != nil {
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
	if f.err == nil {
		r.Has, f.err = has.toLease()
	}
	if bands == 0 {
		c.demands = append(c.demands, capacity.Demand{Clients: 1})
		bands = 1
	}
	// The last demands appended are those of this resource.
	c.addRequest(r, bands)
	return f.end("resource_id")
}

// readBand reads a PriorityBandAggregate.
func (c *capacityCall) readBand(message []byte) error {
	demand, f := capacity.Demand{}, fieldReader{rest: message}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			demand.Priority = f.int()
		case f.is(2, protowire.VarintType):
			demand.Clients = f.int()
		case f.is(3, protowire.Fixed64Type):
			demand.Wants = f.float()
		}
	}
	c.demands = append(c.demands, demand)
	// 0 is a valid value of each, so what counts is that they came.
	return f.end("priority", "num_clients", "wants")
}

// readRelease reads a ReleaseCapacityRequest. An empty name is ignored: clients of doorman send one for each
// resource they have, before the names themselves.
func (c *capacityCall) readRelease(message []byte) error {
	f := fieldReader{rest: message}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			c.client = string(f.bytes)
		// Only names that count: a client of doorman sends an empty one for each.
		case f.is(2, protowire.BytesType) && len(f.bytes) > 0 && len(c.released) == maxEntries:
			return invalid("resource_id has more than %d entries, want at most that", maxEntries)
		case f.is(2, protowire.BytesType) && len(f.bytes) > 0:
			c.released = append(c.released, string(f.bytes))
		}
	}
	return f.end("client_id")
}

// readDiscovery reads a DiscoveryRequest, which has no fields. It only checks that the bytes are a message.
func (c *capacityCall) readDiscovery(message []byte) error {
	f := fieldReader{rest: message}
	for f.next() {
		continue // whatever it is
	}
	return f.end()
}

// A wireLease is a Lease as it is read, possibly in parts.
type wireLease struct {
	present         bool
	have            int // as a fieldReader has it
	expiry, refresh int64
	amount          float64
}

// readPart reads a Lease, or another part of it.
func (l *wireLease) readPart(message []byte) error {
	// A part overrides what it has, and leaves the rest: protobuf merges a message that comes twice.
	l.present = true
	f := fieldReader{rest: message, have: l.have}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			l.expiry = f.int()
		case f.is(2, protowire.VarintType):
			l.refresh = f.int()
		case f.is(3, protowire.Fixed64Type):
			l.amount = f.float()
		}
	}
	l.have = f.have
	return f.err
}

// toLease returns what was read; the zero Lease when there was none.
func (l *wireLease) toLease() (capacity.Lease, error) {
	if !l.present {
		return capacity.Lease{}, nil
	}
	err := missingField(l.have, "has.expiry_time", "has.refresh_interval", "has.capacity")
	return capacity.Lease{
		Expiry: doormanpb.AtSecond(l.expiry), Refresh: doormanpb.ForSeconds(l.refresh), Capacity: l.amount,
	}, err
}
