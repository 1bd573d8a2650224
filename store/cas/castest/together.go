package castest

import (
	"context"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// SwapTogether implements cas.Backend.
func (b *Server) SwapTogether(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	// They may still be under way when the caller has given up, which then uses them again.
	keys, changes = slices.Clone(keys), slices.Clone(changes)
	for i := range changes {
		c := &changes[i]
		c.Next, c.Wake = slices.Clone(c.Next), slices.Clone(c.Wake)
		c.Begin, c.End = slices.Clone(c.Begin), slices.Clone(c.End)
	}
	return b.store.exchangeRequest(ctx, b, func() []cas.Reply {
		return b.store.applyTogether(b, keys, changes)
	})
}

// applyTogether does what a server asks for: all of it or nothing.
func (s *Store) applyTogether(b *Server, keys []gatehouse.Key, changes []cas.RecordChange) []cas.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	replies, objects := make([]cas.Reply, len(keys)), make([]storedObject, len(keys))
	all, barred := true, false
	for i, key := range keys {
		objects[i] = s.readObject(key)
		c, o := &changes[i], &objects[i]
		r := &replies[i]
		*r = s.replyTo(b, *o)
		r.Claimed = o.claim.remainingFor(s.now(), c)
		r.Swapped = o.version == c.If && r.Claimed == 0
		if !r.Swapped {
			r.Record = slices.Clone(o.record)
		}
		all, barred = all && r.Swapped, barred || r.Claimed > 0
	}
	for i, key := range keys {
		c, o := &changes[i], objects[i]
		switch {
		case all && !c.Read:
			replies[i] = s.replyTo(b, s.replaceRecord(key, o, c))
			replies[i].Swapped = true
		// Claims are noted on all of them or on none, so that two servers never wait for each other.
		case !all && !barred && c.Claim > 0 && o.record != nil:
			o.claim = recordClaim{c.Server, s.now().Add(c.Claim)}
			s.objects[key] = o
		}
	}
	s.logLine("%v together: %t, nonce %x", keys, all, changes[0].Nonce)
	return replies
}
