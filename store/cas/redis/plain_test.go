package redis_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// plainChange is the change of a record of which the scripts need only the new record: it has the nonce
// of the one that it replaces behind its own.
func plainChange(before, nonce uint64) cas.RecordChange {
	next := binary.BigEndian.AppendUint64(record(nonce, "\x01"), before)
	next = append(next, "text"...)
	return cas.RecordChange{If: before, Next: next, Nonce: nonce, Keep: time.Minute, Kept: true}
}

// A plainCase is what such a change finds, and its reply.
type plainCase struct {
	what   string
	stored []byte
	want   cas.Reply
	claim  bool // by another server
}

func plainCases() []plainCase {
	plain, later := record(1, "text"), time.Now().Add(cas.MaxClaim)
	return []plainCase{
		{"the one that was read", plain, cas.Reply{Swapped: true, Version: 2}, false},
		{"another one", record(3, "text"), cas.Reply{Record: record(3, "text"), Version: 3}, false},
		{"one of another form", []byte("\x07text"), cas.Reply{Record: []byte("\x07text")}, false},
		{"none", nil, cas.Reply{}, false},
		{"a claimed one", claimed(plain, later), cas.Reply{Record: plain, Version: 1}, true},
		{
			"one that was claimed", claimed(plain, time.Now().Add(-time.Second)),
			cas.Reply{Swapped: true, Version: 2}, false,
		},
	}
}

// A change that only replaces a record, alone and together with another, heeds what any other does.
func TestPlainChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	change := plainChange(1, 2)
	for _, c := range plainCases() {
		k := key(c.what)
		if c.stored != nil {
			ask(t, b, k, &cas.RecordChange{Next: c.stored, Keep: time.Hour})
		}
		c.judge(t, ask(t, b, k, &change))
		if left := server.Int(t, "PTTL", "gatehouse:"+k.String()); c.stored != nil && left < 3_000_000 {
			t.Errorf("%s: the record is kept for %d ms, want as long as before", c.what, left)
		}
	}
	server.CLI(t, "RPUSH", "gatehouse:lock/list", "x")
	if _, err := b.Swap(soonest(t), key("list"), &change); !errors.Is(err, cas.ErrRefused) {
		t.Errorf("over a list: %v, want ErrRefused", err)
	}
}

func TestPlainChangesTogether(t *testing.T) {
	t.Parallel()
	b := open(t, "redis://"+redistest.Start(t).Address)
	change := plainChange(1, 2)
	for _, c := range plainCases() {
		k, other := key(c.what), gatehouse.Key{Kind: gatehouse.Semaphore, Name: c.what}
		ask(t, b, other, &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Hour})
		if c.stored != nil {
			ask(t, b, k, &cas.RecordChange{Next: c.stored, Keep: time.Hour})
		}
		keys, changes := []gatehouse.Key{other, k}, []cas.RecordChange{change, change}
		replies, err := b.SwapTogether(soonest(t), keys, changes)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		c.judge(t, replies[1])
		if r := ask(t, b, other, &cas.RecordChange{If: 2, Read: true}); r.Swapped != c.want.Swapped {
			t.Errorf("%s: the other record is replaced: %t, want %t", c.what, r.Swapped, c.want.Swapped)
		}
	}
}

func (c *plainCase) judge(t *testing.T, got cas.Reply) {
	t.Helper()
	if got.Swapped != c.want.Swapped || got.Version != c.want.Version ||
		!bytes.Equal(got.Record, c.want.Record) || (got.Claimed > 0) != c.claim {
		t.Errorf("%s: %+v, want %+v, claimed by another: %t", c.what, got, c.want, c.claim)
	}
}
