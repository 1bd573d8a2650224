// Package election decides which of several processes is the master. They agree through one key in etcd.
//
// The master's key is attached to an etcd lease. The master renews the lease. When it cannot, it stops being
// master by its own clock, before etcd ends the lease and another candidate takes the key.
//
//	read the key ──exists──> follow its holder and watch the key ──key gone──┐
//	    ^   └──no key──> grant a lease, put the key under it ──lost─────────┤
//	    │                        └──won──> lead: renew and watch ──over──> revoke
//	    └──────────────────────────────────────────────────────────────────┘
package election

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/gatehousehq/gatehouse/internal/etcd"
)

const (
	defaultTTL = 10 * time.Second
	// minTTL is the smallest that etcd counts; it may grant more than was asked. maxTTL bounds how long the
	// candidates wait for a new master.
	minTTL, maxTTL = time.Second, time.Hour
	// renewalsPerTTL is how many renewals fall into the lifetime of a lease: one may fail, and there is time
	// for two more attempts.
	renewalsPerTTL = 3
	// renewAttempts is how many attempts to renew fit into that lifetime. None may take longer.
	renewAttempts = 5
	// marginFraction is the part of a lease's lifetime, as 1/marginFraction, left unused at its end. It
	// is for clocks that run at different speeds, and for callers that have just compared Until and now act.
	marginFraction = 10

	// maxCall bounds one call to etcd, also while etcd elects a leader of its own. The next call goes to
	// another member. A renewal may get less.
	maxCall = 2 * time.Second
	// maxHeartbeat is the longest that a watch may be silent before it is asked for a sign of life, and
	// minHeartbeat the shortest, for the shortest leases. The answer may take as long again.
	minHeartbeat, maxHeartbeat = time.Second, 5 * time.Second
	// maxPause is the longest pause after a failure.
	maxPause = 2 * time.Second
)

// MaxCandidate is the longest name of a candidate in bytes, far above a host name with a port.
const MaxCandidate = 512

// A MasterStatus says which candidate is master, as far as is known.
type MasterStatus struct {
	// Leading says that this candidate is master, until Until and no longer: code that acts as master
	// compares Until with its clock each time. Until has a monotonic reading, and is zero when this
	// candidate is not master.
	Leading bool
	Until   time.Time

	// Leader is the candidate that is master, possibly this one. It is empty when no master is known.
	Leader string

	// Err is why etcd could not be asked, nil when all is well. It is cleared by the next success.
	Err error
}

// An Election is a key in etcd that belongs to at most one of the candidates.
type Election struct {
	client *clientv3.Client
	leases pb.LeaseClient
	key    string
	ttl    time.Duration
}

// Open reads an address such as
//
//	etcd://host1:2379,host2:2379/path/of/key?ttl=10s
//
// ttl is how long a master that died stays master, in whole seconds from 1s to 1h; the default is 10s. All
// candidates should use the same. Etcd need not be reachable yet, unless the address has a user. The caller
// closes the election after its Run.
func Open(address string) (*Election, error) { return openWith(address) }

// Check reports what is wrong with an address, nil when Open would accept it. It connects to no server.
func Check(address string) error {
	_, err := parseAddress(address)
	return err
}

// parseAddress returns the lease's lifetime, the only thing an election's address has besides the parts of
// every etcd address.
func parseAddress(address string) (ttl time.Duration, err error) {
	_, query, err := etcd.Check(address)
	if err != nil {
		return 0, fmt.Errorf("election: %w", err)
	}
	ttl, err = parseTTL(query)
	if err != nil {
		return 0, fmt.Errorf("election: etcd address: %w", err)
	}
	return ttl, nil
}

// openWith is Open with options for the connections, which tests use.
func openWith(address string, options ...grpc.DialOption) (*Election, error) {
	ttl, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	client, key, _, err := etcd.Open(address, options...)
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	leases := pb.NewLeaseClient(client.ActiveConnection())
	return &Election{client: client, leases: leases, key: key, ttl: ttl}, nil
}

// parseTTL reads ttl, the only parameter an address has.
func parseTTL(query url.Values) (time.Duration, error) {
	for name := range query {
		if name != "ttl" {
			return 0, fmt.Errorf("parameter %q is unknown, want ttl", name)
		}
	}
	if len(query["ttl"]) == 0 {
		return defaultTTL, nil
	}
	text := query["ttl"][0]
	ttl, err := time.ParseDuration(text)
	// Fractions of a second are refused: etcd counts a lease in whole seconds.
	if err != nil || len(query["ttl"]) > 1 || ttl < minTTL || ttl > maxTTL || ttl%time.Second != 0 {
		return 0, fmt.Errorf("ttl is %q, want whole seconds from 1s to 1h", query["ttl"])
	}
	return ttl, nil
}

// Name is the same for all candidates of one election: the members of etcd and the key, without user and
// password.
func (e *Election) Name() string {
	hosts := slices.Clone(e.client.Endpoints())
	slices.Sort(hosts)
	return strings.Join(hosts, ",") + e.key
}

// Close closes the client of etcd. Run must have returned before.
func (e *Election) Close() error { return e.client.Close() }

// Run takes part under the name candidate, the address that other candidates redirect to, until ctx ends. It
// calls tell at each change and at each renewal of its own mastership, one call at a time. tell should
// return soon. Once it has returned from a call with Leading false, this candidate must not act as master
// any more.
//
// At the end Run gives the mastership back, so that the next master need not wait until the lease ends. The
// error says that this failed, or that candidate is not a valid name. Failures of etcd before the end are
// reported in MasterStatus.Err, and retried.
func (e *Election) Run(ctx context.Context, candidate string, tell func(MasterStatus)) error {
	if candidate == "" || len(candidate) > MaxCandidate {
		return fmt.Errorf("election: candidate of %d bytes, want 1 to %d", len(candidate), MaxCandidate)
	}
	n := newNotifier(tell)
	defer n.close()
	pause := e.newBackoff()
	for {
		// ctx is looked at first in each case: an error that comes because ctx has ended is no failure
		// of etcd. Only a lease left behind is, since it delays the next master.
		err := e.runTerm(ctx, candidate, n)
		switch {
		case ctx.Err() != nil && errors.Is(err, errNotGivenBack):
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.setError(err)
			pause.waitPause(ctx)
		default:
			// A term that ended well, ours or another's, ends the row of failures.
			pause = e.newBackoff()
		}
	}
}

// errNotGivenBack says that the next master has to wait until a lease ends by itself.
var errNotGivenBack = errors.New("election: the key was not given back")

// runTerm runs one term: this candidate's, or another's until it ends.
func (e *Election) runTerm(ctx context.Context, candidate string, n *statusNotifier) error {
	seen, err := e.readKey(ctx)
	if err != nil {
		return err
	}
	// A key with our own name that we did not just write is from an earlier process at this address. It no
	// longer answers as master, so no client may be sent there. The key still blocks us until its lease
	// ends.
	if seen.leader == candidate {
		seen.leader = ""
	}
	n.setLeader(seen.leader, e.ttl)
	if seen.exists() {
		// Each sign of life from etcd confirms the holder for another ttl; without one, the master counts as
		// unknown after that time.
		return e.awaitChange(ctx, seen, func() { n.setLeader(seen.leader, e.ttl) })
	}
	won, err := e.campaign(ctx, candidate)
	// Without an error, another candidate was faster; the next term follows it.
	if won == nil {
		return err
	}
	e.holdKey(ctx, *won, candidate, n)
	// The order matters: this candidate says that it is no longer master before the key is free for another.
	n.endTerm()
	return e.revokeLease(ctx, won.lease)
}
