//go:build linux || darwin

package etcd

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// claimedBy is a server that claims a record, and another one: each has a backend of its own.
type claimedBy struct {
	claimer, other *Backend
	key            gatehouse.Key
	version        uint64
}

// newClaimed makes a record that one server has lost a race for and claimed.
func newClaimed(t *testing.T, kind gatehouse.Kind, lasts time.Duration) *claimedBy {
	t.Helper()
	cluster := etcdtest.Start(t, 1)
	c := &claimedBy{
		claimer: backend(t, cluster.URL("")), other: backend(t, cluster.URL("")), key: named(kind, "a/b"),
	}
	c.version = put(t, c.other, c.key, &cas.RecordChange{Next: []byte("first"), Nonce: 1, Server: 8}).Version
	lost := c.swap(t, c.claimer, cas.RecordChange{If: 1, Server: 7, Claim: lasts})
	if lost.Swapped || lost.Claimed != 0 || lost.Version != c.version {
		t.Fatalf("the change that claims = %+v, want the record, and no claim in its way", lost)
	}
	return c
}

func (c *claimedBy) swap(t *testing.T, b *Backend, change cas.RecordChange) cas.Reply {
	t.Helper()
	change.Next, change.Nonce, change.Keep = []byte("next"), 2, gatehouse.Forever
	r, err := b.Swap(t.Context(), c.key, &change)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A claim bars the changes of others, their claims and no reads, until its server's next change.
func TestClaim(t *testing.T) {
	t.Parallel()
	for _, kind := range []gatehouse.Kind{gatehouse.Counter, gatehouse.Lock} {
		c := newClaimed(t, kind, time.Hour)
		for _, what := range []cas.RecordChange{
			{If: c.version, Server: 8}, {If: c.version, Server: 8, Claim: time.Hour}, {If: 1, Server: 8},
		} {
			if r := c.swap(t, c.other, what); r.Swapped || r.Claimed <= 0 || r.Version != c.version {
				t.Errorf("%s: %+v of another = %+v, want it barred by the claim", kind, what, r)
			}
		}
		if r := c.swap(t, c.other, cas.RecordChange{If: c.version, Read: true}); !r.Swapped {
			t.Errorf("%s: a read = %+v, want the record to be as it was", kind, r)
		}
		made := c.swap(t, c.claimer, cas.RecordChange{If: c.version, Server: 7, Claim: time.Hour})
		if !made.Swapped || made.Version == c.version {
			t.Errorf("%s: the change of the server with the claim = %+v, want it made", kind, made)
		}
		if r := c.swap(t, c.other, cas.RecordChange{If: made.Version, Server: 8}); r.Claimed > 0 {
			t.Errorf("%s: another's change after it = %+v, want no claim in its way", kind, r)
		}
		last := c.swap(t, c.other, cas.RecordChange{If: 1, Server: 8}).Version
		if r := c.swap(t, c.other, cas.RecordChange{If: last, Server: 8}); !r.Swapped {
			t.Errorf("%s: the last change = %+v, want it made", kind, r)
		}
	}
}

// The claim of a server that died ends by the clock of each other one.
func TestClaimEnds(t *testing.T) {
	t.Parallel()
	c := newClaimed(t, gatehouse.Counter, time.Microsecond)
	c.swap(t, c.other, cas.RecordChange{If: c.version, Server: 8}) // which sees it for the first time
	for deadline := time.Now().Add(patience); ; {
		r := c.swap(t, c.other, cas.RecordChange{If: c.version, Server: 8})
		if r.Swapped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a change after the claim = %+v, want it made", r)
		}
	}
	left, err := c.other.client.Get(t.Context(), c.other.keys.claimKey(c.key))
	if err != nil || len(left.Kvs) > 0 {
		t.Errorf("the key of the claim = %v, %v, want it deleted with the change", left, err)
	}
}
