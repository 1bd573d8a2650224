package cas

import (
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An entry is what is known of one name.
type entry struct {
	key gatehouse.Key

	calls callQueue

	// The rest is touched only by the call that leads.
	known      knownRecord
	unstored   unstoredRefusals
	contention contention

	stale atomic.Bool // the record has changed since
}

// A contention is how this server fares against others that change the same record.
type contention struct {
	conflicts int           // since its last grant
	roundTrip time.Duration // how long the last answer took
	repliedAt int64         // when that was, by the clock
}

func newEntry(key gatehouse.Key) *entry {
	return &entry{key: key, known: knownRecord{kind: key.Kind}}
}
