package grpc

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Answers are written as bytes here, as requests are read. Every field that the protocol requires is
// written, zero or not: clients of doorman take an answer for broken that leaves out a capacity of 0.

// Upper bounds of the sizes of parts of an answer, with their tags and lengths.
const (
	leaseSize    = 2 + 11 + 11 + 9
	responseSize = 8 + 6 + leaseSize + 9 + learningSize // without the name
	learningSize = 2 + 10
)

// sizeGet returns an upper bound of the size of the answer to a GetCapacityRequest or a
// GetServerCapacityRequest.
func (c *capacityCall) sizeGet() int {
	size := 0
	for i := range c.grants {
		g := &c.grants[i]
		size += responseSize + len(g.Resource)
		if c.server && g.Algorithm != nil {
			size += 6 + sizeBlock(g.Algorithm)
		}
	}
	return size
}

// appendGet appends a GetCapacityResponse.
func (c *capacityCall) appendGet(to []byte) []byte {
	for i := range c.grants {
		g := &c.grants[i]
		// The length comes before the message, so the size is computed first. 9 bytes are a double with its
		// tag.
		size := sizeBytes(len(g.Resource)) + sizeLease(&g.Lease) + 9
		learning := learningSeconds(g)
		if learning > 0 {
			size += 1 + sizeInt(learning) // its tag has two bytes
		}
		to = appendHead(to, 1, size)
		to = appendString(to, 1, g.Resource)
		to = appendLease(to, &g.Lease)
		to = appendDouble(to, 3, finiteAmount(g.Safe))
		if learning > 0 {
			to = appendInt(to, doormanpb.LearningField, learning)
		}
	}
	return to
}

// learningSeconds returns how long the server still learns, rounded up; 0 when it does not.
func learningSeconds(g *capacity.Grant) int64 {
	return int64((g.Learning + time.Second - 1) / time.Second)
}

// appendServerGet appends a GetServerCapacityResponse. It contains the amount that a client may use without
// a lease only if that is configured; otherwise the asking server divides what it has by its clients.
func (c *capacityCall) appendServerGet(to []byte) []byte {
	for i := range c.grants {
		g := &c.grants[i]
		size := sizeBytes(len(g.Resource)) + sizeLease(&g.Lease)
		if g.Algorithm != nil {
			size += 1 + protowire.SizeBytes(sizeBlock(g.Algorithm))
		}
		if g.SafeConfigured {
			size += 9
		}
		to = appendHead(to, 1, size)
		to = appendString(to, 1, g.Resource)
		to = appendLease(to, &g.Lease)
		// By field number, as the generated code writes them.
		if g.Algorithm != nil {
			to = appendAlgorithm(to, g.Algorithm)
		}
		if g.SafeConfigured {
			to = appendDouble(to, 4, finiteAmount(g.Safe))
		}
	}
	return to
}

// appendMastership appends a Mastership, without an address when the master is not known.
func appendMastership(to []byte, number protowire.Number, address string) []byte {
	if address == "" {
		return appendHead(to, number, 0)
	}
	to = appendHead(to, number, sizeBytes(len(address)))
	return appendString(to, 1, address)
}

// appendDiscovery appends a DiscoveryResponse.
func appendDiscovery(to []byte, address string, leading bool) []byte {
	to = appendMastership(to, 1, address)
	return appendInt(to, 2, int64(protowire.EncodeBool(leading)))
}

func appendLease(to []byte, l *capacity.Lease) []byte {
	expiry, refresh := leaseSeconds(l)
	to = appendHead(to, 2, sizeLease(l)-2)
	to = appendInt(to, 1, expiry)
	to = appendInt(to, 2, refresh)
	return appendDouble(to, 3, l.Capacity)
}

// sizeLease returns the size of a Lease with its head, whose length takes one byte.
func sizeLease(l *capacity.Lease) int {
	expiry, refresh := leaseSeconds(l)
	return 2 + sizeInt(expiry) + sizeInt(refresh) + 9
}

// leaseSeconds returns the times of a lease in whole seconds, rounded down: for the client it never ends
// later than it does here.
func leaseSeconds(l *capacity.Lease) (expiry, refresh int64) {
	return l.Expiry.Unix(), int64(l.Refresh / time.Second)
}

func appendAlgorithm(to []byte, a *capacity.Algorithm) []byte {
	to = appendHead(to, 3, sizeBlock(a))
	to = appendInt(to, 1, int64(a.Kind))
	to = appendInt(to, 2, int64(a.LeaseLength/time.Second))
	to = appendInt(to, 3, int64(a.RefreshInterval/time.Second))
	// Repeated fields are written one by one, each with its tag.
	for _, p := range a.Parameters {
		to = appendHead(to, 4, sizeBytes(len(p.Name))+sizeBytes(len(p.Value)))
		to = appendString(to, 1, p.Name)
		to = appendString(to, 2, p.Value)
	}
	// An explicit 0 means no learning; a field that is left out means as long as a lease.
	if a.Learning != nil {
		to = appendInt(to, 5, int64(*a.Learning/time.Second))
	}
	return to
}

// sizeBlock returns the size of an Algorithm without its head.
func sizeBlock(a *capacity.Algorithm) int {
	size := sizeInt(int64(a.Kind)) + sizeInt(int64(a.LeaseLength/time.Second)) +
		sizeInt(int64(a.RefreshInterval/time.Second))
	for _, p := range a.Parameters {
		size += 1 + protowire.SizeBytes(sizeBytes(len(p.Name))+sizeBytes(len(p.Value)))
	}
	if a.Learning != nil {
		size += sizeInt(int64(*a.Learning / time.Second))
	}
	return size
}

// What follows are fields with a number below 16, whose tag takes one byte.

func appendHead(to []byte, number protowire.Number, size int) []byte {
	to = protowire.AppendTag(to, number, protowire.BytesType)
	return protowire.AppendVarint(to, uint64(size)) // a size
}

func appendString(to []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), text)
}

func appendInt(to []byte, number protowire.Number, value int64) []byte {
	to = protowire.AppendTag(to, number, protowire.VarintType)
	return protowire.AppendVarint(to, uint64(value)) // two's complement
}

func appendDouble(to []byte, number protowire.Number, value float64) []byte {
	to = protowire.AppendTag(to, number, protowire.Fixed64Type)
	return protowire.AppendFixed64(to, math.Float64bits(value))
}

func sizeBytes(length int) int { return 1 + protowire.SizeBytes(length) }

func sizeInt(value int64) int { return 1 + protowire.SizeVarint(uint64(value)) } // as above
