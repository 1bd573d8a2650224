package cas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A storedRecord is what is stored of one controller. Its stored form is, with all numbers behind the nonce
// as varints:
//
//	1 byte    1, the version of the form
//	8 bytes   the nonce of the change that wrote it
//	          the number of nonces before that, and 8 bytes for each, the newest first
//	          asOf, deleted, fence
//	          the number of undos, and 8 bytes for each
//	          the number of heads, and for each of them server, ticket, since, until
//	1 byte    1 if there is a state; it follows
//	4 bytes   CRC-32C of all that
type storedRecord struct {
	recentNonces [maxNonces]uint64 // the nonces of the last changes, the newest first
	nonceCount   int               // how many of them there are
	asOf         int64             // the time of the last decision, Unix ns; it rises with every change
	deletedAt    int64             // when it was deleted last: who came until then is answered so
	fence        uint64            // the greatest fencing token that was given
	doneUndos    []uint64          // the last undos of grants, the newest last
	heads        []lineHead
	encodedState []byte // of the state; nil when there is none
}

// nonces are those of the last changes, the newest first.
func (r *storedRecord) nonces() []uint64 { return r.recentNonces[:r.nonceCount] }

// maxDoneUndos is how many undos of grants a record remembers. One of which it is not known whether it was
// done is looked for among them about a second later.
const maxDoneUndos = 32

// maxNonces is how many changes a record remembers.
const maxNonces = 8

// A lineHead is the first in the line of one server.
type lineHead struct {
	server uint32
	ticket control.Ticket
	since  int64 // when it came, by the store's time
	until  int64 // when it is forgotten, unless its server looks at it again

	nonBlocking bool  // it only has to hear of changes, and does not hold up others
	waiting     int32 // how many wait there, with the head, at most maxTold; 0 when the server did not say
}

// waiter is the one whose head it is.
func (h *lineHead) waiter() waiter {
	return waiter{since: h.since, ticket: h.ticket, nonBlocking: h.nonBlocking}
}

// nonBlockingHead is set in the server of a head that does not hold up others. Servers that know of no such
// heads do not see it, and let it hold up others.
const nonBlockingHead = 1 << 32

// Above that bit is how many wait in the line. Servers that do not know of it do not see it either.
const (
	waitingAt = 33
	maxTold   = 1 << 20
)

// cameBefore reports whether a head has come before another, of another server.
func (h *lineHead) cameBefore(since int64, server uint32) bool {
	return h.since < since || h.since == since && h.server < server
}

// maxBackwards is how far the time of a record may lie ahead of the store's, because clocks differ a little
// or a clock was set back. Within it time stands still; beyond it the record's time is given up.
const maxBackwards = 10 * time.Second

// decisionTime is the time of a decision on this record. No two changes have the same, so that requests
// before a delete can be told from requests after it.
func (r *storedRecord) decisionTime(now int64) int64 {
	if now <= r.asOf && r.asOf-now <= int64(maxBackwards) {
		return r.asOf + 1
	}
	return now
}

// headIndex is the place of a server's head, -1 when it has none.
func (r *storedRecord) headIndex(server uint32) int {
	return slices.IndexFunc(r.heads, func(h lineHead) bool { return h.server == server })
}

const recordVersion = 1

// checksum is the CRC-32C.
func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// encodeRecord returns the stored form, which the record keeps: that of the state is a part of it from then
// on.
func (r *storedRecord) encodeRecord() []byte {
	const fixed, perHead = 64, 24 // bytes, more than there are in nearly all records
	data := make([]byte, 0, fixed+8*maxNonces+8*len(r.doneUndos)+perHead*len(r.heads)+len(r.encodedState))
	data = append(data, recordVersion)
	data = binary.BigEndian.AppendUint64(data, r.recentNonces[0])
	data = append(data, byte(r.nonceCount-1)) // at most maxNonces
	for _, n := range r.nonces()[1:] {
		data = binary.BigEndian.AppendUint64(data, n)
	}
	data = binary.AppendVarint(data, r.asOf)
	data = binary.AppendVarint(data, r.deletedAt)
	data = binary.AppendUvarint(data, r.fence)
	data = append(data, byte(len(r.doneUndos))) // at most maxUndone
	for _, n := range r.doneUndos {
		data = binary.BigEndian.AppendUint64(data, n)
	}
	data = binary.AppendUvarint(data, uint64(len(r.heads)))
	for _, h := range r.heads {
		server := uint64(h.server)
		if h.nonBlocking {
			server |= nonBlockingHead
		}
		server |= uint64(h.waiting) << waitingAt // from 0
		data = binary.AppendUvarint(data, server)
		data = binary.AppendUvarint(data, uint64(h.ticket))
		data = binary.AppendVarint(data, h.since)
		data = binary.AppendVarint(data, h.until)
	}
	if r.encodedState == nil {
		data = append(data, 0)
	} else {
		data = append(append(data, 1), r.encodedState...)
	}
	// The state's bytes are from now on those of the record, so that a kept record holds one copy and not
	// two.
	body := len(data)
	data = binary.BigEndian.AppendUint32(data, checksum(data))
	if r.encodedState != nil {
		r.encodedState = data[body-len(r.encodedState) : body : body]
	}
	return data
}

var (
	errTruncated = errors.New("the record ends too soon")
	errNoState   = errors.New("the record has something in the place of its state that is none")
)

// decodeRecord reads a stored form. The record keeps data.
func decodeRecord(data []byte) (r storedRecord, err error) {
	const least = 1 + 8 + 1 + 4
	if len(data) < least {
		return r, errTruncated
	}
	// The checksum comes first: nothing of a damaged record is read, not even its version.
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if got := checksum(body); got != sum {
		return r, fmt.Errorf("the record's checksum is %08x, want %08x: it is damaged, or not ours", got, sum)
	}
	if body[0] != recordVersion {
		return r, fmt.Errorf("the record is of version %d, want %d: another version of the server wrote it",
			body[0], recordVersion)
	}
	// The newest nonce stands at a fixed place, where the script of Redis compares it; the older ones
	// follow their number.
	older := int(body[9])
	in := varintReader{data: body[10:]}
	if older >= maxNonces {
		return r, errTruncated
	}
	r.recentNonces[0], r.nonceCount = binary.BigEndian.Uint64(body[NonceAt:]), 1+older
	for i := range older {
		r.recentNonces[1+i] = in.readNonce()
	}
	r.asOf, r.deletedAt, r.fence = in.readSigned(), in.readSigned(), in.readUnsigned()
	for range in.readByte() {
		r.doneUndos = append(r.doneUndos, in.readNonce())
	}
	for n := in.readUnsigned(); n > 0 && in.err == nil; n-- {
		server := in.readUnsigned()
		r.heads = append(r.heads, lineHead{
			server: uint32(server), nonBlocking: server&nonBlockingHead != 0, // written from one
			waiting: int32(min(server>>waitingAt, maxTold)),
			ticket:  control.Ticket(in.readUnsigned()), since: in.readSigned(), until: in.readSigned(),
		})
	}
	// Errors of the reader stick, so one look after all numbers is enough.
	if in.err != nil || len(in.data) < 1 {
		return r, errTruncated
	}
	switch {
	case in.data[0] == 1:
		r.encodedState = in.data[1:len(in.data):len(in.data)]
	case in.data[0] != 0 || len(in.data) > 1:
		return r, errNoState
	}
	return r, nil
}

// A varintReader reads varints.
type varintReader struct {
	data []byte
	err  error
}

func (r *varintReader) readSigned() int64 {
	v, n := binary.Varint(r.data)
	r.takeBytes(n)
	return v
}

func (r *varintReader) readUnsigned() uint64 {
	v, n := binary.Uvarint(r.data)
	r.takeBytes(n)
	return v
}

func (r *varintReader) readByte() byte { return r.takeBytes(1)[0] }

func (r *varintReader) readNonce() uint64 { return binary.BigEndian.Uint64(r.takeBytes(8)) }

// takeBytes takes the next n bytes; 8 zeros when there are not as many, or n says that there is no number.
func (r *varintReader) takeBytes(n int) []byte {
	if n <= 0 || n > len(r.data) {
		r.err, r.data = errTruncated, nil
		return make([]byte, 8)
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

// nextRecord is the record that a change makes of this one: its nonce stands in front of the former.
func (r *storedRecord) nextRecord(nonce uint64) storedRecord {
	next := *r
	next.recentNonces[0] = nonce
	copy(next.recentNonces[1:], r.nonces())
	next.nonceCount = min(r.nonceCount+1, maxNonces)
	next.heads = slices.Clone(r.heads)
	next.doneUndos = slices.Clone(r.doneUndos)
	return next
}

// A Content is what is in a record, for tools and tests.
type Content struct {
	State control.State // nil when there is none
	Heads int           // servers in whose lines somebody waits
	AsOf  int64         // the time of the last decision, Unix ns
}

// ReadRecord reads a stored record as it is at a time.
func ReadRecord(kind gatehouse.Kind, data []byte, now time.Time) (Content, error) {
	r, err := decodeRecord(data)
	if err != nil {
		return Content{}, err
	}
	r.dropEndedHeads(now.UnixNano())
	k := knownRecord{kind: kind, record: r}
	if err = k.decodeState(); control.Absent(k.state) {
		k.state = nil
	}
	return Content{State: k.state, Heads: len(r.heads), AsOf: r.asOf}, err
}

// PendingUndos returns how many commands still have to take something back for calls that failed.
func (s *Store) PendingUndos() int { return s.undos.countPending() }
