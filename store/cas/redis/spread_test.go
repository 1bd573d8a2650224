package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A spreadBench is a cluster with records in several slots.
type spreadBench struct {
	*testing.T
	backend *Backend
	keys    []gatehouse.Key
}

func newSpreadBench(t *testing.T) *spreadBench {
	t.Helper()
	nodes := redistest.StartCluster(t, 3)
	b, err := Open("redis://" + nodes[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	redistest.Until(t, func() bool { return b.Ping(t.Context()) == nil })
	s := &spreadBench{T: t, backend: b}
	for i := range 4 {
		s.keys = append(s.keys, gatehouse.Key{Kind: gatehouse.Lock, Name: strconv.Itoa(i)})
	}
	return s
}

// plain is a record of a nonce.
func plain(nonce uint64) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{1}, nonce), "record"...)
}

// puts are changes of all records from one nonce to another.
func (s *spreadBench) puts(from, to uint64) []cas.RecordChange {
	changes := make([]cas.RecordChange, len(s.keys))
	for i := range changes {
		changes[i] = cas.RecordChange{If: from, Next: plain(to), Nonce: to, Keep: time.Minute, Server: 1}
	}
	return changes
}

func (s *spreadBench) swap(changes []cas.RecordChange) []cas.Reply {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	replies, err := s.backend.SwapTogether(ctx, s.keys, changes)
	if err != nil {
		s.Fatal(err)
	}
	return replies
}

// want looks whether all records have a nonce, 0 for none.
func (s *spreadBench) want(nonce uint64) {
	s.Helper()
	for _, key := range s.keys {
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		reply, err := s.backend.Swap(ctx, key, &cas.RecordChange{If: 1<<64 - 1, Read: true})
		cancel()
		if err != nil || reply.Version != nonce {
			s.Errorf("%s has version %d, %v, want %d", key, reply.Version, err, nonce)
		}
	}
}

// begun is a change of all records of which nothing was sent.
func (s *spreadBench) begun(from, to uint64) *spreadSwap {
	s.Helper()
	l, err := s.backend.currentLink(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, key := range s.keys {
		names = append(names, string(s.backend.names.appendKey(nil, key)))
	}
	one := l.newSpread(names, s.puts(from, to))
	if one == nil || len(one.groups) < 3 {
		s.Fatal("the keys are not in several slots")
	}
	return one
}

// Records in several slots are replaced together or not at all.
func TestSpread(t *testing.T) {
	t.Parallel()
	s := newSpreadBench(t)
	made := s.swap(s.puts(0, 1))
	if !made[0].Swapped || !made[3].Swapped || made[3].Version != 1 {
		t.Errorf("new records: %+v", made)
	}
	s.want(1)
	changes := s.puts(1, 2)
	changes[3].If = 9
	if replies := s.swap(changes); replies[3].Swapped || !bytes.Equal(replies[3].Record, plain(1)) {
		t.Errorf("one is another record: %+v", replies)
	}
	s.want(1)
	changes = s.puts(1, 3)
	changes[1].Keep = gatehouse.Forever
	s.swap(changes)
	s.want(3)
	for i := range changes {
		changes[i] = cas.RecordChange{If: 3, Nonce: 4}
	}
	s.swap(changes)
	s.want(0)
}

// What a server has begun before it died is undone as soon as it cannot be committed any more; what it has
// committed is carried on at once. A change that comes too late is not committed.
func TestSpreadOfADeadServer(t *testing.T) {
	t.Parallel()
	for prepared := range 3 {
		t.Run(fmt.Sprint("prepared in ", prepared+1), func(t *testing.T) {
			t.Parallel()
			s := newSpreadBench(t)
			s.swap(s.puts(0, 1))
			s.want(1) // it is settled
			dead := s.begun(1, 2)
			all := dead.groups
			dead.groups = all[:prepared+1]
			if same, err := dead.prepareGroups(t.Context()); err != nil || !same {
				t.Fatal(same, err)
			}
			began := time.Now()
			s.want(1)
			s.swap(s.puts(1, 3))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("what a dead server has begun was undone after %s, want 5s at most", took)
			}
			dead.groups = all
			if committed, err := dead.commit(t.Context()); err != nil || committed {
				t.Errorf("committed too late: %t, %v", committed, err)
			}
			s.want(3)
		})
	}
	for _, firstRead := range []int{0, 3} {
		t.Run(fmt.Sprint("committed, met at ", firstRead), func(t *testing.T) {
			t.Parallel()
			s := newSpreadBench(t)
			s.swap(s.puts(0, 1))
			s.want(1) // it is settled
			dead := s.begun(1, 2)
			if same, err := dead.prepareGroups(t.Context()); err != nil || !same {
				t.Fatal(same, err)
			}
			if committed, err := dead.commit(t.Context()); err != nil || !committed {
				t.Fatal(committed, err)
			}
			reply, err := s.backend.Swap(t.Context(), s.keys[firstRead], &cas.RecordChange{If: 9, Read: true})
			if err != nil || reply.Version != 2 {
				t.Errorf("the first that is met has version %d, %v, want 2", reply.Version, err)
			}
			// A call that nobody waits for settles what it meets as well.
			other := s.keys[len(s.keys)-1-firstRead]
			versions := make(chan uint64, 1)
			s.backend.Start(t.Context(), other, &cas.RecordChange{If: 9, Read: true},
				func(reply cas.Reply, err error) {
					if err != nil {
						t.Error(err)
					}
					versions <- reply.Version
				})
			if version := <-versions; version != 2 {
				t.Errorf("the next that is met has version %d, want 2", version)
			}
			s.want(2)
			s.swap(s.puts(2, 3))
			s.want(3)
		})
	}
}

// A server that meets the first record of a change before that is committed, and waits for it, leaves the
// others committed too: it does not clear the note of the commit, as it knows of no others that it settled.
func TestSpreadMetBeforeItsCommit(t *testing.T) {
	t.Parallel()
	s := newSpreadBench(t)
	s.swap(s.puts(0, 1))
	s.want(1) // it is settled
	one := s.begun(1, 2)
	if same, err := one.prepareGroups(t.Context()); err != nil || !same {
		t.Fatal(same, err)
	}
	first := one.keys[one.groups[0].first]
	met := &unsettledError{first: first, id: one.id} // as it is read now
	if committed, err := one.commit(t.Context()); err != nil || !committed {
		t.Fatal(committed, err)
	}
	if err := one.link.settleFor(t.Context(), first, met); err != nil {
		t.Fatal(err)
	}
	s.want(2)
}

// TestNoteOutlivesThePrepared: what a dead server has committed is found to be, however short-lived the first
// record is; once it is settled each record is kept for as long as it is to be.
func TestNoteOutlivesThePrepared(t *testing.T) {
	t.Parallel()
	s := newSpreadBench(t)
	dead := s.begun(0, 1)
	first := dead.groups[0].first
	for i := range dead.changes {
		dead.changes[i].Keep = 24 * time.Hour
	}
	dead.changes[first].Keep = 10 * time.Second
	if same, err := dead.prepareGroups(t.Context()); err != nil || !same {
		t.Fatal(same, err)
	}
	if committed, err := dead.commit(t.Context()); err != nil || !committed {
		t.Fatal(committed, err)
	}
	client := dead.link.client
	kept := func(i int) time.Duration {
		left, err := client.Do(t.Context(), client.B().Pttl().Key(dead.keys[i]).Build()).ToInt64()
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(left) * time.Millisecond
	}
	note := kept(first)
	for i := range dead.keys {
		if left := kept(i); left > note {
			t.Errorf("%s is kept for %s, and the note of its commit for %s", s.keys[i], left, note)
		}
	}
	s.want(1) // it is settled
	if left := kept(first); left <= 0 || left > 10*time.Second {
		t.Errorf("the first is kept for %s, want 10s at most", left)
	}
}
