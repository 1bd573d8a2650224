// Package boltfile reads a file of bbolt without bbolt, which trusts what it reads: on a damaged file it
// panics, recurses forever, reads past the end of its mapping, or gives what was never written. Here
// every length and every place is checked before it is used, and every page is visited at most once.
//
// A file without a fault is one that bbolt can be given. It must have been written without a list of free
// pages (bbolt's NoFreelistSync).
package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// A Visitor receives what a file holds.
type Visitor struct {
	// Transaction is called first, with the number of the last transaction. It may be nil.
	Transaction func(id uint64)

	// Record is called with every key and value, in the order of the buckets and of the keys in each.
	// Both are valid until it returns. An error ends the reading.
	Record func(bucket, key, value []byte) error

	// Fault is called with what is wrong with the file; the part in question is left out. An error ends
	// the reading. When nil, the first fault ends it.
	Fault func(fault error) error
}

// Walk visits all records of a file of this size.
func Walk(file io.ReaderAt, size int64, visitor Visitor) error {
	if visitor.Fault == nil {
		visitor.Fault = func(fault error) error { return fault }
	}
	w := walker{file: file, size: size, visitor: visitor, seen: make(map[uint64]struct{})}
	// Without a head no page can be found, so there is nothing else to report.
	if err := w.readMeta(); err != nil {
		return err
	}
	if w.pageSize == 0 {
		return nil // Fault knows
	}
	if visitor.Transaction != nil {
		visitor.Transaction(w.txid)
	}
	return w.visitTree(w.root, keyRange{}, 0, w.visitBucket)
}

// The numbers of bbolt's format, which is that of version 2 since 2013.
const (
	magic   = 0xED0CDAED
	version = 2

	headerSize  = 16 // of a page: id, flags, count, overflow
	elementSize = 16 // of what a page lists
	metaSize    = 64 // of a head, its checksum included
	bucketSize  = 16 // of a bucket in its parent: the first page, a sequence number

	branchPage = 0x01
	leafPage   = 0x02

	bucketElement = 0x01

	noFreelist = 1<<64 - 1 // the free pages are those that are not used

	minPage = 1 << 10
	maxPage = 1 << 16

	// maxDepth is more levels than a tree of bbolt can have in a file that fits on a disk.
	maxDepth = 64
)

// A walker reads one file.
type walker struct {
	file     io.ReaderAt
	size     int64
	visitor  Visitor
	fileMeta // the head that counts
	seen     map[uint64]struct{}
}

// A fileMeta is one of the two heads of a file, the newer of which counts.
type fileMeta struct {
	pageSize int64
	root     uint64 // the page of the bucket of all buckets
	end      uint64 // the first page that is not used
	txid     uint64
	freelist uint64
}

var (
	errCut       = errors.New("cut off")
	errNoHead    = errors.New("is none of bbolt, or both its heads are damaged")
	errHeads     = errors.New("one of its two heads is damaged: the last change may be missing")
	errFreePages = errors.New("has a list of free pages: another program wrote it")
	errOldHead   = errors.New("its two heads do not follow one another: the last change may be missing")
)

// readMeta chooses the newer of the two heads. Each transaction overwrites the older one, within one
// sector of the disk: a crash does not damage a head. A damaged one may have been the newer, and then
// what was written last is not to be seen by the other.
func (w *walker) readMeta() error {
	// The second head is one page behind the first, and only a head tells the size of a page. If the first
	// is damaged, every size is tried.
	heads := make([]fileMeta, 0, 2)
	first, err := w.readMetaAt(0)
	if err == nil {
		heads = append(heads, first)
		second, err := w.readMetaAt(first.pageSize)
		if err == nil && second.pageSize == first.pageSize {
			heads = append(heads, second)
		}
	}
	for size := int64(minPage); len(heads) == 0 && size <= maxPage; size *= 2 {
		if second, err := w.readMetaAt(size); err == nil && second.pageSize == size {
			heads = append(heads, second)
		}
	}
	if len(heads) == 0 {
		return w.visitor.Fault(errNoHead)
	}
	// The transaction numbers decide, not the order of the pages: the heads take turns.
	newest := heads[len(heads)-1]
	if heads[0].txid > newest.txid {
		newest = heads[0]
	}
	w.fileMeta = newest
	switch {
	case len(heads) == 1:
		return w.visitor.Fault(errHeads)
	case heads[0].txid+heads[1].txid != 2*newest.txid-1: // the other one is not its predecessor
		return w.visitor.Fault(errOldHead)
	case newest.freelist != noFreelist:
		return w.visitor.Fault(errFreePages)
	}
	return nil
}

// readMetaAt reads the head in the page at offset.
func (w *walker) readMetaAt(offset int64) (m fileMeta, err error) {
	var page [headerSize + metaSize]byte
	if _, err := w.file.ReadAt(page[:], offset); err != nil {
		return m, err
	}
	head := page[headerSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(head[:metaSize-8])
	// bbolt writes its numbers as they are in memory, so that a file belongs to one byte order.
	order := binary.NativeEndian
	m = fileMeta{
		pageSize: int64(order.Uint32(head[8:])),
		root:     order.Uint64(head[16:]),
		freelist: order.Uint64(head[32:]),
		end:      order.Uint64(head[40:]),
		txid:     order.Uint64(head[48:]),
	}
	// A checksum comes before the fields it covers are believed, and after the magic that says that there is
	// one.
	switch {
	case order.Uint32(head) != magic || order.Uint32(head[4:]) != version:
		return m, errNoHead
	case order.Uint64(head[56:]) != sum.Sum64():
		return m, errHeads
	case m.pageSize < minPage || m.pageSize > maxPage || m.pageSize&(m.pageSize-1) != 0:
		return m, errNoHead
	}
	return m, nil
}

// A keyRange is which keys may be below a page: from low up to but not including high. nil is no bound.
type keyRange struct{ low, high []byte }

func (s keyRange) has(key []byte) bool {
	return bytes.Compare(key, s.low) >= 0 && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// A pageElement is one entry of a page.
type pageElement struct {
	bucket     bool
	key, value []byte
	page       uint64 // of a branch
}

// visitTree visits the entries of all leaves below a page.
func (w *walker) visitTree(id uint64, within keyRange, depth int, visit func(pageElement) error) error {
	data, err := w.readPage(id)
	if err != nil {
		return w.visitor.Fault(err)
	}
	elements, branch, err := parsePage(data)
	if err == nil {
		err = checkOrder(elements, within)
	}
	switch {
	case err != nil:
		return w.visitor.Fault(fmt.Errorf("page %d: %w", id, err))
	// No page is visited twice, so that the depth is finite anyway. This bounds the stack.
	case depth > maxDepth:
		return w.visitor.Fault(fmt.Errorf("page %d: is on level %d, want at most %d", id, depth, maxDepth))
	}
	// Keys below a branch entry lie between its key and the next one's. Checking that finds pages that were
	// swapped, each of which is good by itself.
	for i, e := range elements {
		if !branch {
			err = visit(e)
		} else {
			below := keyRange{low: e.key, high: within.high}
			if i+1 < len(elements) {
				below.high = elements[i+1].key
			}
			err = w.visitTree(e.page, below, depth+1, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPage reads a page and those that continue it.
func (w *walker) readPage(id uint64) ([]byte, error) {
	pages := uint64(w.size / w.pageSize) // a file's size is not negative
	// Pages 0 and 1 are the heads. w.end comes from the file, so the true size bounds the page too.
	if id < 2 || id >= w.end || id >= pages {
		return nil, fmt.Errorf("page %d: want one from 2 to %d of %d", id, w.end, pages)
	}
	var header [headerSize]byte
	offset := int64(id) * w.pageSize // it is within the file
	if _, err := w.file.ReadAt(header[:], offset); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if id+more >= w.end || id+more >= pages {
		return nil, fmt.Errorf("page %d: %w: has %d more pages of %d", id, errCut, more, pages)
	}
	// A page that is reached twice may be part of a circle. Visiting each once also bounds the work.
	for i := id; i <= id+more; i++ {
		if _, ok := w.seen[i]; ok {
			return nil, fmt.Errorf("page %d: is used twice", i)
		}
		w.seen[i] = struct{}{}
	}
	data := make([]byte, int64(1+more)*w.pageSize) // it is within the file
	if _, err := w.file.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	if got := binary.NativeEndian.Uint64(data); got != id {
		return nil, fmt.Errorf("page %d: says that it is page %d", id, got)
	}
	return data, nil
}

// parsePage reads what a page lists.
func parsePage(data []byte) (elements []pageElement, branch bool, err error) {
	if len(data) < headerSize {
		return nil, false, errCut
	}
	order := binary.NativeEndian
	flags, count := order.Uint16(data[8:]), int(order.Uint16(data[10:]))
	branch = flags == branchPage
	switch {
	case flags != branchPage && flags != leafPage:
		return nil, false, fmt.Errorf("is of kind %#x, want a branch or a leaf", flags)
	case headerSize+count*elementSize > len(data):
		return nil, false, errCut
	case branch && count == 0:
		return nil, false, errors.New("is a branch without leaves")
	}
	// Places count from the entry itself, not from the page. The sums are made of uint64, in which numbers of
	// 32 bits cannot overflow.
	elements = make([]pageElement, count)
	for i := range elements {
		at := headerSize + i*elementSize
		e := data[at:]
		var place, keySize, valueSize uint64
		if branch {
			place, keySize = uint64(order.Uint32(e)), uint64(order.Uint32(e[4:]))
			elements[i].page = order.Uint64(e[8:])
		} else {
			place, keySize = uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:]))
			valueSize = uint64(order.Uint32(e[12:]))
			elements[i].bucket = order.Uint32(e) == bucketElement
		}
		if flags := order.Uint32(e); !branch && flags > bucketElement {
			return nil, false, fmt.Errorf("entry %d: flags %#x, want 0 or 1", i, flags)
		}
		if uint64(at)+place < uint64(headerSize+count*elementSize) || // not negative
			uint64(at)+place+keySize+valueSize > uint64(len(data)) { // not negative
			return nil, false, fmt.Errorf("entry %d: %w", i, errCut)
		}
		elements[i].key = e[place : place+keySize]
		elements[i].value = e[place+keySize : place+keySize+valueSize]
	}
	return elements, branch, nil
}

func checkOrder(elements []pageElement, within keyRange) error {
	for i, e := range elements {
		if !within.has(e.key) || i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 {
			return fmt.Errorf("key %q is out of order", e.key)
		}
	}
	return nil
}

// visitBucket visits the records of one bucket.
func (w *walker) visitBucket(e pageElement) error {
	if !e.bucket || len(e.value) < bucketSize {
		return w.visitor.Fault(fmt.Errorf("%q is no bucket", e.key))
	}
	visit := func(r pageElement) error {
		if r.bucket {
			return w.visitor.Fault(fmt.Errorf("%q in bucket %q is a bucket, want a record", r.key, e.key))
		}
		return w.visitor.Record(e.key, r.key, r.value)
	}
	// Page 0 is a head and so never a root: the number 0 marks a bucket that lies in its parent.
	if root := binary.NativeEndian.Uint64(e.value); root != 0 {
		return w.visitTree(root, keyRange{}, 0, visit)
	}
	// A small bucket is a page of its own in the value.
	elements, branch, err := parsePage(e.value[bucketSize:])
	if err == nil && branch {
		err = errors.New("is a branch, want a leaf")
	}
	if err == nil {
		err = checkOrder(elements, keyRange{})
	}
	if err != nil {
		return w.visitor.Fault(fmt.Errorf("bucket %q: %w", e.key, err))
	}
	for _, r := range elements {
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}
