package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	for {
		replies, err := l.trySwap(ctx, keys, changes)
		var unsettled *unsettledKey
		if !errors.As(err, &unsettled) {
			return replies, err
		}
		// A record is in the middle of another change, whose server may
		// have died: the next that meets it ends that.
		if err := l.settleFor(ctx, unsettled.key, unsettled.unsettledError); err != nil {
			return nil, fmt.Errorf("redis: %w: %w", cas.ErrNotSent, err)
		}
	}
}

// StartTogether is SwapTogether without a goroutine of the caller's: answered is called once.
func (b *Backend) StartTogether(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange, answered func([]cas.Reply, error),
) {
	l := b.link.Load()
	// Without a connection it has to wait for one, and in a cluster it may take several steps.
	slowly := func() { answered(b.SwapTogether(ctx, keys, changes)) }
	if l == nil || l.single.Load() {
		go slowly()
		return
	}
	r := b.jointCall(keys, changes)
	r.callback = func(_ cas.Reply, err error) {
		var replies []cas.Reply
		if err == nil {
			replies, err = l.takeOutcomes(r, changes)
		}
		if isUnsettled(err) {
			go slowly() // which settles it first
			return
		}
		answered(replies, err)
	}
	if !l.laneFor(r.key).addCall(ctx, r) {
		answered(nil, errQueueFull)
	}
}

// trySwap swaps records, unless one is to be settled first.
func (l *link) trySwap(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	r := l.backend.jointCall(keys, changes)
	if s := l.newSpread(append([]string{r.key}, r.more...), changes); s != nil {
		return s.swap(ctx)
	}
	r.answered = make(chan struct{}, 1)
	if err := l.laneFor(r.key).doCall(ctx, r); err != nil {
		return nil, err
	}
	return l.takeOutcomes(r, changes)
}

// jointCall makes the request of several changes.
func (b *Backend) jointCall(keys []gatehouse.Key, changes []cas.RecordChange) *scriptCall {
	r := &scriptCall{script: b.together, several: true}
	r.more = make([]string, 0, len(keys)-1)
	r.arguments = append(make([]string, 0, 1+recordArguments*len(keys)), strconv.Itoa(len(keys)))
	// Changes that only replace records need fewer arguments.
	plain := true
	for i := range changes {
		plain = plain && replacesPlainly(&changes[i]) && changes[i].Kept
	}
	if !plain {
		r.arguments[0] = moreMark + r.arguments[0]
	}
	for i := range keys {
		c, key := &changes[i], b.names.recordKey(keys[i])
		if i == 0 {
			r.key = key
		} else {
			r.more = append(r.more, key)
		}
		if plain {
			r.arguments = append(r.arguments, rueidis.BinaryString(c.Next))
		} else {
			r.arguments = b.appendChange(r.arguments, c)
		}
		r.size += c.Size + len(c.Next)
	}
	return r
}

// takeOutcomes is what came of a request for several records.
func (l *link) takeOutcomes(r *scriptCall, changes []cas.RecordChange) ([]cas.Reply, error) {
	err := r.err
	if err == nil {
		err = r.answer.Error()
	}
	if err != nil {
		return nil, l.callError(err)
	}
	replies := make([]cas.Reply, len(changes))
	// One answer for all says that all are as they were, or were replaced.
	if r.made || r.answer.IsInt64() {
		for i := range changes {
			replies[i] = madeReply(r.now, &changes[i])
		}
		return replies, nil
	}
	answers, err := r.answer.ToArray()
	if err == nil && len(answers) != len(changes) {
		err = errAnswer
	}
	if err != nil {
		return nil, err
	}
	// They are replaced all or not at all.
	for i := range changes {
		replies[i], err = readReply(&answers[i], r.now, &changes[i])
		if err != nil {
			return nil, keyed(append([]string{r.key}, r.more...)[i], err)
		}
		// What was not replaced, because of others, is still the one that was read.
		if replies[i].Swapped {
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
