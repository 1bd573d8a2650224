package cas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A record is what is stored of one controller. Its stored form is, with all numbers behind the nonce as
// varints:
//
//	1 byte    1, the version of the form
//	8 bytes   the nonce of the change that wrote it
//	          the number of nonces before that, and 8 bytes for each, the newest first
//	          asOf, deleted, fence
//	          the number of undos, and 8 bytes for each
//	          the number of heads, and for each of them server, ticket, since, until
//	1 byte    1 if there is a state; it follows
//	4 bytes   CRC-32C of all that
type record struct {
	recent  [maxNonces]uint64 // the nonces of the last changes, the newest first
	changes int               // how many of them there are
	asOf    int64             // the time of the last decision, Unix ns; it rises with every change
	deleted int64             // when it was deleted last: who came until then is to hear of it
	fence   uint64            // the greatest fencing token that was given
	undone  []uint64          // the last undos of grants, the newest last
	heads   []head
	form    []byte // of the state; nil when there is none
}

// nonces are those of the last changes, the newest first.
func (r *record) nonces() []uint64 { return r.recent[:r.changes] }

// maxUndone is how many undos of grants a record remembers. One of which it is not known whether it was done
// is looked for among them about a second later.
const maxUndone = 32

// maxNonces is how many changes a record remembers.
const maxNonces = 8

// A head is the first in the line of one server.
type head struct {
	server uint32
	ticket gatehouse.Ticket
	since  int64 // when it came, by the store's time
	until  int64 // when it is forgotten, unless its server looks at it again
}

// before reports whether a head has come before another, of another server.
func (h *head) before(since int64, server uint32) bool {
	return h.since < since || h.since == since && h.server < server
}

// maxBackwards is how far the time of a record may lie ahead of the store's, because clocks differ a little
// or a clock was set back. Within it time stands still; beyond it the record's time is given up.
const maxBackwards = 10 * time.Second

// at is the time of a decision on this record. No two changes have the same, so that who came before a
// delete can be told from who came after it.
func (r *record) at(now int64) int64 {
	if now <= r.asOf && r.asOf-now <= int64(maxBackwards) {
		return r.asOf + 1
	}
	return now
}

// head is the place of a server's head, -1 when it has none.
func (r *record) head(server uint32) int {
	return slices.IndexFunc(r.heads, func(h head) bool { return h.server == server })
}

const recordVersion = 1

// checksum is the CRC-32C.
func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// encode returns the stored form, which the record keeps: that of the state is a part of it from then on.
func (r *record) encode() []byte {
	const fixed, perHead = 64, 24 // bytes, more than there are in nearly all records
	data := make([]byte, 0, fixed+8*maxNonces+8*len(r.undone)+perHead*len(r.heads)+len(r.form))
	data = append(data, recordVersion)
	data = binary.BigEndian.AppendUint64(data, r.recent[0])
	data = append(data, byte(r.changes-1)) // #nosec G115 -- at most maxNonces
	for _, n := range r.nonces()[1:] {
		data = binary.BigEndian.AppendUint64(data, n)
	}
	data = binary.AppendVarint(data, r.asOf)
	data = binary.AppendVarint(data, r.deleted)
	data = binary.AppendUvarint(data, r.fence)
	data = append(data, byte(len(r.undone))) // #nosec G115 -- at most maxUndone
	for _, n := range r.undone {
		data = binary.BigEndian.AppendUint64(data, n)
	}
	data = binary.AppendUvarint(data, uint64(len(r.heads)))
	for _, h := range r.heads {
		data = binary.AppendUvarint(data, uint64(h.server))
		data = binary.AppendUvarint(data, uint64(h.ticket))
		data = binary.AppendVarint(data, h.since)
		data = binary.AppendVarint(data, h.until)
	}
	if r.form == nil {
		data = append(data, 0)
	} else {
		data = append(append(data, 1), r.form...)
	}
	body := len(data)
	data = binary.BigEndian.AppendUint32(data, checksum(data))
	if r.form != nil {
		r.form = data[body-len(r.form) : body : body]
	}
	return data
}

var (
	errCut  = errors.New("the record ends too soon")
	errForm = errors.New("the record has something in the place of its state that is none")
)

// decodeRecord reads a stored form. The record keeps data.
func decodeRecord(data []byte) (r record, err error) {
	const least = 1 + 8 + 1 + 4
	if len(data) < least {
		return r, errCut
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if got := checksum(body); got != sum {
		return r, fmt.Errorf("the record's checksum is %08x, want %08x: it is damaged, or not ours", got, sum)
	}
	if body[0] != recordVersion {
		return r, fmt.Errorf("the record is of version %d, want %d: another version of the server wrote it",
			body[0], recordVersion)
	}
	older := int(body[9])
	in := reader{data: body[10:]}
	if older >= maxNonces || len(in.data) < 8*older {
		return r, errCut
	}
	r.recent[0], r.changes = binary.BigEndian.Uint64(body[NonceAt:]), 1+older
	for i := range older {
		r.recent[1+i] = binary.BigEndian.Uint64(in.data)
		in.data = in.data[8:]
	}
	r.asOf, r.deleted, r.fence = in.signed(), in.signed(), in.unsigned()
	for range in.byte() {
		r.undone = append(r.undone, in.nonce())
	}
	for n := in.unsigned(); n > 0 && in.err == nil; n-- {
		r.heads = append(r.heads, head{
			server: uint32(in.unsigned()), // #nosec G115 -- written from one
			ticket: gatehouse.Ticket(in.unsigned()), since: in.signed(), until: in.signed(),
		})
	}
	if in.err != nil || len(in.data) < 1 {
		return r, errCut
	}
	switch {
	case in.data[0] == 1:
		r.form = in.data[1:len(in.data):len(in.data)]
	case in.data[0] != 0 || len(in.data) > 1:
		return r, errForm
	}
	return r, nil
}

// A reader reads varints.
type reader struct {
	data []byte
	err  error
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.data)
	r.skip(n)
	return v
}

func (r *reader) unsigned() uint64 {
	v, n := binary.Uvarint(r.data)
	r.skip(n)
	return v
}

func (r *reader) byte() (b byte) {
	if len(r.data) > 0 {
		b = r.data[0]
	}
	r.skip(min(len(r.data), 1))
	return b
}

func (r *reader) nonce() (n uint64) {
	if len(r.data) >= 8 {
		n = binary.BigEndian.Uint64(r.data)
	}
	r.skip(8 * min(len(r.data)/8, 1))
	return n
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.err, r.data = errCut, nil
		return
	}
	r.data = r.data[n:]
}

// next is the record that a change makes of this one: its nonce stands in front of the former.
func (r *record) next(nonce uint64) record {
	next := *r
	next.recent[0] = nonce
	copy(next.recent[1:], r.nonces())
	next.changes = min(r.changes+1, maxNonces)
	next.heads = slices.Clone(r.heads)
	next.undone = slices.Clone(r.undone)
	return next
}

// made tells whether a change is one of those that made this record. It is not known when so much has
// happened since that it may have been forgotten.
func (r *record) made(a *attempt) (made, known bool) {
	switch nonces := r.nonces(); {
	case slices.Contains(nonces, a.nonce):
		return true, true
	case len(nonces) < maxNonces: // they are all since the record began
		return false, true
	default:
		return false, slices.Contains(nonces, a.base)
	}
}
