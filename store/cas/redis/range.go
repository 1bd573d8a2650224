package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/minheap"
	"github.com/redis/rueidis"
)

const (
	// rangeNames is the most names that Range keeps at once. A database with more of one kind is looked
	// through several times.
	rangeNames = 10_000
	// rangeValues is how many records are asked for at once.
	rangeValues = 200
	// scanCount is how many keys Redis looks at in one step, in which it serves no other client.
	scanCount = 500
	// rangeStep is how long one step may take.
	rangeStep = 5 * time.Second
)

// Range implements cas.Backend. Redis keeps no order, so that all of its keys are looked at.
func (b *Backend) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(name string, record []byte) bool,
) error {
	l, err := b.currentLink(ctx)
	if err != nil {
		return err
	}
	r := rangeScan{b, l, kind}
	for {
		names, err := r.smallestNames(ctx, after)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(names, rangeValues) {
			if more, err := r.visitRecords(ctx, part, visit); err != nil || !more {
				return err
			}
		}
		// The heap was not full: no more names come after these.
		if len(names) < rangeNames {
			return nil
		}
		// The keys are looked through again, for the names behind the last one.
		after = names[len(names)-1]
	}
}

// A rangeScan is one Range.
type rangeScan struct {
	*Backend
	link *link
	kind gatehouse.Kind
}

// A smallestHeap is the names found so far, the greatest on top.
type smallestHeap struct {
	names    minheap.Heap[foundName]
	contains map[string]bool
}

// A foundName is a name in a heap with the greatest on top.
type foundName string

// Before implements [minheap.Item].
func (n foundName) Before(other foundName) bool { return n > other }

// addName adds a name if it is among the smallest. "" is none.
func (t *smallestHeap) addName(name string) {
	if name == "" || t.contains[name] || len(t.names) == rangeNames && name >= string(t.names[0]) {
		return
	}
	t.contains[name] = true
	t.names.Push(foundName(name))
	if len(t.names) > rangeNames {
		// The greatest name falls out, so the smallest ones stay.
		delete(t.contains, string(t.names.Pop()))
	}
}

// smallestNames are the names after the given one, at most rangeNames. A replica has the names of its master,
// which does no harm.
func (r *rangeScan) smallestNames(ctx context.Context, after string) ([]string, error) {
	found := smallestHeap{contains: make(map[string]bool)}
	for host, node := range r.link.client.Nodes() {
		// A scan ends when the cursor is 0 again, which is also how it begins.
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			entry, err := r.scanStep(ctx, node, cursor)
			if err != nil {
				return nil, fmt.Errorf("%w (asking %s)", err, host)
			}
			for _, key := range entry.Elements {
				found.addName(r.nameAfter(after, key))
			}
			cursor = entry.Cursor
		}
	}
	return slices.Sorted(maps.Keys(found.contains)), nil
}

// nameAfter is the name whose key it is, "" if there is none or it does not come after the given one.
func (r *rangeScan) nameAfter(after, key string) string {
	if of, ok := r.names.parseKey(key); ok && of.Kind == r.kind && of.Name > after {
		return of.Name
	}
	return ""
}

func (r *rangeScan) scanStep(
	ctx context.Context, node rueidis.Client, cursor uint64,
) (rueidis.ScanEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, rangeStep)
	defer cancel()
	command := node.B().Scan().Cursor(cursor).Match(r.names.kindPattern(r.kind)).Count(scanCount).Build()
	entry, err := node.Do(ctx, command).AsScanEntry()
	if err != nil {
		return entry, r.address.classifyError(err)
	}
	return entry, nil
}

// visitRecords shows the records of some names. It reports whether more are wanted.
func (r *rangeScan) visitRecords(
	ctx context.Context, names []string, show func(name string, record []byte) bool,
) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rangeStep)
	defer cancel()
	commands := make(rueidis.Commands, len(names))
	for i, name := range names {
		key := r.names.recordKey(gatehouse.Key{Kind: r.kind, Name: name})
		commands[i] = r.link.client.B().Get().Key(key).Build()
	}
	// The records are read after the names, so some may be gone by now.
	for i, answer := range r.link.client.DoMulti(ctx, commands...) {
		record, err := answer.AsBytes()
		switch {
		case rueidis.IsRedisNil(err): // it has gone meanwhile
		case err != nil && isWrongType(err.Error()): // no record, as its error says when it is used
		case err != nil:
			return false, r.address.classifyError(err)
		case !show(names[i], plainRecord(record)):
			return false, nil
		}
	}
	return true, nil
}
