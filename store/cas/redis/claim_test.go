package redis_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A claimStep is a change, and what is to come of it.
type claimStep struct {
	what    string
	change  cas.RecordChange
	want    cas.Reply
	claimed bool // by another server
}

// claimSteps are changes of one record, one after the other.
func claimSteps() []claimStep {
	first, second, third := record(1, "\x02first"), record(2, "second"), record(3, "third")
	const never = 1<<64 - 1
	return []claimStep{
		{
			"a claim on none", cas.RecordChange{If: 9, Next: first, Nonce: 1, Server: 7, Claim: cas.MaxClaim},
			cas.Reply{}, false,
		},
		{
			"make", cas.RecordChange{Next: first, Nonce: 1, Keep: time.Hour},
			cas.Reply{Swapped: true, Version: 1}, false,
		},
		{
			"lose and claim", cas.RecordChange{If: 9, Next: third, Nonce: 3, Server: 7, Claim: cas.MaxClaim},
			cas.Reply{Record: first, Version: 1}, false,
		},
		{"another", cas.RecordChange{If: 1, Nonce: 2}, cas.Reply{Record: first, Version: 1}, true},
		{
			"another that claims too",
			cas.RecordChange{If: 1, Next: second, Nonce: 2, Server: 0xdeadbeef, Claim: cas.MaxClaim},
			cas.Reply{Record: first, Version: 1}, true,
		},
		{"make again", cas.RecordChange{Nonce: 2}, cas.Reply{Record: first, Version: 1}, true},
		{"read the same", cas.RecordChange{If: 1, Read: true}, cas.Reply{Swapped: true, Version: 1}, false},
		{"read", cas.RecordChange{If: never, Read: true}, cas.Reply{Record: first, Version: 1}, false},
		{
			"who claimed it loses again",
			cas.RecordChange{If: 9, Next: third, Nonce: 3, Server: 7, Claim: cas.MaxClaim},
			cas.Reply{Record: first, Version: 1}, false,
		},
		{
			"who claimed it",
			cas.RecordChange{If: 1, Next: third, Nonce: 3, Server: 7, Claim: cas.MaxClaim, Keep: time.Hour},
			cas.Reply{Swapped: true, Version: 3}, false,
		},
		{
			"another now", cas.RecordChange{If: 3, Next: second, Nonce: 2, Keep: time.Hour},
			cas.Reply{Swapped: true, Version: 2}, false,
		},
		{
			"a short claim",
			cas.RecordChange{If: 9, Next: third, Nonce: 3, Server: 7, Claim: time.Microsecond},
			cas.Reply{Record: second, Version: 2}, false,
		},
		{
			"another after it", cas.RecordChange{If: 2, Next: first, Nonce: 1, Keep: time.Hour},
			cas.Reply{Swapped: true, Version: 1}, false,
		},
	}
}

// A change that claims the record when it loses keeps the changes of others out, and nothing else, until its
// server's next one.
func TestClaim(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, k := open(t, "redis://"+server.Address), key("a")
	for _, s := range claimSteps() {
		got := ask(t, b, k, &s.change)
		if got.Swapped != s.want.Swapped || got.Version != s.want.Version ||
			!bytes.Equal(got.Record, s.want.Record) || (got.Claimed > 0) != s.claimed {
			t.Errorf("%s: %+v, want %+v, claimed by another: %t", s.what, got, s.want, s.claimed)
		}
		left := server.Int(t, "PTTL", "gatehouse:lock/a")
		if s.change.If == 9 && got.Version != 0 && left <= 0 {
			t.Errorf("%s: the record is kept for %d ms, want as long as before", s.what, left)
		}
	}
}

// claimed is a record of the stored form 1 that server 7 has claimed, as the script writes it.
func claimed(record []byte, until time.Time) []byte {
	return append(fmt.Appendf(nil, "\x0200000007%016d", until.UnixMicro()), record...)
}

// A claimed record is one: its claim is not a part of it, wherever it is read. What was stored before there
// were claims has none.
func TestClaimedForm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	forms := map[string][]byte{
		"plain":   record(5, "text"),
		"claimed": claimed(record(5, "text"), time.Now().Add(cas.MaxClaim)),
		// It was claimed before the clock was set back: nobody waits for as long.
		"claimed in the future": claimed(record(5, "text"), time.Now().Add(time.Hour)),
	}
	for name, stored := range forms {
		ask(t, b, key(name), &cas.RecordChange{Next: stored, Keep: time.Hour})
		reply := ask(t, b, key(name), &cas.RecordChange{If: 9, Next: record(6, ""), Nonce: 6})
		if !bytes.Equal(reply.Record, record(5, "text")) || reply.Version != 5 ||
			(reply.Claimed > 0) != (name == "claimed") {
			t.Errorf("%s: Swap = %+v, want the record without its claim", name, reply)
		}
	}
	visited := 0
	err := b.Range(context.Background(), gatehouse.Lock, "", func(name string, data []byte) bool {
		visited++
		if !bytes.Equal(data, record(5, "text")) {
			t.Errorf("Range shows %q of %s, want the record without its claim", data, name)
		}
		return true
	})
	if err != nil || visited != len(forms) {
		t.Errorf("Range showed %d records, %v, want %d", visited, err, len(forms))
	}
}
