package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	if l == nil || l.single.Load() {
		go func() { answered(b.SwapTogether(ctx, keys, changes)) }()
		return
	}
	r := b.jointCall(keys, changes)
	if r.together == nil {
		r.together = new(togetherCall)
		r.together.callback = r.answerTogether
	}
	c := r.together
	c.link, c.ctx, c.keys, c.changes, c.answered = l, ctx, keys, changes, answered
	r.callback = c.callback
	if !l.laneFor(r.key).addCall(ctx, r) {
		answered(nil, errQueueFull)
	}
}

// A togetherCall is what a request of several changes has besides, if its caller does not wait.
type togetherCall struct {
	link     *link
	ctx      context.Context
	keys     []gatehouse.Key
	changes  []cas.RecordChange
	answered func([]cas.Reply, error)
	replies  []cas.Reply            // room for what it is called with
	callback func(cas.Reply, error) // answerTogether, bound once
}

// answerTogether is the callback of a request of several changes.
func (r *scriptCall) answerTogether(_ cas.Reply, err error) {
	c := r.together
	if err != nil {
		c.answered(nil, err) // the request may still be under way, so that it is not used again
		return
	}
	replies := slices.Grow(c.replies[:0], len(c.changes))[:len(c.changes)]
	err = c.link.takeOutcomes(r, c.changes, replies)
	switch {
	case isUnsettled(err):
		go c.answerSlowly() // for which the request stays as it is
		return
	case err != nil:
		c.answered(nil, err)
	default:
		c.answered(replies, nil)
	}
	clear(replies)
	backend := c.link.backend
	*c = togetherCall{replies: replies, callback: c.callback}
	backend.recycle(r)
}

// answerSlowly makes the changes by a goroutine that waits.
func (c *togetherCall) answerSlowly() {
	c.answered(c.link.backend.SwapTogether(c.ctx, c.keys, c.changes))
}

// trySwap swaps records, unless one is to be settled first.
func (l *link) trySwap(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	r := l.backend.jointCall(keys, changes)
	if s := l.newSpread(append([]string{r.key}, r.more...), changes); s != nil {
		return s.swap(ctx)
	}
	if err := l.laneFor(r.key).doCall(ctx, r); err != nil {
		return nil, err
	}
	replies := make([]cas.Reply, len(changes))
	if err := l.takeOutcomes(r, changes, replies); err != nil {
		return nil, err
	}
	l.backend.recycle(r)
	return replies, nil
}

// jointCall makes the request of several changes.
func (b *Backend) jointCall(keys []gatehouse.Key, changes []cas.RecordChange) *scriptCall {
	r := b.calls.Get().(*scriptCall)
	r.script, r.size = b.together, 0
	r.arguments = append(r.arguments[:0], strconv.Itoa(len(keys)))
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

// takeOutcomes puts what came of a request for several records into replies.
func (l *link) takeOutcomes(r *scriptCall, changes []cas.RecordChange, replies []cas.Reply) error {
	err := r.err
	if err == nil {
		err = r.answer.Error()
	}
	if err != nil {
		return l.callError(err)
	}
	// One answer for all says that all are as they were, or were replaced.
	if r.made || r.answer.IsInt64() {
		for i := range changes {
			replies[i] = madeReply(r.now, &changes[i])
		}
		return nil
	}
	answers, err := r.answer.ToArray()
	if err == nil && len(answers) != len(changes) {
		err = errAnswer
	}
	if err != nil {
		return err
	}
	// They are replaced all or not at all.
	for i := range changes {
		replies[i], err = readReply(&answers[i], r.now, &changes[i])
		if err != nil {
			return keyed(append([]string{r.key}, r.more...)[i], err)
		}
		// What was not replaced, because of others, is still the one that was read.
		if replies[i].Swapped {
			replies[i].Version = changes[i].If
		}
	}
	return nil
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
