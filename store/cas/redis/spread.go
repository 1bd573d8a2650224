package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// This file is changes of records in several slots of a cluster, which no script can see together. They are
// made in steps, each of which is one script for one slot:
//
//	prepare, slot by slot ──► commit, in the first ──► settle, in the others ──► clear, in the first
//	    │ a record is another one     │ too late
//	    └──────────► abort ◄──────────┘
//
// A record that is prepared has the old one and the new one in it, and names the first. It is not used until
// it is settled, by its own server or by another that needs it and asks the first slot whether the change was
// committed. The first names the others until these are settled. A change that is not committed within
// prepareTime never is, so the next server that needs the record undoes it. Slots are prepared in the order
// of their keys, and no server waits while it has something prepared.

const (
	// prepareTime is for how long a change may still be committed, by the time of the first slot's node.
	prepareTime = 2 * time.Second
	// settleTime is for how long a server tries to settle what it has committed or given up, after its call.
	settleTime = 5 * time.Second
	// firstLook is how long is waited at first until it is asked again whether a change is committed. It
	// doubles, up to lastLook.
	firstLook = 500 * time.Microsecond
	lastLook  = 20 * time.Millisecond
)

// An unsettledError says that a record is a part of a change of several slots that is to be settled first.
type unsettledError struct {
	first, id string
	others    string // in other slots, a line each; of the first record alone, once it is committed
}

func (e *unsettledError) Error() string { return "redis: a change of several slots is not settled yet" }

// An unsettledKey is that of a record.
type unsettledKey struct {
	*unsettledError
	key string
}

// keyed says of which key an error is, if that is to be settled.
func keyed(key string, err error) error {
	if unsettled, is := errors.AsType[*unsettledError](err); is {
		return &unsettledKey{unsettled, key}
	}
	return err
}

// readUnsettled reads the answer that a record is not settled. ok is false if it is another answer.
func readUnsettled(answer *rueidis.RedisMessage) (e unsettledError, ok bool) {
	const parts = 4 // a word, the first key, the number of the change, the other keys
	all, err := answer.ToArray()
	if err != nil || len(all) != parts {
		return e, false
	}
	texts := make([]string, parts)
	for i := range all {
		texts[i], err = all[i].ToString()
		if err != nil {
			return e, false
		}
	}
	return unsettledError{first: texts[1], id: texts[2], others: texts[3]}, true
}

// A slotGroup is those records of a change that are in one slot.
type slotGroup struct {
	slot    int
	places  []int // of its keys
	changed bool  // one of them is to be changed
	first   int   // of these
}

// slotGroups divides keys by their slots, those first in which something is to be changed, in the order of
// their keys.
func (l *link) slotGroups(keys []string, changes []cas.RecordChange) (groups []slotGroup) {
	for i, key := range keys {
		slot := i // a proxy does not tell what is together
		if l.client.Mode() == rueidis.ClientModeCluster {
			command := l.client.B().Exists().Key(key).Build()
			slot = int(command.Slot() % slots)
		}
		at := slices.IndexFunc(groups, func(g slotGroup) bool { return g.slot == slot })
		if at < 0 {
			at, groups = len(groups), append(groups, slotGroup{slot: slot})
		}
		g := &groups[at]
		if !changes[i].Read && !g.changed {
			g.changed, g.first = true, i
		}
		g.places = append(g.places, i)
	}
	slices.SortStableFunc(groups, func(a, b slotGroup) int {
		switch {
		case a.changed && b.changed:
			return a.first - b.first
		case a.changed:
			return -1
		case b.changed:
			return 1
		}
		return 0
	})
	return groups
}

// A spreadSwap is a change of records in several slots.
type spreadSwap struct {
	link    *link
	id      string
	keys    []string
	changes []cas.RecordChange
	groups  []slotGroup
	replies []cas.Reply
}

// groupKeys are the keys of a group that are to be changed, or all of them.
func (s *spreadSwap) groupKeys(g *slotGroup, all bool) (keys []string) {
	for _, i := range g.places {
		if all || !s.changes[i].Read {
			keys = append(keys, s.keys[i])
		}
	}
	return keys
}

// swap makes the change.
func (s *spreadSwap) swap(ctx context.Context) ([]cas.Reply, error) {
	same, err := s.prepareGroups(ctx)
	if !s.groups[0].changed {
		return s.replies, err // all were only read
	}
	if err != nil || !same {
		s.settleLater(false)
		if err != nil && !isUnsettled(err) {
			// It was not committed, and never will be.
			err = s.link.callError(err)
			if !nothingChanged(err) {
				err = fmt.Errorf("redis: %w: a slot did not answer: %w", cas.ErrNotSent, err)
			}
		}
		return s.replies, err
	}
	committed, err := s.commit(ctx)
	if err != nil {
		return nil, err
	}
	s.settleLater(committed)
	if !committed {
		return nil, fmt.Errorf("redis: %w: it took too long to prepare all slots", cas.ErrNotSent)
	}
	for i := range s.replies {
		if s.changes[i].Next != nil && !s.changes[i].Read {
			s.replies[i].Version = s.changes[i].Nonce
		}
	}
	return s.replies, nil
}

// prepareGroups prepares the slots in their order, and reports whether all records are those that were read.
// It ends at the first slot in which one is not.
func (s *spreadSwap) prepareGroups(ctx context.Context) (same bool, err error) {
	b := s.link.backend
	same = true
	for i := range s.replies {
		// As long as they have not been looked at.
		s.replies[i] = cas.Reply{Swapped: true, Version: s.changes[i].If}
	}
	first := s.groupKeys(&s.groups[0], false)
	for at := range s.groups {
		g := &s.groups[at]
		arguments := []string{"prepare", s.id, "", strconv.FormatInt(prepareTime.Microseconds(), 10)}
		if len(first) > 0 {
			arguments[2] = first[0]
		}
		for _, i := range g.places {
			arguments = b.appendChange(arguments, &s.changes[i])
		}
		now, answers, err := s.link.runSpread(ctx, s.groupKeys(g, true), arguments)
		if err != nil {
			return false, err
		}
		for j, i := range g.places {
			s.replies[i], err = readReply(&answers[j], now, &s.changes[i])
			if err != nil {
				return false, keyed(s.keys[i], err)
			}
			if s.replies[i].Swapped {
				s.replies[i].Version = s.changes[i].If
			}
			same = same && s.replies[i].Swapped
		}
		if !same {
			s.fillTimes(now)
			return false, nil
		}
	}
	s.fillTimes(s.replies[s.groups[0].places[0]].Now.UnixMicro())
	return true, nil
}

// fillTimes gives all replies one time, that of a node.
func (s *spreadSwap) fillTimes(now int64) {
	for i := range s.replies {
		s.replies[i].Now = time.UnixMicro(now)
	}
}

// otherKeys are those in other slots than the first that are to be changed, as the first record names them.
func (s *spreadSwap) otherKeys() string {
	var others []string
	for i := range s.groups[1:] {
		others = append(others, s.groupKeys(&s.groups[1+i], false)...)
	}
	return strings.Join(others, "\n")
}

// commit commits the change in the first slot. If that is not answered it is asked again until it is known,
// or cannot be committed any more.
func (s *spreadSwap) commit(ctx context.Context) (committed bool, err error) {
	keys := s.groupKeys(&s.groups[0], false)
	_, answers, err := s.link.runSpread(ctx, keys, []string{"commit", s.id, s.otherKeys(), ""})
	if err == nil {
		n, err := answers[0].ToInt64()
		return n == 1, err
	}
	// Whether it was done is found out behind the caller, who learns it by the records.
	s.link.backend.workLater(func(ctx context.Context) {
		for pause := firstLook; ; pause = min(2*pause, lastLook) {
			_, answers, err := s.link.runSpread(ctx, keys[:1], []string{"abort", s.id, "", ""})
			if err == nil {
				n, _ := answers[0].ToInt64()
				s.settle(ctx, n == 1)
				return
			}
			if !backoff.Sleep(ctx, pause) {
				return
			}
		}
	})
	return false, s.link.callError(err)
}

// settleLater settles all slots after the caller has its answer, unless others do it first.
func (s *spreadSwap) settleLater(committed bool) {
	s.link.backend.workLater(func(ctx context.Context) { s.settle(ctx, committed) })
}

// workLater does something behind the callers, unless the backend is closed.
func (b *Backend) workLater(work func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		work(ctx)
	})
}

// settle settles all slots, and clears the first.
func (s *spreadSwap) settle(ctx context.Context, committed bool) {
	how, well := "abort", true
	if committed {
		how = "commit"
	}
	for i := range s.groups {
		if keys := s.groupKeys(&s.groups[i], false); len(keys) > 0 && (i > 0 || !committed) {
			_, _, err := s.link.runSpread(ctx, keys, []string{"settle", s.id, how, ""})
			well = well && err == nil
		}
	}
	if first := s.groupKeys(&s.groups[0], false); well && committed {
		// If that fails, the next server that needs the first record does it.
		_, _, _ = s.link.runSpread(ctx, first[:1], []string{"clear", s.id, s.otherKeys(), ""})
	}
}

// settleFor settles the change that a record is a part of, or waits until that is settled.
func (l *link) settleFor(ctx context.Context, key string, e *unsettledError) error {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		_, answers, err := l.runSpread(ctx, []string{e.first}, []string{"judge", e.id, "", ""})
		if err != nil {
			return l.callError(err)
		}
		n, err := answers[0].ToInt64()
		if err != nil {
			return errAnswer
		}
		switch {
		// What counts for the first counts for all: this one follows it.
		case n >= 0 && key != e.first:
			how := "abort"
			if n == 1 {
				how = "commit"
			}
			_, _, err = l.runSpread(ctx, []string{key}, []string{"settle", e.id, how, ""})
			return err
		case n == 0:
			return nil
		case n == 1:
			return l.settleOthers(ctx, e)
		}
		if !backoff.Sleep(ctx, pause) {
			return fmt.Errorf("redis: %w: it is a part of a change that is under way: %w",
				cas.ErrNotSent, ctx.Err())
		}
	}
}

// settleOthers settles what the first record of a committed change names, and clears that record. One that
// was met before the commit named none yet: it stays as it is, and is met again.
func (l *link) settleOthers(ctx context.Context, e *unsettledError) error {
	for _, other := range strings.FieldsFunc(e.others, func(r rune) bool { return r == '\n' }) {
		_, _, err := l.runSpread(ctx, []string{other}, []string{"settle", e.id, "commit", ""})
		if err != nil {
			return err
		}
	}
	_, _, err := l.runSpread(ctx, []string{e.first}, []string{"clear", e.id, e.others, ""})
	return err
}

// runSpread runs one step in one slot.
func (l *link) runSpread(
	ctx context.Context, keys, arguments []string,
) (now int64, answers []rueidis.RedisMessage, err error) {
	r := &scriptCall{
		script: l.backend.spread, answered: make(chan struct{}, 1),
		key: keys[0], more: append([]string{}, keys[1:]...), arguments: arguments,
	}
	if err := l.laneFor(r.key).doCall(ctx, r); err != nil {
		return 0, nil, err
	}
	if r.err != nil {
		return 0, nil, r.err
	}
	answers, err = r.answer.ToArray()
	return r.now, answers, err
}

// newSpread is a change of records that are not all in one slot; nil when they are.
func (l *link) newSpread(keys []string, changes []cas.RecordChange) *spreadSwap {
	if !l.single.Load() {
		return nil
	}
	groups := l.slotGroups(keys, changes)
	if len(groups) == 1 {
		return nil
	}
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].Kept = false // what is prepared has an end of its own
	}
	return &spreadSwap{
		link: l, id: fmt.Sprintf("%016x", rand.Uint64()), keys: keys, changes: changes,
		groups: groups, replies: make([]cas.Reply, len(keys)),
	}
}

// isUnsettled reports whether an error is that a record is to be settled first. It is never wrapped.
func isUnsettled(err error) bool {
	switch err.(type) { //nolint:errorlint // see above
	case *unsettledError, *unsettledKey:
		return true
	}
	return false
}

// swapSettled is Swap for a call that need not be waited for, of a record that is to be settled first.
func (b *Backend) swapSettled(
	deadline time.Time, key string, change *cas.RecordChange, answered func(cas.Reply, error),
) {
	ctx := context.Background()
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	of, _ := b.names.parseKey(key) // it was made of one
	answered(b.Swap(ctx, of, change))
}
