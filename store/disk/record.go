package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	bolt "go.etcd.io/bbolt"
)

// A file has a bucket for each kind, named as the kind, in which a name has a record; the holds of
// semaphores have records of their own in holdsBucket, and headBucket has one record about the file.
const (
	headBucket  = "gatehouse"
	headKey     = "head"
	holdsBucket = "semaphore holds"

	// ballastBucket is what makes room for later: see room.go.
	ballastBucket = "ballast"
)

// allBuckets are all buckets of a file.
func allBuckets() []string {
	names := []string{headBucket, holdsBucket, ballastBucket}
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		names = append(names, kind.String())
	}
	return names
}

// holdKey is the key of the hold of a holder. A name has no zero byte.
func holdKey(name, holder string) []byte {
	return append(append([]byte(name), 0), holder...)
}

// A record ends with the sum of where it is and what it says, so that a record in a wrong place is
// damaged too.
const sumSize = 4

func crcTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// sealRecord appends the checksum of the record of key in a bucket.
func sealRecord(bucket string, key, record []byte) []byte {
	return binary.LittleEndian.AppendUint32(record, checksum(bucket, key, record))
}

func checksum(bucket string, key, record []byte) uint32 {
	t := crcTable()
	sum := crc32.Update(0, t, []byte(bucket))
	// The zero byte and the length separate the parts, so that a byte cannot move from one to the next.
	sum = crc32.Update(sum, t, []byte{0})
	sum = crc32.Update(sum, t, binary.AppendUvarint(nil, uint64(len(key))))
	sum = crc32.Update(sum, t, key)
	return crc32.Update(sum, t, record)
}

var errDamaged = errors.New("is damaged: its checksum is wrong")

// openRecord checks a sealed record and returns what it says.
func openRecord(bucket string, key, sealed []byte) ([]byte, error) {
	n := len(sealed) - sumSize
	if n < 0 || checksum(bucket, key, sealed[:n]) != binary.LittleEndian.Uint32(sealed[n:]) {
		return nil, errDamaged
	}
	return sealed[:n], nil
}

// A fileHead is what a file says about itself.
type fileHead struct {
	tx    uint64 // the number of the transaction that wrote it: no other page is from an older one
	last  int64  // the last instant of the store's clock that was written down, Unix ns
	count uint64 // of the records of all kinds, holds included
	sum   uint64 // of their prints, so that none can be missing or old
}

const headVersion = 1

func (h *fileHead) encode() []byte {
	data := []byte{headVersion}
	data = binary.LittleEndian.AppendUint64(data, h.tx)
	data = binary.LittleEndian.AppendUint64(data, uint64(h.last)) // as bits
	data = binary.LittleEndian.AppendUint64(data, h.count)
	data = binary.LittleEndian.AppendUint64(data, h.sum)
	return sealRecord(headBucket, []byte(headKey), data)
}

func decodeHead(sealed []byte) (h fileHead, err error) {
	data, err := openRecord(headBucket, []byte(headKey), sealed)
	switch {
	case err != nil:
		return h, err
	// One byte for the version and four numbers of eight.
	case len(data) != 33 || data[0] != headVersion:
		return h, fmt.Errorf("is of another version, of %d bytes, than this program's", len(data))
	}
	h.tx = binary.LittleEndian.Uint64(data[1:])
	h.last = int64(binary.LittleEndian.Uint64(data[9:])) // as bits
	h.count = binary.LittleEndian.Uint64(data[17:])
	h.sum = binary.LittleEndian.Uint64(data[25:])
	return h, nil
}

// writeHead writes the head, as the last change of a transaction.
func (h *fileHead) writeHead(tx *bolt.Tx) error {
	// The number is stored twice, here and in bbolt's own head, so that a page from an older transaction is
	// noticed.
	h.tx = uint64(tx.ID()) // it counts up from 1
	return tx.Bucket([]byte(headBucket)).Put([]byte(headKey), h.encode())
}

// fingerprint is a number of a sealed record at its place. The sum of all tells whether the right ones are
// there.
func fingerprint(bucket string, key, sealed []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(bucket))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(key)
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(sealed)
	return h.Sum64()
}

// trackedSemaphore is the state when its holds have records of their own.
func trackedSemaphore(key gatehouse.Key, state control.State) *control.Semaphore {
	if key.Kind != gatehouse.Semaphore || state == nil {
		return nil
	}
	return state.(*control.Semaphore)
}
