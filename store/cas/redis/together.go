package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// SwapTogether implements cas.Backend, by one script.
func (b *Backend) SwapTogether(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	l, err := b.currentLink(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = string(b.names.appendKey(nil, keys[i]))
	}
	for {
		replies, err := l.trySwap(ctx, names, changes)
		var unsettled *unsettledKey
		if !errors.As(err, &unsettled) {
			return replies, err
		}
		if err := l.settleFor(ctx, unsettled.key, unsettled.unsettledError); err != nil {
			return nil, fmt.Errorf("redis: %w: %w", cas.ErrNotSent, err)
		}
	}
}

// trySwap swaps records, unless one is to be settled first.
func (l *link) trySwap(
	ctx context.Context, keys []string, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	if s := l.newSpread(keys, changes); s != nil {
		return s.swap(ctx)
	}
	return l.runTogether(ctx, l.backend.jointCall(keys, changes), changes)
}

// jointCall makes the request of several changes.
func (b *Backend) jointCall(keys []string, changes []cas.RecordChange) *scriptCall {
	r := &scriptCall{
		script: b.together, answered: make(chan struct{}, 1),
		key: keys[0], more: append([]string{}, keys[1:]...),
	}
	r.arguments = append(make([]string, 0, 1+5*len(keys)), strconv.Itoa(len(keys)))
	for i := range keys {
		r.arguments = b.appendChange(r.arguments, &changes[i])
		r.size += changes[i].Size + len(changes[i].Next)
	}
	return r
}

// appendChange appends the arguments of the script for a change.
func (b *Backend) appendChange(arguments []string, change *cas.RecordChange) []string {
	nonce, keep := "", ""
	if change.If != 0 {
		nonce = string(binary.BigEndian.AppendUint64(nil, change.If))
	}
	if change.Read {
		return append(arguments, nonce, "", readMark, claimArgument(change), "0")
	}
	if change.Keep != gatehouse.Forever {
		keep = strconv.FormatInt(keptMillis(change.Keep), 10)
	}
	arguments = append(arguments,
		nonce, rueidis.BinaryString(change.Next), keep, claimArgument(change), strconv.Itoa(len(change.Wake)))
	for _, server := range change.Wake {
		arguments = append(arguments, b.names.wakeChannel(server))
	}
	return arguments
}

// keptMillis is for how long Redis keeps a record: rounded up, and at least 1, as it takes no expiry of 0.
func keptMillis(keep time.Duration) int64 {
	return int64(max(1, (keep+time.Millisecond-1)/time.Millisecond))
}

// runTogether has a request for several records carried out, and reads the replies.
func (l *link) runTogether(
	ctx context.Context, r *scriptCall, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	if err := l.laneFor(r.key).doCall(ctx, r); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, l.callError(r.err)
	}
	replies, all := make([]cas.Reply, len(changes)), true
	for i := range changes {
		err := r.answers[i].Error()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, l.callError(err)
		}
		replies[i], err = readReply(&r.answers[i], r.now, &changes[i])
		if err != nil {
			return nil, keyed(append([]string{r.key}, r.more...)[i], err)
		}
		all = all && replies[i].Swapped
	}
	// What was not replaced, because of others, is still the one that was read.
	for i := range replies {
		if replies[i].Swapped && !all {
			replies[i].Version = changes[i].If
		}
	}
	return replies, nil
}

// callError says of the error of a call whether it can have changed anything.
func (l *link) callError(err error) error {
	switch {
	case nothingChanged(err): // it was not sent
		return err
	// The link leads to a replica since a failover. A new one finds the master.
	case firstWord(err.Error()) == "READONLY":
		l.backend.dropLink(l)
	}
	return l.backend.address.classifyError(err)
}
